// What if: the server's snapshot with one change, planned by the engine. Nothing is done.
import { get, send, type Amounts } from "./api";

export interface Decision {
  do: string;
  request?: string;
  pool?: string;
  victims?: string[];
  for?: string | null;
  beneficiary?: string | null;
  reason?: { code: string } | null;
  [more: string]: unknown;
}
export interface Plan {
  passes: { now: number; decisions: Decision[] }[];
  at_rest: boolean;
  loop: boolean;
}
interface Entry {
  id?: string;
  request?: string;
  name?: string;
  pool?: string;
  component?: string;
  component_type?: string;
  reserved?: Amounts;
  limit?: Amounts;
  [more: string]: unknown;
}
export interface Snapshot {
  now: number;
  pools: Entry[];
  policies: Entry[];
  nodes?: Entry[];
  running?: Entry[];
  requests?: Entry[];
  claims?: { nodes: string[]; for: string }[];
}

export type Change =
  | { kind: "cancel"; id: string }
  | { kind: "drain"; node: string }
  | { kind: "undrain"; node: string }
  | { kind: "claim"; node: string; whom: string }
  | { kind: "unclaim"; node: string }
  | { kind: "pool"; pool: string; capacity?: Amounts; description?: string; cost?: Amounts }
  | { kind: "submit"; team: string; type?: string; pool: string | null; amounts: Amounts } // with a type of subject, as one that is known
  | { kind: "policy"; team: string; pool: string | null; reserved?: Amounts; limit?: Amounts; priority?: number };

export class Unclear extends Error {}

const NUMBER = "(\\d+)\\s*((?!for\\b)[a-z_]\\w*)?";
const WHOM = "(?:for\\s+)?(\\S+?)(?:\\s+in\\s+(\\S+))?$";

/** Reads "reserve 8 for blue", "limit 4 gpu for red in pool", "submit 16 GPUs for red", "drain north", "cancel ID". */
export function understand(text: string): Change {
  const said = text.trim();
  const policy = new RegExp(`^(reserve|limit)\\s+${NUMBER}\\s+${WHOM}`, "i").exec(said);
  if (policy) {
    const amounts = { [keyOf(policy[3])]: Number(policy[2]) };
    const whose = { kind: "policy" as const, team: policy[4]!, pool: policy[5] ?? null };
    return policy[1]!.toLowerCase() === "reserve" ? { ...whose, reserved: amounts } : { ...whose, limit: amounts };
  }
  const submit = new RegExp(`^submit\\s+${NUMBER}\\s+${WHOM}`, "i").exec(said);
  if (submit) return { kind: "submit", team: submit[3]!, pool: submit[4] ?? null, amounts: { [keyOf(submit[2])]: Number(submit[1]) } };
  const simple = /^(drain|undrain|cancel)\s+(\S+)$/i.exec(said);
  if (simple) {
    const kind = simple[1]!.toLowerCase() as "drain" | "undrain" | "cancel";
    return kind === "cancel" ? { kind, id: simple[2]! } : { kind, node: simple[2]! };
  }
  throw new Unclear('Write one of: "reserve 8 for TEAM", "limit 4 gpu for TEAM in POOL", "submit 16 GPUs for TEAM", "drain NODE", "undrain NODE", "cancel ID".');
}

// "16 GPUs for red" says the key as people do.
const keyOf = (said: string | undefined): string => (said === undefined || /^gpus?$/i.test(said) ? "gpu" : said);

/** The command that does the same. */
export function commandOf(change: Change): string {
  const map = (given: Amounts): string => Object.entries(given).map(([key, amount]) => `${key}=${amount}`).join(",") || "{}";
  switch (change.kind) {
    case "cancel":
      return `cede request cancel ${change.id}`;
    case "drain":
    case "undrain":
      return `cede node ${change.kind} ${change.node}`;
    case "claim":
      return `cede node claim ${change.node} --for ${quoted(change.whom)}`;
    case "unclaim":
      return `cede node unclaim ${change.node}`;
    case "pool": {
      const parts = [`cede pool update ${change.pool}`];
      if (change.capacity) parts.push(`--capacity ${map(change.capacity)}`);
      if (change.description !== undefined) parts.push(`--description ${quoted(change.description)}`);
      if (change.cost) parts.push(`--settings ${quoted(JSON.stringify({ cost_per_hour: change.cost }))}`);
      return parts.join(" ");
    }
    case "submit":
      return `cede submit ${Object.entries(change.amounts).map(([key, amount]) => (key === "gpu" ? `--gpu ${amount}` : `--resources ${key}=${amount}`)).join(" ")} --component ${change.team} -- …`;
    case "policy": {
      const parts = [`cede policy update ${change.pool ?? "POOL"} ${change.team} --component-type team`];
      if (change.priority !== undefined) parts.push(`--priority ${change.priority}`);
      if (change.reserved) parts.push(`--reserved ${map(change.reserved)}`);
      if (change.limit) parts.push(`--limit ${map(change.limit)}`);
      return parts.join(" ");
    }
  }
}

/** A word that a shell takes as it is written. */
const quoted = (text: string): string => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);

export const NEW = "the new request";

/** The snapshot after the change; says what it does not find. */
export function apply(snapshot: Snapshot, change: Change): Snapshot {
  const next = structuredClone(snapshot);
  switch (change.kind) {
    case "cancel": {
      const is = (entry: Entry): boolean => [entry.id, entry.request].some((id) => id !== undefined && (id === change.id || id.endsWith(change.id) || id.startsWith(change.id)));
      const before = (next.running?.length ?? 0) + (next.requests?.length ?? 0);
      next.running = next.running?.filter((entry) => !is(entry));
      next.requests = next.requests?.filter((entry) => !is(entry));
      if (before === (next.running?.length ?? 0) + (next.requests?.length ?? 0)) throw new Unclear(`No request ${change.id} waits or runs.`);
      return next;
    }
    case "drain":
    case "undrain": {
      const node = next.nodes?.find((entry) => entry.name === change.node);
      if (!node) throw new Unclear(`There is no node ${change.node}.`);
      node.out = change.kind === "drain" ? "drain" : "no";
      node.state = change.kind === "drain" ? "draining" : "ready";
      return next;
    }
    case "claim":
    case "unclaim": {
      const node = next.nodes?.find((entry) => entry.name === change.node);
      if (!node) throw new Unclear(`There is no node ${change.node}.`);
      if (change.kind === "claim") next.claims = [...(next.claims ?? []), { nodes: [change.node], for: change.whom }];
      else delete node.claimed_by;
      return next;
    }
    case "pool": {
      const pool = next.pools.find((entry) => entry.name === change.pool);
      if (!pool) throw new Unclear(`There is no pool ${change.pool}.`);
      if (change.capacity) pool.capacity = Object.fromEntries(Object.entries({ ...(pool.capacity as Amounts), ...change.capacity }).filter(([, amount]) => amount > 0));
      return next;
    }
    case "submit": {
      const whose = change.type ? { component: change.team, component_type: change.type } : policyOf(next, change.team, change.pool);
      next.requests = [...(next.requests ?? []), { id: NEW, component: whose.component, component_type: whose.component_type, resources: change.amounts, submitted_at: next.now, ...(change.pool ? { pool: change.pool } : {}) }];
      return next;
    }
    case "policy": {
      const policy = policyOf(next, change.team, change.pool);
      if (change.reserved) policy.reserved = { ...(policy.reserved ?? {}), ...change.reserved };
      if (change.limit) policy.limit = { ...(policy.limit ?? {}), ...change.limit };
      if (change.priority !== undefined) policy.priority = change.priority;
      return next;
    }
  }
}

function policyOf(snapshot: Snapshot, team: string, pool: string | null): Entry {
  const found = snapshot.policies.filter((entry) => (entry.component === team || entry.name === team) && (pool === null || entry.pool === pool));
  if (found.length === 0) throw new Unclear(`Team ${team} has no policy${pool ? ` in pool ${pool}` : ""}.`);
  if (found.length > 1) throw new Unclear(`Team ${team} has policies in ${found.map((entry) => entry.pool).join(" and ")}: add "in POOL".`);
  return found[0]!;
}

export interface Effect {
  starts: Decision[];
  stops: Decision[];
  rejected: Decision[];
  waits: Decision[]; // the new request, if it does not start
}

async function decisionsOf(snapshot: Snapshot): Promise<Decision[]> {
  const found = (await send<Plan>("POST", "/plan?until_rest=true", snapshot)) as Plan;
  return found.passes.flatMap((pass) => pass.decisions);
}

const told = (decision: Decision): string => JSON.stringify([decision.do, decision.request, decision.pool, decision.victims]);

/** What the engine would do because of the change, until nothing moves any more: what it does anyway is left out. */
export async function plan(change: Change): Promise<Effect> {
  const now = await get<Snapshot>("/snapshot");
  const after = await decisionsOf(apply(now, change));
  const anyway = new Set((await decisionsOf(now)).map(told));
  const decisions = after.filter((decision) => !anyway.has(told(decision)));
  return {
    starts: decisions.filter((each) => each.do === "grant"),
    stops: decisions.filter((each) => each.do === "preempt"),
    rejected: decisions.filter((each) => each.do === "reject"),
    waits: decisions.some((each) => each.do === "grant" && each.request === NEW) ? [] : after.filter((each) => each.do === "wait" && each.request === NEW).slice(-1),
  };
}
