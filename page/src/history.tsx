// How much of a pool was used, borrowed, free and waited for, over time.
import type { JSX } from "preact";
import { query, type PoolHistory } from "./api";
import { Chart, type Series } from "./chart";
import { clock, keysOf } from "./format";
import { useRead } from "./live";
import { changed, go, type Route } from "./route";
import { Command, Select, Table } from "./ui";

export const SPANS: [string, string][] = [["3600", "last hour"], ["21600", "last 6 hours"], ["86400", "last day"], ["604800", "last 7 days"], ["2592000", "last 30 days"], ["31536000", "last year"]];
type Point = PoolHistory["items"][number];

export const spanOf = (route: Route, usual: string): string => route.params.get("span") ?? usual;

export function SpanSelect({ route, usual }: { route: Route; usual: string }): JSX.Element {
  return <Select label="Over the" value={spanOf(route, usual)} options={SPANS} onChange={(value) => go(changed(route, { span: value }), true)} />;
}

/** The chart of the key that matters most, GPUs where there are any, or of all keys. */
export function PoolChart({ pool, span, all = false }: { pool: string; span: string; all?: boolean }): JSX.Element | null {
  const read = useRead<PoolHistory>(`/pools/${encodeURIComponent(pool)}/history${query({ since: span })}`, MINUTE);
  const items = read.data?.items ?? [];
  if (read.data === null) return <p class="empty" aria-busy={read.error ? undefined : "true"}>{read.error || "Reading the history…"}</p>;
  if (items.length < 2) return <p class="soft">How much is used is noted every minute: a chart appears here soon.</p>;
  const keys = keysOf(Object.fromEntries(Object.keys(items[items.length - 1]!.keys).map((key) => [key, 1])));
  const shown = all ? keys : [keys.find((key) => key === "gpu") ?? keys[0] ?? ""];
  return (
    <>
      {shown.map((key) => <KeyChart key={key} name={key} items={items} />)}
      {all && <Numbers pool={pool} items={items} keys={keys} span={span} />}
    </>
  );
}

const MINUTE = 60_000;

function KeyChart({ name, items }: { name: string; items: Point[] }): JSX.Element {
  const of = (pick: (level: Point["keys"][string]) => number): (number | null)[] => items.map((point) => (point.keys[name] ? pick(point.keys[name]) : null));
  const series: Series[] = [
    { label: "used in share", values: of((each) => each.used - each.borrowed), colour: "--used", area: true },
    { label: "borrowed", values: of((each) => each.borrowed), colour: "--borrowed", area: true },
    { label: "free", values: of((each) => each.free), colour: "--track", area: true },
    { label: "waiting demand", values: of((each) => each.waiting), colour: "--waits", area: true },
  ];
  const last = items[items.length - 1]!.keys[name];
  const says = last ? `now ${round(last.used)} used, ${round(last.borrowed)} of it borrowed, ${round(last.free)} free, ${round(last.waiting)} waited for` : "";
  return <div role="img" aria-label={`${name} over time: ${says}`}><Chart title={name} times={items.map((point) => Date.parse(point.at) / 1000)} series={series} unit={name} most={3 * Math.max(1, ...items.map((point) => point.keys[name]?.capacity ?? 0))} stacked /></div>;
}

const round = (value: number): number => Math.round(value * 10) / 10;

function Numbers({ pool, items, keys, span }: { pool: string; items: Point[]; keys: string[]; span: string }): JSX.Element {
  const rows = [...items].reverse().flatMap((point) => keys.filter((key) => point.keys[key]).map((key) => ({ point, key, level: point.keys[key]! })));
  return (
    <details>
      <summary>The numbers</summary>
      <Table
        label={`Levels of pool ${pool}`}
        rows={rows.slice(0, 200)}
        keyOf={(row) => `${row.point.at} ${row.key}`}
        empty="Nothing was noted in that time."
        columns={[
          { title: "From", show: (row) => clock(new Date(row.point.at)) },
          { title: "Key", show: (row) => row.key },
          { title: "Capacity", show: (row) => round(row.level.capacity), numeric: true },
          { title: "Used", show: (row) => round(row.level.used), numeric: true },
          { title: "Borrowed", show: (row) => round(row.level.borrowed), numeric: true },
          { title: "Free", show: (row) => round(row.level.free), numeric: true },
          { title: "Waiting", show: (row) => round(row.level.waiting), numeric: true },
        ]}
      />
      <p><Command text={`cede pool history ${pool} --since ${Number(span) / 3600}h`} /></p>
    </details>
  );
}
