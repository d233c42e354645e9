// What keeps the page current: one stream of events from the last index seen, and reads that follow it.
//
// An event only says that something happened: what a view shows is read again, at most twice a second, and what came
// back the same is not drawn again. After an absence the stream goes on from the last index, so nothing that happened
// meanwhile is missed. A hidden tab reads nothing.
import { useEffect, useState } from "preact/hooks";
import { call, hasToken, Problem, readText, serverIndex, type Event } from "./api";

export type LinkState = "connecting" | "live" | "away";

const BEAT_MS = 50; // events that come together are one reason to read
const READ_MS = 500; // a path is read at most once in so many milliseconds, however much happens
const AGES_MS = 15_000; // ages grow and silent nodes make no events: views are read again even if nothing happens
const RETRY_MS = 1_000;
const RETRY_MAX_MS = 5_000;
const EVENTS_MAX = 500;
const SILENT_MS = 40_000; // the server says something at least every 15 s

interface Link {
  state: LinkState;
  heard: number; // when the server last answered
  problem: string;
}

let link: Link = { state: "connecting", heard: Date.now(), problem: "" };
let latest: Event[] = [];
let last = -1;
let stop: AbortController | null = null;
const listeners = new Set<() => void>(); // of the link's state
const readers = new Set<() => void>(); // of everything that may have changed what views show
let onRefused: (message: string) => void = () => {};

function change(parts: Partial<Link>): void {
  link = { ...link, ...parts };
  for (const each of listeners) each();
}

let beat: number | undefined;
function somethingHappened(): void {
  if (beat !== undefined) return;
  beat = window.setTimeout(() => {
    beat = undefined;
    refresh();
  }, BEAT_MS);
}

/** Reads again whatever is shown. */
export function refresh(): void {
  for (const each of [...readers]) each();
}

export function useLink(): Link {
  const [, draw] = useState(0);
  useEffect(() => {
    const listener = (): void => draw((n) => n + 1);
    listeners.add(listener);
    listener(); // it may have changed between drawing and listening
    return () => void listeners.delete(listener);
  }, []);
  return link;
}

/** Increases with what happens, at most twice a second. */
export function useBeat(): number {
  const [beats, setBeats] = useState(0);
  useEffect(() => {
    let timer: number | undefined;
    const listener = (): void => {
      if (document.hidden) return;
      timer ??= window.setTimeout(() => {
        timer = undefined;
        setBeats((n) => n + 1);
      }, READ_MS);
    };
    readers.add(listener);
    document.addEventListener("visibilitychange", listener);
    return () => {
      clearTimeout(timer);
      readers.delete(listener);
      document.removeEventListener("visibilitychange", listener);
    };
  }, []);
  return beats;
}

/** The newest events that came by the stream, newest first. */
export const latestEvents = (): Event[] => latest;

export function startLive(refused: (message: string) => void): void {
  stopLive();
  onRefused = refused;
  const mine = (stop = new AbortController());
  link = { ...link, state: "connecting", heard: Date.now(), problem: "" };
  void keepFollowing(mine);
}

export function stopLive(): void {
  stop?.abort();
  stop = null;
  last = -1;
  latest = [];
  reads.clear();
}

async function keepFollowing(mine: AbortController): Promise<void> {
  let pause = RETRY_MS;
  while (stop === mine) {
    try {
      await follow(mine.signal, () => (pause = RETRY_MS));
      if (stop === mine) change({ state: "away", problem: "it closed the stream" });
    } catch (error) {
      if (stop !== mine) return;
      if (error instanceof Problem && error.status === 401) return onRefused(error.message);
      change({ state: "away", problem: describe(error) });
    }
    await new Promise((resolve) => setTimeout(resolve, pause));
    pause = Math.min(pause * 2, RETRY_MAX_MS);
  }
}

async function follow(signal: AbortSignal, connected: () => void): Promise<void> {
  const wasAway = link.state === "away";
  if (last > serverIndex() && serverIndex() > 0) last = -1; // an older copy of the database is served now
  const silence = new AbortController();
  const both = AbortSignal.any([signal, silence.signal]);
  let timer = window.setTimeout(() => silence.abort(), SILENT_MS);
  try {
    const after = last < 0 ? "" : `&after=${last}`;
    const response = await call(`/events?follow=true${after}`, { signal: both, headers: { Accept: "text/event-stream" } });
    connected();
    change({ state: "live", heard: Date.now(), problem: "" });
    if (wasAway) refresh();
    const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      clearTimeout(timer);
      timer = window.setTimeout(() => silence.abort(), SILENT_MS);
      link.heard = Date.now();
      const blocks = (rest + value).split("\n\n");
      rest = blocks.pop() ?? "";
      take(blocks);
    }
  } finally {
    clearTimeout(timer);
  }
}

function take(blocks: string[]): void {
  const found: Event[] = [];
  for (const block of blocks) {
    const start = /^: from (\d+)/.exec(block);
    if (start) last = Math.max(last, Number(start[1]));
    const data = /^data: (.*)$/m.exec(block);
    if (data?.[1]) found.push(JSON.parse(data[1]) as Event);
  }
  if (!found.length) return;
  last = found[found.length - 1]!.index;
  latest = [...found.reverse(), ...latest].slice(0, EVENTS_MAX);
  somethingHappened();
}

export function describe(error: unknown): string {
  if (error instanceof Problem) return error.message;
  return error instanceof TypeError ? "it does not answer" : String(error);
}

// Reads -----------------------------------------------------------------------------------------

export interface Read<T> {
  data: T | null;
  error: string;
  status: number; // of the answer that failed, 0 for none
}

interface Known {
  data: unknown;
  text: string; // as it came
  notBefore: number;
}

// What was read last stays, so that going back shows it at once.
const reads = new Map<string, Known>();
const READS_MAX = 60;

function remember(path: string, known: Known): void {
  reads.delete(path);
  reads.set(path, known);
  if (reads.size > READS_MAX) reads.delete(reads.keys().next().value as string);
}

/** The new value, in which every part that is as before is the very part from before: who compares by identity sees what changed. */
export function kept<T>(before: unknown, now: T): T {
  if (before === now || typeof before !== "object" || typeof now !== "object" || before === null || now === null) return now;
  if (Array.isArray(now)) {
    if (!Array.isArray(before)) return now;
    const byId = new Map(before.map((each, n): [unknown, unknown] => [idOf(each) ?? n, each]));
    const items = now.map((each: unknown, n) => kept(byId.get(idOf(each) ?? n), each));
    return (items.length === before.length && items.every((each, n) => each === before[n]) ? before : items) as T;
  }
  if (Array.isArray(before)) return now;
  const old = before as Record<string, unknown>;
  const found: Record<string, unknown> = {};
  let same = Object.keys(old).length === Object.keys(now).length;
  for (const [key, value] of Object.entries(now)) {
    found[key] = kept(old[key], value);
    same &&= found[key] === old[key] && key in old;
  }
  return (same ? before : found) as T;
}

const idOf = (each: unknown): unknown => (typeof each === "object" && each !== null ? (each as { id?: unknown }).id : undefined);

/** An answer of the API that follows what happens, at most once in `every` milliseconds. A null path reads nothing. */
export function useRead<T>(path: string | null, every = READ_MS): Read<T> {
  const [read, setRead] = useState<Read<T> & { path: string | null }>({ data: null, error: "", status: 0, path: null });
  useEffect(() => {
    if (path === null) return;
    const abort = new AbortController();
    let busy = false;
    let again = false; // something happened while it was being read
    let timer: number | undefined;
    const ask = (): void => {
      timer = undefined;
      busy = true;
      const began = Date.now();
      readText(path, abort.signal)
        .then((text) => {
          const known = reads.get(path);
          const data = known?.text === text ? known.data : kept(known?.data, JSON.parse(text) as T);
          remember(path, { data, text, notBefore: began + every });
          if (!abort.signal.aborted) setRead((old) => (old.path === path && old.data === data && !old.error ? old : { data: data as T, error: "", status: 0, path }));
        })
        .catch((error: unknown) => {
          if (abort.signal.aborted || !hasToken()) return;
          if (error instanceof Problem && error.status === 401) return onRefused(error.message);
          const status = error instanceof Problem ? error.status : 0;
          // While the server is away the shell says so, and what was read stays.
          setRead((old) => ({ data: old.path === path && status !== 404 ? old.data : null, error: describe(error), status, path }));
        })
        .finally(() => {
          busy = false;
          if (again) soon();
        });
    };
    const soon = (opened = false): void => {
      again = busy;
      if (abort.signal.aborted || document.hidden || busy || timer !== undefined) return;
      const known = reads.get(path);
      const wait = opened && every <= READ_MS ? 0 : Math.max(0, (known?.notBefore ?? 0) - Date.now());
      if (opened && wait > 0) setRead({ data: known!.data as T, error: "", status: 0, path });
      timer = window.setTimeout(ask, wait);
    };
    const shown = (): void => soon();
    soon(true);
    readers.add(shown);
    const ages = window.setInterval(shown, AGES_MS);
    document.addEventListener("visibilitychange", shown);
    return () => {
      abort.abort();
      clearTimeout(timer);
      clearInterval(ages);
      document.removeEventListener("visibilitychange", shown);
      readers.delete(shown);
    };
  }, [path]);
  if (path === null) return { data: null, error: "", status: 0 };
  if (read.path === path) return read;
  return { data: (reads.get(path)?.data as T | undefined) ?? null, error: "", status: 0 };
}
