// What keeps the page current: one stream of events from the last index seen, and reads that follow it.
//
// An event only says that something happened: what a view shows is read again, at most four times a second. After an
// absence the stream goes on from the last index, so nothing that happened meanwhile is missed.
import { useEffect, useRef, useState } from "preact/hooks";
import { call, get, hasToken, Problem, serverIndex, type Event } from "./api";

export type LinkState = "connecting" | "live" | "away";

const BEAT_MS = 250; // a storm of events is one read in so many milliseconds
const AGES_MS = 15_000; // ages grow and silent nodes make no events: views are read again even if nothing happens
const RETRY_MS = 1_000;
const RETRY_MAX_MS = 5_000;
const EVENTS_MAX = 500;
const SILENT_MS = 40_000; // the server says something at least every 15 s

interface Link {
  state: LinkState;
  heard: number; // when the server last answered
  problem: string;
  version: number; // increases with everything that views should read again for
}

let link: Link = { state: "connecting", heard: Date.now(), problem: "", version: 0 };
let latest: Event[] = [];
let last = -1;
let stop: AbortController | null = null;
const listeners = new Set<() => void>();
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
    change({ version: link.version + 1 });
  }, BEAT_MS);
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

/** The newest events that came by the stream, newest first. */
export const latestEvents = (): Event[] => latest;

export function refresh(): void {
  change({ version: link.version + 1 });
}

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
    change({ state: "live", heard: Date.now(), problem: "", version: link.version + (wasAway ? 1 : 0) });
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
  notBefore: number;
}

// What was read last stays, so that going back shows it at once.
const reads = new Map<string, Known>();
const READS_MAX = 60;

function remember(path: string, data: unknown, every: number): void {
  reads.delete(path);
  reads.set(path, { data, notBefore: Date.now() + every });
  if (reads.size > READS_MAX) reads.delete(reads.keys().next().value as string);
}

/** An answer of the API that follows what happens, at most once in `every` milliseconds. A null path reads nothing. */
export function useRead<T>(path: string | null, every = 0): Read<T> {
  const [read, setRead] = useState<Read<T> & { path: string | null }>({ data: null, error: "", status: 0, path: null });
  const { version } = useLink();
  const readAgain = useRef<() => void>(() => {});
  useEffect(() => {
    if (path === null) return;
    const abort = new AbortController();
    let busy = false;
    let again = false; // something happened while it was being read
    let timer: number | undefined;
    const ask = (): void => {
      timer = undefined;
      busy = true;
      get<T>(path, abort.signal)
        .then((data) => {
          remember(path, data, every);
          if (!abort.signal.aborted) setRead({ data, error: "", status: 0, path });
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
      const wait = opened && every === 0 ? 0 : Math.max(0, (known?.notBefore ?? 0) - Date.now());
      if (opened && wait > 0) setRead({ data: known!.data as T, error: "", status: 0, path });
      timer = window.setTimeout(ask, wait);
    };
    const shown = (): void => soon();
    readAgain.current = shown;
    soon(true);
    const ages = window.setInterval(shown, AGES_MS);
    document.addEventListener("visibilitychange", shown);
    return () => {
      abort.abort();
      clearTimeout(timer);
      clearInterval(ages);
      document.removeEventListener("visibilitychange", shown);
      readAgain.current = () => {};
    };
  }, [path]);
  useEffect(() => readAgain.current(), [version]);
  if (path === null) return { data: null, error: "", status: 0 };
  if (read.path === path) return read;
  return { data: (reads.get(path)?.data as T | undefined) ?? null, error: "", status: 0 };
}
