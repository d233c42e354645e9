// Teams of a pool as numbers, those of `cede status`; a policy above others has the sums of those below it.
import type { Amounts, Policy, PolicyStatus, Share } from "./api";

export interface TeamRow {
  id: string;
  name: string; // of the policy
  component: string; // whose it is: what requests name
  depth: number;
  priority: number;
  reserved: Amounts;
  limit: Amounts;
  used: Amounts;
  borrowed: Amounts;
  lent: Amounts;
  waiting: number; // requests
  oldest: number | null; // seconds that the oldest of them waits
  fairShare: Record<string, number>;
  starvingSince: number | null;
}

/** Parents before those below them; a parent that the token may not see is left out. */
export function teamRows(found: PolicyStatus[], policies: Policy[], shares: Share[] = []): TeamRow[] {
  const declared = new Map(policies.map((policy) => [policy.id, policy]));
  const share = new Map(shares.map((each) => [each.id, each]));
  const seen = new Set(found.map((each) => each.id));
  const rows: TeamRow[] = [];
  const add = (parent: string | null, depth: number): TeamRow[] => {
    const beside = found.filter((each) => (each.parent_id !== null && seen.has(each.parent_id) ? each.parent_id : null) === parent);
    return beside.map((each) => {
      const row: TeamRow = {
        id: each.id,
        name: declared.get(each.id)?.name ?? each.component,
        component: each.component,
        depth,
        priority: Number(declared.get(each.id)?.priority ?? 0),
        reserved: each.reserved,
        limit: each.limit ?? {},
        used: { ...each.used },
        borrowed: { ...each.borrowed },
        lent: { ...each.lent },
        waiting: each.waiting,
        oldest: each.oldest_wait,
        fairShare: share.get(each.id)?.fair_share ?? {},
        starvingSince: share.get(each.id)?.starving_since ?? null,
      };
      rows.push(row);
      for (const below of add(each.id, depth + 1)) {
        for (const part of ["used", "borrowed", "lent"] as const) for (const [key, amount] of Object.entries(below[part])) row[part][key] = (row[part][key] ?? 0) + amount;
        row.waiting += below.waiting;
        if (below.oldest !== null) row.oldest = Math.max(row.oldest ?? 0, below.oldest);
      }
      return row;
    });
  };
  add(null, 0);
  return rows;
}
