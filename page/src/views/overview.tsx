// Overview: every pool with its teams against what they reserved, and what changed last.
import type { JSX } from "preact";
import { query, timeOf, type Event, type Page, type Policy, type PolicyStatus, type Pool, type Status } from "../api";
import { sentence, detail, keysOf, span } from "../format";
import { latestEvents, useRead } from "../live";
import { PoolChart, SpanSelect, spanOf } from "../history";
import { address, type Route } from "../route";
import { teamRows, type TeamRow } from "../teams";
import { Bar, Capacity, Command, Id, Sentence, Shown, Team, Time } from "../ui";
import { useLatest } from "./events";

const CHANGES_SHOWN = 15;
const HOUR = 3_600_000;
const SPAN = "86400";
const DECLARED_MS = 5_000; // what people declare changes seldom

export function Overview({ route }: { route: Route }): JSX.Element {
  const pools = useRead<Page<Pool>>(`/pools${query({ limit: 500 })}`);
  const policies = useRead<Page<Policy>>(`/policies${query({ limit: 500 })}`, DECLARED_MS);
  const status = useRead<Status>("/status");
  const teams = new Map((status.data?.pools ?? []).map((pool) => [pool.id, pool.policies]));
  return (
    <>
      <h1>Overview</h1>
      <form class="filters" onSubmit={(event) => event.preventDefault()}><SpanSelect route={route} usual={SPAN} /></form>
      <Shown read={pools} what="pools">
        {(found) =>
          found.items.length ? (
            <div class="cards">
              {found.items.map((pool) => (
                <PoolCard key={pool.id} pool={pool} span={spanOf(route, SPAN)} teams={teams.get(pool.id) ?? []} policies={(policies.data?.items ?? []).filter((policy) => policy.pool_id === pool.id)} />
              ))}
            </div>
          ) : (
            <p class="empty">
              There are no pools yet. Make one: <Command text="cede pool create gpus --capacity gpu=8" />
            </p>
          )
        }
      </Shown>
      <Changes />
    </>
  );
}

function PoolCard({ pool, policies, teams, span: shown }: { pool: Pool; policies: Policy[]; teams: PolicyStatus[]; span: string }): JSX.Element {
  const rows = teamRows(teams, policies);
  return (
    <section class="card" aria-label={`Pool ${pool.name}`} data-pool={pool.name}>
      <h2><a href={address("pool", pool.name)}>{pool.name}</a></h2>
      {pool.description && <p class="soft">{pool.description}</p>}
      <p class="numbers">
        <a href={address("pool", pool.name, { tab: "holders" })}><b>{pool.active}</b> active</a>
        <a href={address("pool", pool.name, { tab: "queue" })}><b>{pool.queued}</b> waiting</a>
      </p>
      <Capacity capacity={pool.capacity} used={pool.occupied} promised={pool.earmarked} />
      <PoolChart pool={pool.name} span={shown} />
      {rows.length > 0 && (
        <>
          <h3>Teams</h3>
          <ul class="teams">{rows.map((row) => <TeamBar key={row.id} row={row} pool={pool} />)}</ul>
        </>
      )}
    </section>
  );
}

export function TeamBar({ row, pool }: { row: TeamRow; pool: Pool }): JSX.Element {
  const keys = keysOf({ ...row.reserved, ...row.used, ...row.limit });
  return (
    <li class={`depth-${Math.min(row.depth, 4)}`}>
      <a href={address("pool", pool.name, { tab: "queue", team: row.component })}><Team name={row.name} /></a>
      {row.waiting > 0 && <span class="soft"> {row.waiting} waiting, the oldest for {span(row.oldest ?? 0)}</span>}
      {keys.map((key) => {
        const [reserved, used, borrowed, lent] = [row.reserved, row.used, row.borrowed, row.lent].map((each) => each[key] ?? 0) as [number, number, number, number];
        const limit = row.limit[key];
        const whole = Math.max(pool.capacity[key] ?? 0, used, limit ?? 0);
        return (
          <div class="teambar" key={key}>
            <Bar
              label={`${row.name} ${key}`}
              whole={whole}
              parts={[
                { amount: used - borrowed, kind: "used", says: `${used - borrowed} used in its share` },
                { amount: borrowed, kind: "borrowed", says: `${borrowed} borrowed` },
                { amount: lent, kind: "lent", says: `${lent} lent` },
              ]}
              marks={[
                { at: reserved, kind: "reserved", says: `${reserved} reserved` },
                ...(limit === undefined ? [] : [{ at: limit, kind: "limit", says: `limit ${limit}` }]),
              ]}
            />
            <span class="figure">
              {used} of {reserved} {key}
              {borrowed > 0 && <>, <b>{borrowed} borrowed</b></>}
              {lent > 0 && <>, {lent} lent</>}
            </span>
          </div>
        );
      })}
    </li>
  );
}

function Changes(): JSX.Element {
  const read = useLatest();
  const since = Date.now() - HOUR;
  const known = new Map<number, Event>();
  for (const event of [...(read ?? []), ...latestEvents()]) known.set(event.index, event);
  const recent = [...known.values()].filter((event) => (timeOf(event.at)?.getTime() ?? 0) >= since).sort((a, b) => b.index - a.index);
  return (
    <section aria-labelledby="changes-title">
      <h2 id="changes-title">In the last hour</h2>
      {recent.length === 0 ? (
        <p class="empty">Nothing has changed.</p>
      ) : (
        <ol class="story">
          {recent.slice(0, CHANGES_SHOWN).map((event) => (
            <li key={event.index} class={`event kind-${event.kind}`}>
              <Time at={timeOf(event.at)} />
              <span>
                {event.request_id && <><Id id={event.request_id} /> </>}
                {sentence(event)} <span class="soft"><Sentence text={detail(event)} /></span>
              </span>
            </li>
          ))}
        </ol>
      )}
      <p><a href={address("events")}>All events</a></p>
    </section>
  );
}
