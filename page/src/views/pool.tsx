// One pool: its teams, its queue, its holders and its nodes.
import type { JSX } from "preact";
import { query, timeOf, type Node, type Page, type Policy, type Pool, type Placed, type Holders as HolderPage, type Queue as QueuePart, type Request, type Shares, type Status as Statuses } from "../api";
import { amounts, keysOf, nameOf, shortId, span } from "../format";
import { PoolChart, SpanSelect, spanOf } from "../history";
import { useRead } from "../live";
import { address, changed, go, type Route } from "../route";
import { teamRows, type TeamRow } from "../teams";
import { Age, badgeOf, Capacity, Command, Filter, Id, Select, Shown, Status, Table, Team, Time, Why } from "../ui";

const ROWS = 50;
const DECLARED_MS = 5_000; // what people declare changes seldom
const TRIED_MS = 60_000; // shares that decide nothing are computed for whoever looks, which costs
const TABS: [string, string][] = [["teams", "Teams"], ["queue", "Queue"], ["holders", "Holders"], ["nodes", "Nodes"], ["history", "History"]];

export function PoolView({ route }: { route: Route }): JSX.Element {
  const name = route.name;
  const tab = route.params.get("tab") ?? "teams";
  const pool = useRead<Pool>(`/pools/${encodeURIComponent(name)}`);
  return (
    <Shown read={pool} what="pool">
      {(found) => (
        <>
          <h1>Pool {found.name}</h1>
          {found.description && <p class="soft">{found.description}</p>}
          <Capacity capacity={found.capacity} used={found.occupied} promised={found.earmarked} />
          <nav class="tabs" aria-label="Parts of this pool">
            {TABS.filter(([key]) => key !== "nodes" || found.nodes !== null).map(([key, title]) => (
              <a key={key} href={address("pool", name, { tab: key })} aria-current={tab === key ? "page" : undefined}>
                {title}
                {key === "queue" && ` (${found.queued})`}
                {key === "holders" && ` (${found.active})`}
              </a>
            ))}
          </nav>
          {tab === "teams" && <Teams pool={found} />}
          {tab === "queue" && <Queue pool={found} route={route} />}
          {tab === "holders" && <Holders pool={found} route={route} />}
          {tab === "nodes" && <Nodes pool={found} route={route} />}
          {tab === "history" && <Past pool={found} route={route} />}
        </>
      )}
    </Shown>
  );
}

function Past({ pool, route }: { pool: Pool; route: Route }): JSX.Element {
  return (
    <>
      <form class="filters" onSubmit={(event) => event.preventDefault()}><SpanSelect route={route} usual="86400" /></form>
      <PoolChart pool={pool.name} span={spanOf(route, "86400")} all />
    </>
  );
}

function usePolicies(pool: Pool): Policy[] {
  const found = useRead<Page<Policy>>(`/policies${query({ pool: pool.name, limit: 500 })}`, DECLARED_MS);
  return found.data?.items ?? [];
}

function Teams({ pool }: { pool: Pool }): JSX.Element {
  const policies = usePolicies(pool);
  const every = pool.settings.share === "fair_share" ? DECLARED_MS : TRIED_MS;
  const shares = useRead<Shares>(`/pools/${encodeURIComponent(pool.name)}/shares?requests=false`, every);
  const status = useRead<Statuses>("/status");
  return (
    <Shown read={status} what="teams">
      {(found) => (
        <Table<TeamRow>
          label={`Teams of pool ${pool.name}`}
          rows={teamRows(found.pools.find((each) => each.id === pool.id)?.policies ?? [], policies, shares.data?.elements)}
          keyOf={(row) => row.name}
          opens={(row) => address("pool", pool.name, { tab: "queue", team: row.component })}
          empty={<>No team may use this pool yet: <Command text={`cede policy attach ${pool.name} TEAM --component-type team --reserved gpu=4`} /></>}
          columns={[
            { title: "Team", show: (row) => <a class={`depth-${Math.min(row.depth, 4)}`} href={address("pool", pool.name, { tab: "queue", team: row.component })}><Team name={row.name} /></a> },
            { title: "Priority", show: (row) => row.priority, numeric: true },
            { title: "Reserved", show: (row) => some(row.reserved), numeric: true },
            { title: "Fair share", show: (row) => fairShare(row, pool), numeric: true },
            { title: "Used", show: (row) => some(row.used), numeric: true },
            { title: "Borrowed", show: (row) => some(row.borrowed), numeric: true },
            { title: "Lent", show: (row) => some(row.lent), numeric: true },
            { title: "Waiting", show: (row) => row.waiting || "–", numeric: true },
            { title: "Oldest wait", show: (row) => (row.oldest === null ? "" : span(row.oldest)), numeric: true },
            { title: "Limit", show: (row) => some(row.limit), numeric: true },
            { title: "Starving since", show: (row) => (row.starvingSince === null ? "" : <Time at={timeOf(row.starvingSince)} />) },
          ]}
        />
      )}
    </Shown>
  );
}

const some = (given: Record<string, number>): string => (keysOf(given).some((key) => given[key]) ? amounts(given) : "–");

function fairShare(row: TeamRow, pool: Pool): string {
  const found: Record<string, number> = {};
  for (const [key, part] of Object.entries(row.fairShare)) found[key] = Math.round(part * (pool.capacity[key] ?? 0) * 10) / 10;
  return some(found);
}

function TeamFilter({ pool, route }: { pool: Pool; route: Route }): JSX.Element {
  const policies = usePolicies(pool);
  const team = route.params.get("team") ?? "";
  const names = [...new Set([...policies.map((policy) => policy.component), ...(team ? [team] : [])])].sort();
  return (
    <Select
      label="Team"
      value={team}
      options={[["", "all"], ...names.map((name): [string, string] => [name, name])]}
      onChange={(value) => go(changed(route, { team: value, cursor: null, from: null }), true)}
    />
  );
}

function Pages({ route, next }: { route: Route; next: string | null | undefined }): JSX.Element {
  return (
    <p class="pages">
      {route.params.get("cursor") && <a href={changed(route, { cursor: null })}>First page</a>}
      {next && <a href={changed(route, { cursor: next })}>Next page</a>}
    </p>
  );
}

function Queue({ pool, route }: { pool: Pool; route: Route }): JSX.Element {
  const start = Math.max(0, Number(route.params.get("from") ?? 0) || 0);
  const text = (route.params.get("q") ?? "").toLowerCase();
  const component = route.params.get("team");
  const read = useRead<QueuePart>(`/pools/${encodeURIComponent(pool.name)}/queue${query({ limit: ROWS, offset: start, component })}`);
  return (
    <>
      <PartFilters pool={pool} route={route} />
      <Shown read={read} what="queue">
        {(part) =>
          part.items === null ? (
            <p class="empty">More than 100,000 requests wait, so they are not put into order: <Command text={`cede pool requests ${pool.name} --view queued`} /></p>
          ) : (
            <>
              <Waiters pool={pool} text={text} rows={part.items.filter((each) => each.request && matches(each.request, text))} />
              <Parts route={route} start={start} shown={part.items.length} length={part.length ?? 0} />
            </>
          )
        }
      </Shown>
    </>
  );
}

function Waiters({ pool, rows, text }: { pool: Pool; rows: Placed[]; text: string }): JSX.Element {
  const of = (each: Placed): Request => each.request as Request;
  return (
    <Table<Placed>
      label={`Requests that wait for pool ${pool.name}, in the order of the queue`}
      rows={rows}
      keyOf={(each) => each.id}
      opens={(each) => address("request", each.id)}
      alone
      empty={text ? "Nothing on this page matches." : <>Nothing waits for this pool. Submit something: <Command text={`cede submit --pool ${pool.name} --gpu 1 -- python train.py`} /></>}
      columns={[
        { title: "Place", show: (each) => each.place ?? "promised", numeric: true },
        { title: "Request", show: (each) => <Id id={each.id} /> },
        { title: "Name", show: (each) => nameOf(of(each)) },
        { title: "Team", show: (each) => <Team name={of(each).component} /> },
        { title: "Asks for", show: (each) => amounts(of(each).resources), numeric: true },
        { title: "Status", show: (each) => <Status is={of(each).status} /> },
        { title: "Waits", show: (each) => <Age of={of(each).created} />, numeric: true },
        { title: "Starts at the latest", show: (each) => (each.latest_start === null || each.latest_start === undefined ? "not known" : `in ${span(each.latest_start)}`), numeric: true },
        { title: "Why it waits", show: (each) => <Why reason={of(each).reason} />, wide: true },
      ]}
    />
  );
}

function matches(request: Request, text: string): boolean {
  return !text || `${request.id} ${nameOf(request)} ${request.component} ${request.owner} ${request.reason?.text ?? ""}`.toLowerCase().includes(text);
}

type Held = HolderPage["items"][number];

function Holders({ pool, route }: { pool: Pool; route: Route }): JSX.Element {
  const start = Math.max(0, Number(route.params.get("from") ?? 0) || 0);
  const text = (route.params.get("q") ?? "").toLowerCase();
  const component = route.params.get("team");
  const read = useRead<HolderPage>(`/pools/${encodeURIComponent(pool.name)}/holders${query({ limit: ROWS, offset: start, component })}`);
  return (
    <>
      <PartFilters pool={pool} route={route} />
      <p class="soft">Whoever would be asked to leave first is first.</p>
      <Shown read={read} what="holders">
        {(page) => (
          <>
            <HolderTable pool={pool} text={text} rows={page.items.filter((each) => each.request && matches(each.request, text))} />
            <Parts route={route} start={start} shown={page.items.length} length={page.length} />
          </>
        )}
      </Shown>
    </>
  );
}

function HolderTable({ pool, rows, text }: { pool: Pool; rows: Held[]; text: string }): JSX.Element {
  const of = (each: Held): Request => each.request as Request;
  return (
    <Table<Held>
      label={`Requests that hold units of pool ${pool.name}`}
      rows={rows}
      keyOf={(each) => each.id}
      opens={(each) => address("request", each.id)}
      alone
      empty={text ? "Nothing on this page matches." : "Nothing holds units of this pool."}
      columns={[
        { title: "Request", show: (each) => <Id id={each.id} /> },
        { title: "Name", show: (each) => nameOf(of(each)) },
        { title: "Team", show: (each) => <Team name={of(each).component} /> },
        { title: "Holds", show: (each) => amounts(of(each).resources), numeric: true },
        { title: "Right", show: (each) => (each.right === "borrowed" ? <b class="borrowed">borrowed</b> : RIGHTS[each.right]) },
        { title: "Price", show: (each) => (each.price === null ? "–" : <span title={PRICE}>{Math.round(each.price * 10) / 10}</span>), numeric: true },
        { title: "Protection", show: (each) => (each.protected ? PROTECTED[each.protected] ?? each.protected : each.right === "promised" ? "waits for its units" : protection(of(each))) },
        { title: "Where", show: (each) => <Where request={of(each)} /> },
        { title: "Status", show: (each) => <Status is={of(each).status} /> },
        { title: "Since", show: (each) => of(each).allocation && <Time at={timeOf(of(each).allocation!.allocated_at)} /> },
      ]}
    />
  );
}

const PRICE = "What stopping it costs: minutes of saving, and GPU-minutes of work that would be lost";
const RIGHTS: Record<Held["right"], string> = { in_share: "in share", in_a_share_above: "in a share above", borrowed: "borrowed", promised: "promised" };
const PROTECTED: Record<string, string> = { sensitive: "sensitive: never stopped", unsaved: "never stopped: it cannot save itself", near_completion: "not stopped: nearly done" };

function PartFilters({ pool, route }: { pool: Pool; route: Route }): JSX.Element {
  return (
    <form class="filters" onSubmit={(event) => event.preventDefault()}>
      <TeamFilter pool={pool} route={route} />
      <Filter label="Search this page" value={route.params.get("q") ?? ""} onChange={(value) => go(changed(route, { q: value }), true)} />
    </form>
  );
}

function Parts({ route, start, shown, length }: { route: Route; start: number; shown: number; length: number }): JSX.Element {
  return (
    <p class="pages">
      {start > 0 && <a href={changed(route, { from: String(Math.max(0, start - ROWS)) })}>Before</a>}
      {start + ROWS < length && <a href={changed(route, { from: String(start + ROWS) })}>After</a>}
      {length > ROWS && <span class="soft">{start + 1} to {start + shown} of {length}</span>}
    </p>
  );
}

export function protection(request: Request): string {
  if (request.sensitive) return "sensitive: never stopped";
  return request.preemptible ? `preemptible, class ${request.class}` : "not preemptible";
}

export function Where({ request }: { request: Request }): JSX.Element {
  const nodes = [...new Set((request.allocation?.members ?? []).map((member) => member.node))];
  return <>{nodes.map((node, n) => <span key={node}>{n > 0 && ", "}<a href={address("node", node)}>{node}</a></span>)}</>;
}

function Nodes({ pool, route }: { pool: Pool; route: Route }): JSX.Element {
  const read = useRead<Page<Node>>(`/nodes${query({ pool: pool.name, limit: 500, cursor: route.params.get("cursor") })}`);
  return (
    <Shown read={read} what="nodes">
      {(page) => {
        const subjects = [...new Set(page.items.flatMap((node) => node.allocations.map((each) => each.subject)))].sort();
        return page.items.length === 0 ? (
          <p class="empty">No node has joined this pool. On a machine of it: <Command text="cede agent" /></p>
        ) : (
          <>
            <ul class="legend" aria-label="Teams by colour">
              {subjects.map((subject) => <li key={subject}><Team name={subject.replace(/^team:/, "")} /></li>)}
              <li><span class="device free" aria-hidden="true" /> free</li>
            </ul>
            <ul class="nodes">
              {page.items.map((node) => <li key={node.id} data-node={node.name}><NodeCard node={node} /></li>)}
            </ul>
            <Pages route={route} next={page.next} />
          </>
        );
      }}
    </Shown>
  );
}

function NodeCard({ node }: { node: Node }): JSX.Element {
  return (
    <div class={`node state-${node.state}`}>
      <p class="head">
        <a href={address("node", node.name)}>{node.name}</a>
        <Status is={node.state} />
      </p>
      <Devices node={node} />
      {node.reason && <p class="soft">{node.reason}</p>}
      {node.silent > 3 * node.heartbeat && <p class="notice">{node.bridge ? `bridge ${node.bridge} ` : ""}not heard of for {Math.round(node.silent)} s</p>}
      {node.claimed_by && <p class="soft">claimed by {node.claimed_by}</p>}
      {node.others_why && <p class="soft">held outside: {node.others_why}</p>}
    </div>
  );
}

/** Every device as a square in its team's colour, with the team's letters in it. */
export function Devices({ node }: { node: Node }): JSX.Element {
  const holder = new Map<string, { subject: string; request: string }>();
  for (const each of node.allocations) for (const device of each.devices) holder.set(device, each);
  return (
    <>
      {Object.entries(node.devices).map(([key, devices]) => (
        <ul class="devices" key={key} aria-label={`${key} of ${node.name}`}>
          {devices.map((device) => {
            const held = holder.get(device);
            if (!held) {
              return <li key={device} class="device free" title={`${key} ${device}: ${node.held[key] === node.amounts[key] ? "held" : "free"}`}><span class="hidden">{key} {device} free</span></li>;
            }
            const { colour, letters } = badgeOf(held.subject);
            return (
              <li key={device} class="device" style={{ background: colour }}>
                <a href={address("request", held.request)} title={`${key} ${device}: ${held.subject}, ${shortId(held.request)}`}>
                  <span aria-hidden="true">{letters}</span>
                  <span class="hidden">{key} {device}: {held.subject}</span>
                </a>
              </li>
            );
          })}
        </ul>
      ))}
    </>
  );
}
