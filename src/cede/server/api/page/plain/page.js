// The plain page: reads the public API with the token of whoever looks, and shows what it says.
//
// It has no authority of its own: the token lives in this tab's sessionStorage and travels in a header, so there are
// no cookies and nothing to forge. All text from the server is set with textContent and never parsed as HTML.
"use strict";

const API = "/api/v1";
const KEY = "cede-token";
const REFRESH_MS = 2000;
const ROWS_MAX = 100;

const $ = (id) => document.getElementById(id);
let token = null;
let refusal = ""; // what the server said of a link
let watcher = null;
let timer = null;
let drawing = false;
let again = false;

async function takeToken() {
  // `cede up` and `cede page` print a link with a code after the #, which browsers never send to a
  // server. It is worth a token once, for minutes.
  const match = /^#link=([\w-]+)$/.exec(location.hash);
  if (match) {
    history.replaceState(null, "", location.pathname + location.search);
    const response = await fetch(API + "/links/open", {
      method: "POST",
      credentials: "omit",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ code: match[1] }),
    });
    const opened = await response.json();
    if (!response.ok) refusal = opened.detail;
    else sessionStorage.setItem(KEY, opened.token);
  }
  return sessionStorage.getItem(KEY);
}

class Refused extends Error {}

async function get(path, options = {}) {
  const response = await fetch(API + path, {
    ...options,
    cache: "no-store",
    credentials: "omit",
    headers: { Authorization: "Bearer " + token, ...(options.headers || {}) },
  });
  if (response.status === 401) throw new Refused("the token is not valid any more");
  if (!response.ok) {
    const problem = await response.json().catch(() => ({}));
    throw new Error(problem.detail || "the server answered " + response.status);
  }
  return response;
}

const getJson = async (path) => (await get(path)).json();

function element(name, className, text) {
  const node = document.createElement(name);
  if (className) node.className = className;
  if (text !== undefined && text !== null) node.textContent = String(text);
  return node;
}

function showPool(pool) {
  const card = element("article", "pool");
  const title = element("h3", "", pool.name);
  title.append(element("span", "", pool.active + " active, " + pool.queued + " waiting"));
  card.append(title);
  if (pool.description) card.append(element("p", "", pool.description));
  for (const [key, total] of Object.entries(pool.capacity)) {
    const used = pool.occupied[key] || 0;
    const row = element("div", "key");
    const bar = element("div", "bar");
    const part = element("div", used >= total ? "used full" : "used");
    part.style.width = Math.min(100, (100 * used) / Math.max(total, 1)) + "%";
    bar.append(part);
    bar.setAttribute("role", "meter");
    bar.setAttribute("aria-valuemin", "0");
    bar.setAttribute("aria-valuemax", String(total));
    bar.setAttribute("aria-valuenow", String(used));
    bar.setAttribute("aria-label", key + " occupied");
    row.append(element("span", "name", key), bar, element("span", "number", used + " of " + total));
    card.append(row);
  }
  return card;
}

function showNode(node) {
  const row = element("tr");
  row.dataset.id = node.name;
  const held = Object.entries(node.amounts).filter(([key]) => key !== "step_run")
    .map(([key, total]) => (node.held[key] || 0) + " of " + total + " " + key).join(", ");
  row.append(
    element("td", "", node.name),
    element("td", "", node.pool || "none"),
    element("td", "state-" + node.state, node.state),
    element("td", "number", held),
    element("td", "number", span(node.silent) + " ago"),
    element("td", "why", [node.reason, node.checkpoints === "own" ? "own checkpoint folder" : ""].filter(Boolean).join("; ")),
  );
  return row;
}

// On which nodes, each once: a gang may have many tasks on one.
const where = (request) =>
  [...new Set(((request.allocation || {}).members || []).map((each) => each.node))].join(", ");

const amounts = (resources) =>
  Object.entries(resources).filter(([key]) => key !== "step_run")
    .map(([key, amount]) => amount + " " + key).join(", ") || "1 step_run";

function age(created) {
  const seconds = (Date.now() - Date.parse(created)) / 1000;
  return Number.isFinite(seconds) ? span(seconds) : "";
}

function span(exact) {
  const seconds = Math.max(0, Math.round(exact));
  if (seconds < 120) return seconds + " s";
  if (seconds < 7200) return Math.floor(seconds / 60) + " min";
  if (seconds < 172800) return Math.floor(seconds / 3600) + " h";
  return Math.floor(seconds / 86400) + " d";
}

// The short form of an id, as the command line shows it: the start of its random last group.
const ID = /[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}/g;
const shorten = (text) => text.replace(ID, (id) => id.slice(24, 32));

function showRequest(request, active) {
  const row = element("tr");
  row.dataset.id = request.id;
  const id = element("td", "id", shorten(request.id));
  id.title = request.id;
  const holds = element("td", "number", amounts(request.resources));
  row.append(id, element("td", "", request.component), holds);
  if (active) row.append(element("td", "", request.pool), element("td", "", where(request)));
  row.append(
    element("td", "status-" + request.status, request.status),
    element("td", "number", request.attempt),
    element("td", "number", age(request.created)),
  );
  const why = element("td", "why");
  if (request.reason) {
    why.title = request.reason.text;
    why.append(element("span", "", shorten(request.reason.text)));
    if (request.reason.fix && request.reason.fix !== "nothing") {
      why.append(element("small", "", shorten(request.reason.fix)));
    }
  }
  row.append(why);
  return row;
}

function fill(table, page, show, nothing) {
  const body = $(table).tBodies[0];
  const rows = page.items.map(show);
  if (!rows.length) {
    const row = element("tr");
    const cell = element("td", "empty", nothing);
    cell.colSpan = $(table).tHead.rows[0].cells.length;
    row.append(cell);
    rows.push(row);
  }
  body.replaceChildren(...rows);
  $(table + "-count").textContent = page.items.length + (page.next ? "+" : "");
}

async function draw() {
  // One drawing at a time; what happens meanwhile is drawn once afterwards.
  if (drawing) { again = true; return; }
  drawing = true;
  const whose = token;
  try {
    const [pools, nodes, waiting, active] = await Promise.all([
      getJson("/pools?limit=" + ROWS_MAX),
      getJson("/nodes?limit=" + ROWS_MAX),
      getJson("/requests?status=queued&status=suspended&explain=true&limit=" + ROWS_MAX),
      getJson("/requests?status=allocated&status=preempting&limit=" + ROWS_MAX),
    ]);
    if (token !== whose) return;  // whoever asked has left meanwhile
    $("pools").replaceChildren(...pools.items.map(showPool));
    if (!pools.items.length) $("pools").append(element("p", "", "There are no pools yet."));
    $("nodes-section").hidden = !nodes.items.length;
    fill("nodes", nodes, showNode, "");
    fill("waiting", waiting, (each) => showRequest(each, false), "Nothing waits.");
    fill("active", active, (each) => showRequest(each, true), "Nothing runs.");
    say("as of " + new Date().toLocaleTimeString());
  } catch (error) {
    if (token === whose) throw error;
  } finally {
    drawing = false;
    if (again) { again = false; soon(); }
  }
}

function say(text, broken = false) {
  $("state").textContent = text;
  $("state").classList.toggle("broken", broken);
}

// Events only say that something happened; what there is to see is read anew.
async function watch(signal) {
  const response = await get("/events?follow=true", {
    signal, headers: { Accept: "text/event-stream" },
  });
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    if (decoder.decode(value, { stream: true }).includes("data:")) soon();
  }
}

let pending = null;
function soon() {
  // A storm of events is one drawing a second.
  if (!pending) pending = setTimeout(() => { pending = null; if (token) draw().catch(failed); }, 1000);
}

function failed(error) {
  if (error instanceof Refused) { leave(error.message); return; }
  if (error.name !== "AbortError") say(error.message + "; trying again", true);
}

async function keepWatching() {
  const mine = (watcher = new AbortController());
  while (watcher === mine) {
    try {
      await watch(mine.signal);
    } catch (error) {
      failed(error);
    }
    await new Promise((resolve) => setTimeout(resolve, REFRESH_MS));
  }
}

async function enter() {
  const me = await getJson("/whoami");
  $("who").textContent = me.name + " (" + me.role + ")" + (me.subjects.length ? " for " + me.subjects.join(", ") : "");
  $("enter").hidden = true;
  for (const id of ["pools-section", "waiting-section", "active-section", "leave"]) $(id).hidden = false;
  const mine = token;
  await draw();
  if (token !== mine) return;
  keepWatching();
  // Ages grow and streams break: a slow refresh is the truth, the stream only makes it quicker.
  timer = setInterval(() => draw().catch(failed), REFRESH_MS * 5);
}

function leave(message) {
  sessionStorage.removeItem(KEY);
  token = null;
  if (watcher) { watcher.abort(); watcher = null; }
  clearInterval(timer);
  for (const id of ["pools-section", "nodes-section", "waiting-section", "active-section", "leave"]) $(id).hidden = true;
  $("who").textContent = "";
  $("enter").hidden = false;
  say(message || "", Boolean(message));
}

async function start() {
  refusal = "";
  token = await takeToken();
  if (!token) { leave(refusal); return; }
  try {
    await enter();
  } catch (error) {
    if (error instanceof Refused) { leave(error.message); return; }
    say(error.message, true);
    setTimeout(start, REFRESH_MS);
  }
}

$("enter").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(KEY, $("token").value.trim());
  $("token").value = "";
  say("");
  start();
});
$("leave").addEventListener("click", () => leave(""));
window.addEventListener("hashchange", () => { if (location.hash.startsWith("#link=")) { leave(""); start(); } });
start();
