// Events: the journal, newest first, filtered by pool, kind, request and text.
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { get, query, serverIndex, timeOf, type Event, type Page, type Pool } from "../api";
import { detail, sentence } from "../format";
import { useBeat, useLink, useRead } from "../live";
import { changed, go, type Route } from "../route";
import { Filter, Id, Select, Sentence, Table, Time } from "../ui";

const PAGE = 200;

export function useLatest(pool = "", end: number | null = null): Event[] | null {
  const [found, setFound] = useState<Event[] | null>(null);
  const beat = useBeat();
  const { state } = useLink();
  useEffect(() => {
    let over = false;
    const before = (end ?? serverIndex()) + 1;
    get<Page<Event>>(`/events${query({ before, limit: PAGE, pool })}`)
      .then((page) => over || setFound(page.items.reverse()))
      .catch(() => undefined); // the shell says that the server is away, and this is read again afterwards
    return () => {
      over = true;
    };
  }, [beat, state, pool, end]);
  return found;
}

export function Events({ route }: { route: Route }): JSX.Element {
  const pool = route.params.get("pool") ?? "";
  const kind = route.params.get("kind") ?? "";
  const text = route.params.get("q") ?? "";
  const before = route.params.get("before");
  const pools = useRead<Page<Pool>>("/pools?limit=500");
  const events = useLatest(pool, before === null ? null : Number(before));
  const names = new Map((pools.data?.items ?? []).map((each) => [each.id, each.name]));
  const kinds = [...new Set([...(events ?? []).map((event) => event.kind), ...(kind ? [kind] : [])])].sort();
  const set = (params: Record<string, string | null>): void => go(changed(route, params), true);
  const matches = (event: Event): boolean =>
    (!kind || event.kind === kind) && (!text || `${event.request_id} ${sentence(event)} ${detail(event)}`.toLowerCase().includes(text.toLowerCase()));
  const shown = (events ?? []).filter(matches);
  const oldest = events?.[events.length - 1]?.index ?? 0;
  return (
    <>
      <h1>Events</h1>
      <form class="filters" onSubmit={(event) => event.preventDefault()}>
        <Select label="Pool" value={pool} options={[["", "all"], ...[...names.values()].map((name): [string, string] => [name, name])]} onChange={(value) => set({ pool: value, before: null })} />
        <Select label="Kind" value={kind} options={[["", "all"], ...kinds.map((each): [string, string] => [each, each.replaceAll("_", " ")])]} onChange={(value) => set({ kind: value })} />
        <Filter label="Text" value={text} onChange={(value) => set({ q: value })} />
      </form>
      {events === null ? (
        <p class="empty" aria-busy="true">Reading events…</p>
      ) : (
        <Table
          label="Events, newest first"
          rows={shown}
          keyOf={(event) => String(event.index)}
          empty={text || kind ? "No event on this page of the journal matches the filters." : "Nothing has happened yet."}
          columns={[
            { title: "When", show: (event) => <Time at={timeOf(event.at)} /> },
            { title: "Index", show: (event) => event.index, numeric: true },
            { title: "Pool", show: (event) => (event.pool_id ? (names.get(event.pool_id) ?? "") : "") },
            { title: "Request", show: (event) => event.request_id && <Id id={event.request_id} /> },
            { title: "What", show: (event) => sentence(event) },
            { title: "Detail", show: (event) => <Sentence text={detail(event)} />, wide: true },
          ]}
        />
      )}
      <p class="pages">
        {before !== null && <a href={changed(route, { before: null })}>Newest</a>}
        {oldest > 1 && <a href={changed(route, { before: String(oldest - 1) })}>Older</a>}
      </p>
    </>
  );
}
