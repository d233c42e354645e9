// Teams of a pool as numbers: reserved, used, borrowed, lent, waiting; from its policies and shares.
import type { Amounts, Policy, Share } from "./api";

export interface TeamRow {
  id: string;
  name: string;
  parent: string | null;
  depth: number;
  priority: number;
  reserved: Amounts;
  limit: Amounts;
  used: Amounts;
  borrowed: Amounts;
  lent: Amounts;
  waiting: Amounts;
  fairShare: Record<string, number>;
  starving: string;
  starvingSince: number | null;
}

export function teamRows(shares: Share[], policies: Policy[], capacity: Amounts): TeamRow[] {
  const declared = new Map(policies.map((policy) => [policy.id, policy]));
  const rows = shares
    .filter((share) => share.kind === "policy")
    .map((share): TeamRow => ({
      id: share.id,
      name: share.name,
      parent: share.parent,
      depth: share.depth,
      priority: declared.get(share.id)?.priority ?? 0,
      reserved: share.guarantee,
      limit: share.limit,
      used: share.usage,
      borrowed: above(share.usage, share.guarantee),
      lent: {},
      waiting: above(share.demand, share.usage),
      fairShare: share.fair_share,
      starving: share.starvation,
      starvingSince: share.starving_since,
    }));
  for (const parent of [null, ...rows.map((row) => row.name)]) {
    lend(rows.filter((row) => row.parent === parent), parent === null ? capacity : (rows.find((row) => row.name === parent)?.reserved ?? {}));
  }
  return rows;
}

function above(some: Amounts, other: Amounts): Amounts {
  const found: Amounts = {};
  for (const [key, amount] of Object.entries(some)) if (amount > (other[key] ?? 0)) found[key] = amount - (other[key] ?? 0);
  return found;
}

/** Teams beside each other lend what others borrow beyond what nobody has reserved, in proportion to what they leave unused. */
function lend(beside: TeamRow[], whole: Amounts): void {
  for (const key of new Set(beside.flatMap((row) => Object.keys(row.reserved)))) {
    const sum = (pick: (row: TeamRow) => number): number => beside.reduce((total, row) => total + pick(row), 0);
    const unused = (row: TeamRow): number => Math.max(0, (row.reserved[key] ?? 0) - (row.used[key] ?? 0));
    const nobodys = Math.max(0, (whole[key] ?? 0) - sum((row) => row.reserved[key] ?? 0));
    const all = sum(unused);
    const lent = Math.min(all, Math.max(0, sum((row) => row.borrowed[key] ?? 0) - nobodys));
    if (lent <= 0) continue;
    for (const row of beside) {
      const part = Math.round((lent * unused(row)) / all);
      if (part > 0) row.lent[key] = part;
    }
  }
}
