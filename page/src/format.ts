// Amounts, ids, spans and times as people read them.
import { timeOf, type Amounts, type Event, type Request } from "./api";

const NOT_SHOWN = "step_run"; // every step has one, so it tells nothing

export function amounts(given: Amounts | null | undefined): string {
  const parts = Object.entries(given ?? {}).filter(([key, amount]) => key !== NOT_SHOWN && amount !== 0);
  return parts.map(([key, amount]) => `${amount} ${key}`).join(", ") || "nothing";
}

export const keysOf = (given: Amounts): string[] => Object.keys(given).filter((key) => key !== NOT_SHOWN).sort();

export function span(exact: number): string {
  const seconds = Math.max(0, Math.round(exact));
  if (seconds < 120) return `${seconds} s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 172_800) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86_400)} d`;
}

const ID = /[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}/g;

/** The short form: the start of its random last group. The first groups are its time, which ids of one minute share. */
export const shortId = (id: string): string => (id.length === 36 ? id.slice(24, 32) : id);

/** A sentence cut at the ids in it: text and ids in turn. */
export function cutAtIds(text: string): { text: string; id: boolean }[] {
  const parts: { text: string; id: boolean }[] = [];
  let from = 0;
  for (const match of text.matchAll(ID)) {
    if (match.index > from) parts.push({ text: text.slice(from, match.index), id: false });
    parts.push({ text: match[0], id: true });
    from = match.index + match[0].length;
  }
  if (from < text.length) parts.push({ text: text.slice(from), id: false });
  return parts;
}

export function clock(at: Date): string {
  const sameDay = at.toDateString() === new Date().toDateString();
  const time = at.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit" });
  return sameDay ? time : `${at.toLocaleDateString([], { day: "numeric", month: "short" })} ${time}`;
}

export const exact = (at: Date): string => `${at.toLocaleString()} (${at.toISOString()})`;

/** When an instant of a request was: its submission is known on both clocks, so this holds across restarts. */
export function timeIn(request: Request, at: number | null): Date | null {
  if (at === null) return null;
  const created = Date.parse(request.created);
  return Number.isFinite(created) ? new Date(created + (at - request.submitted_at) * 1000) : timeOf(at);
}

export const ageOf = (created: string): string => span((Date.now() - Date.parse(created)) / 1000);

/** What people call a request: its label `name` or `job`, else its command. */
export function nameOf(request: Request): string {
  const labels = (request.labels ?? {}) as Record<string, string>;
  return labels.name ?? labels.job ?? request.command ?? "";
}

const SENTENCES: Record<string, string> = {
  submitted: "submitted",
  granted: "was granted its units",
  started: "started",
  preempting: "is being stopped",
  preempted: "was preempted",
  earmarked: "was promised capacity",
  earmark_died: "lost its promise",
  rejected: "was rejected",
  released: "ended",
  failed: "failed",
  cancelled: "was cancelled",
  lost: "was lost with its machine",
  handed_over: "is run by the agent of its node from now on",
  limit_changed: "has another limit",
  withheld: "has capacity withheld for it",
  saved: "saved a checkpoint",
  goes_on: "goes on",
  resume_elsewhere: "may resume elsewhere",
  over_limit: "is above a limit",
};

export function sentence(event: Event): string {
  const data = event.data as Record<string, unknown>;
  if (event.kind.startsWith("node_")) return `node ${data.node ?? ""} ${event.kind.slice(5).replaceAll("_", " ")}`;
  if (event.kind.startsWith("policy_")) return `policy ${data.policy ?? ""} ${event.kind.slice(7)}`;
  if (event.kind.startsWith("pool_")) return `pool ${data.name ?? ""} ${event.kind.slice(5)}`;
  if (event.kind.startsWith("tenant_")) return `tenant ${data.name ?? data.tenant ?? ""} ${event.kind.slice(7)}`;
  return SENTENCES[event.kind] ?? event.kind.replaceAll("_", " ");
}

// Why somebody was stopped who did nothing wrong, by the rule that allowed it.
const TAKINGS: Record<string, (numbers: Record<string, unknown>) => string> = {
  reclaim: ({ policy }) => `it is inside its reserve, and ${policy ?? "this"} had borrowed`,
  reserve_kept: ({ policy, kept, reserved }) =>
    `it is inside its reserve, and ${policy} still holds ${kept} and reserves ${reserved}`,
  priority: ({ rank, victim_rank }) => `its priority ${rank} is above ${victim_rank}`,
  higher_class: ({ rank, victim_rank }) => `its class ${rank} is above ${victim_rank}`,
  exchange: ({ rank, victim_rank, policy }) => `it takes the place in the share of ${policy}, because its class ${rank} is above ${victim_rank}`,
  own_policy: ({ policy }) => `it is work of ${policy} too, and may not be stopped`,
  starvation: ({ policy }) => `it starved below its fair share, and ${policy} was beyond its own`,
  over_limit: ({ where, bound, key, held }) => `${where} was left with ${bound} ${key}, and ${held} were held`,
  sensitive_claim: ({ claimant, node }) => `${claimant} claimed node ${node} for sensitive work`,
};

/** What an event adds to its sentence: its reason, else its data. */
export function detail(event: Event): string {
  const data = { ...(event.data as Record<string, unknown>) };
  const reason = data.reason;
  if (typeof reason === "object" && reason !== null) {
    const { code, beneficiary, text, ...more } = reason as Record<string, unknown>;
    if (typeof text === "string") return text;
    const whom = beneficiary ? ` for ${String(beneficiary)}` : "";
    const why = TAKINGS[String(code)]?.(more);
    if (why !== undefined) return `${whom.trim() || "because"}${whom ? ": " : " "}${why}`;
    return `${String(code).replaceAll("_", " ")}${whom}${facts(more)}`;
  }
  for (const said of ["node", "policy", "name", "attempt"]) delete data[said];
  return facts(data).replace(/^: /, "");
}

function facts(data: Record<string, unknown>): string {
  const parts = Object.entries(data)
    .filter(([, value]) => value !== "" && value !== null)
    .map(([key, value]) => `${key.replaceAll("_", " ")} ${plain(value)}`);
  return parts.length ? `: ${parts.join(", ")}` : "";
}

export function plain(value: unknown): string {
  if (typeof value !== "object" || value === null) return String(value);
  if (Array.isArray(value)) return value.map(plain).join(", ") || "none";
  const parts = Object.entries(value).map(([key, inner]) => `${key} ${plain(inner)}`);
  return parts.join(", ") || "none";
}
