// Settings: pools and policies as they were declared.
import type { JSX } from "preact";
import { query, type Page, type Policy, type Pool, type Whoami } from "../api";
import { Act } from "../actions";
import { amounts, plain } from "../format";
import { useRead } from "../live";
import { address } from "../route";
import { Command, Facts, Shown, Table, Team } from "../ui";

export function Settings({ me }: { me: Whoami }): JSX.Element {
  const pools = useRead<Page<Pool>>(`/pools${query({ limit: 500 })}`);
  const policies = useRead<Page<Policy>>(`/policies${query({ limit: 500 })}`);
  return (
    <>
      <h1>Settings</h1>
      <Shown read={pools} what="pools">
        {(found) =>
          found.items.length === 0 ? (
            <p class="empty">There are no pools yet. Make one: <Command text="cede pool create gpus --capacity gpu=8" /></p>
          ) : (
            <>{found.items.map((pool) => <Declared key={pool.id} pool={pool} me={me} policies={(policies.data?.items ?? []).filter((policy) => policy.pool_id === pool.id)} />)}</>
          )
        }
      </Shown>
    </>
  );
}

function Declared({ pool, policies, me }: { pool: Pool; policies: Policy[]; me: Whoami }): JSX.Element {
  const names = new Map(policies.map((policy) => [policy.id, policy.name]));
  const may = me.role === "operator" || me.role === "admin";
  return (
    <section class="card" aria-label={`Pool ${pool.name}`} data-pool={pool.name}>
      <h2><a href={address("pool", pool.name)}>{pool.name}</a></h2>
      <Facts
        rows={[
          ["Description", pool.description],
          ["Preset", pool.preset],
          ["Capacity", amounts(pool.capacity)],
          ["Nodes", pool.nodes === null ? "" : `those with ${plain(pool.nodes)}`],
        ]}
      />
      <details>
        <summary>All settings in force</summary>
        <Facts rows={Object.entries(pool.settings).map(([key, value]) => [key, plain(value)])} />
      </details>
      {may && <p class="actions"><Act me={me} title="Edit pool" what={{ kind: "pool", pool }} /></p>}
      <h3>Policies</h3>
      <Table<Policy>
        label={`Policies of pool ${pool.name}`}
        rows={policies}
        keyOf={(policy) => policy.id}
        empty={<>No team may use this pool yet: <Command text={`cede policy attach ${pool.name} TEAM --component-type team --reserved gpu=4`} /></>}
        columns={[
          { title: "Policy", show: (policy) => <Team name={policy.name} /> },
          { title: "Subject", show: (policy) => `${policy.component_type}:${policy.component}` },
          { title: "Below", show: (policy) => (policy.parent_id ? (names.get(policy.parent_id) ?? "another team") : "") },
          { title: "Priority", show: (policy) => policy.priority as number, numeric: true },
          { title: "Reserved", show: (policy) => shown(policy.reserved), numeric: true },
          { title: "Limit", show: (policy) => shown(policy.limit), numeric: true },
          { title: "Weight", show: (policy) => policy.weight as number, numeric: true },
          { title: "Own settings", show: (policy) => (Object.keys(policy.settings).length ? plain(policy.settings) : "") },
          ...(may ? [{ title: "Change", show: (policy: Policy) => <Act me={me} title="Edit" what={{ kind: "policy", policy }} /> }] : []),
        ]}
      />
    </section>
  );
}

const shown = (given: unknown): string => (given && Object.keys(given).length ? amounts(given as Record<string, number>) : "–");
