// Calls of the documented API with the token of this tab. There is no other source of data.
import type { components } from "../generated/api";

type Schemas = components["schemas"];
export type Pool = Schemas["PoolOut"];
export type Policy = Schemas["PolicyOut"];
export type Request = Schemas["RequestOut"];
export type Node = Schemas["NodeOut"];
export type Event = Schemas["EventOut"];
export type Whoami = Schemas["WhoamiOut"];
export type Share = Schemas["ShareOut"];
export type Shares = Schemas["SharesOut"];
export type Usage = Schemas["UsageOut"];
export type Used = Schemas["UsedOut"];
export type PoolHistory = Schemas["PoolHistoryOut"];
export type Status = Schemas["StatusOut"];
export type PolicyStatus = Schemas["PolicyStatusOut"];
export type Queue = Schemas["QueueOut"];
export type Holders = Schemas["HoldersOut"];
export type Placed = Schemas["PlaceOut"];
export type Reason = Schemas["ReasonOut"];
export type Allocation = Schemas["AllocationOut"];
export type Amounts = Record<string, number>;
export interface Page<T> {
  items: T[];
  next?: string | null;
}

export const API = "/api/v1";
const KEY = "cede-token";

// The token lives in memory, and in the tab's own storage only if the user wants that: no cookie,
// so no other page can make this browser call the server with it.
let token: string | null = sessionStorage.getItem(KEY);
// Milliseconds between this browser's clock and the server's, by its last answer.
let offset: number | null = null;
let index = 0;

export class Problem extends Error {
  constructor(
    message: string,
    readonly status: number,
    readonly code: string,
    readonly retryAfter: number,
  ) {
    super(message);
  }
}

export const hasToken = (): boolean => token !== null;
export const isKept = (): boolean => sessionStorage.getItem(KEY) !== null;
export const serverIndex = (): number => index;

export function useToken(given: string, keep: boolean): void {
  token = given;
  if (keep) sessionStorage.setItem(KEY, given);
}

export function keepToken(): void {
  if (token !== null) sessionStorage.setItem(KEY, token);
}

export function forgetToken(): void {
  token = null;
  sessionStorage.removeItem(KEY);
}

/** Takes the code of a link out of the address: `cede up` and `cede page` print it after the #, which browsers send nowhere. */
export function takeCodeFromAddress(): string | null {
  const match = /^#link=([\w-]+)$/.exec(location.hash);
  if (!match?.[1]) return null;
  history.replaceState(null, "", location.pathname + location.search);
  return match[1];
}

/** Exchanges a code, which is worth something once and for minutes, for the token that it stands for. */
export async function openLink(code: string): Promise<void> {
  forgetToken();
  const opened = await send<Schemas["OpenedOut"]>("POST", "/links/open", { code });
  if (opened) useToken(opened.token, false);
}

/** The time of day of an instant on the server's clock; null before the first answer. */
export function timeOf(at: number): Date | null {
  return offset === null ? null : new Date(at * 1000 + offset);
}

function problemOf(response: Response, body: unknown): Problem {
  const given = (typeof body === "object" && body !== null ? body : {}) as Record<string, unknown>;
  const code = String(given.type ?? "").replace("urn:cede:problem:", "");
  const text = typeof given.detail === "string" ? given.detail : `the server answered ${response.status}`;
  return new Problem(text, response.status, code, Number(response.headers.get("Retry-After") ?? 0));
}

export async function call(path: string, options: RequestInit = {}): Promise<Response> {
  const headers = new Headers(options.headers);
  if (token !== null) headers.set("Authorization", `Bearer ${token}`);
  const response = await fetch(API + path, { ...options, headers, cache: "no-store", credentials: "omit" });
  const now = Number(response.headers.get("Cede-Now"));
  if (now > 0) offset = Date.now() - now * 1000;
  index = Math.max(index, Number(response.headers.get("Cede-Index") ?? 0));
  if (!response.ok) throw problemOf(response, await response.json().catch(() => null));
  return response;
}

export async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  return (await (await call(path, { signal })).json()) as T;
}

/** The same as it came, so that an answer that is as before need not be parsed. */
export async function readText(path: string, signal?: AbortSignal): Promise<string> {
  return (await call(path, { signal })).text();
}

export async function send<T>(method: string, path: string, body?: unknown): Promise<T | null> {
  const response = await call(path, {
    method,
    headers: { "Content-Type": "application/json", "Idempotency-Key": crypto.randomUUID?.() ?? String(Math.random()) },
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  return response.status === 204 ? null : ((await response.json()) as T);
}

export function query(parts: Record<string, string | number | boolean | string[] | null | undefined>): string {
  const found = new URLSearchParams();
  for (const [name, value] of Object.entries(parts)) {
    if (value === null || value === undefined || value === "") continue;
    for (const each of Array.isArray(value) ? value : [value]) found.append(name, String(each));
  }
  const text = found.toString();
  return text ? `?${text}` : "";
}
