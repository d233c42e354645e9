// Teams and usage: hours, waiting, preempted and lost work and cost, by whom and by day, as tables, a chart and CSV; the numbers of `cede usage`.
import type { JSX } from "preact";
import { query, type Usage, type Used } from "../api";
import { Chart, type Series } from "../chart";
import { span } from "../format";
import { useRead } from "../live";
import { changed, go, type Route } from "../route";
import { badgeOf, Bar, Command, Filter, Select, Shown, Table, Team, type Column } from "../ui";

const SPANS: [string, string][] = [["1", "today"], ["7", "last 7 days"], ["30", "last 30 days"], ["90", "last 90 days"], ["month", "this month"], ["before", "last month"], ["all", "all time"], ["own", "from … to …"]];
const BY: [string, string][] = [["team", "team"], ["user", "user"], ["pool", "pool"], ["label", "label"], ["tenant", "tenant"], ["policy", "policy"]];
const DAY = 86_400_000;
const EVERY_MS = 10_000;
const STACKED = 9; // more teams than a reader tells apart by colour are one

const dayOf = (time: number): string => new Date(time).toISOString().slice(0, 10);

/** The first and the last day of a period, of UTC, as `cede usage` takes them. */
function period(route: Route): { from: string | null; through: string | null } {
  const chosen = route.params.get("over") ?? "30";
  const today = new Date();
  const month = (back: number): number => Date.UTC(today.getUTCFullYear(), today.getUTCMonth() - back, 1);
  if (chosen === "own") return { from: route.params.get("from"), through: route.params.get("to") };
  if (chosen === "all") return { from: null, through: null };
  if (chosen === "month") return { from: dayOf(month(0)), through: null };
  if (chosen === "before") return { from: dayOf(month(1)), through: dayOf(month(0) - DAY) };
  return { from: dayOf(Date.now() - (Number(chosen) - 1) * DAY), through: null };
}

export function UsageView({ route }: { route: Route }): JSX.Element {
  const by = route.params.get("by") ?? "team";
  const label = route.params.get("label") || "project";
  const over = route.params.get("over") ?? "30";
  const { from, through } = period(route);
  const to = through && dayOf(Date.parse(through) + DAY);
  const asked = { by, label: by === "label" ? label : null, from, to };
  const read = useRead<Usage>(`/usage${query(asked)}`, EVERY_MS);
  const days = useRead<Usage>(from === null ? null : `/usage${query({ ...asked, days: true })}`, EVERY_MS);
  const set = (params: Record<string, string | null>): void => go(changed(route, params), true);
  const command = `cede usage --by ${by}${by === "label" ? ` --label ${label}` : ""}${from ? ` --from ${from}` : ""}${through ? ` --to ${through}` : ""}`;
  return (
    <>
      <h1>Teams and usage</h1>
      <form class="filters" onSubmit={(event) => event.preventDefault()}>
        <Select label="By" value={by} options={BY} onChange={(value) => set({ by: value })} />
        {by === "label" && <Filter label="Label" value={label} onChange={(value) => set({ label: value })} />}
        <Select label="Held" value={over} options={SPANS} onChange={(value) => set(value === "own" ? { over: value, from: from ?? dayOf(Date.now() - 29 * DAY), to: through ?? dayOf(Date.now()) } : { over: value, from: null, to: null })} />
        {over === "own" && <DayField label="From" value={from} onChange={(value) => set({ from: value })} />}
        {over === "own" && <DayField label="Through" value={through} onChange={(value) => set({ to: value })} />}
      </form>
      <p class="soft">Days are of UTC.</p>
      <Shown read={read} what="usage">
        {(usage) => (
          <>
            <Sums items={usage.items} />
            {days.data && days.data.items.length > 0 && <DayChart items={days.data.items} from={from!} />}
            <Report by={by} items={usage.items} />
            <p>
              <button type="button" onClick={() => download(csv(usage.items), `usage-by-${by}.csv`)}>Download as CSV</button>{" "}
              <Command text={`${command} -o csv`} />
            </p>
            {days.data && days.data.items.length > 0 && (
              <details>
                <summary>Day by day</summary>
                <Report by={by} items={days.data.items} byDay />
                <p>
                  <button type="button" onClick={() => download(csv(days.data!.items), `usage-by-${by}-and-day.csv`)}>Download days as CSV</button>{" "}
                  <Command text={`${command} --days -o csv`} />
                </p>
              </details>
            )}
          </>
        )}
      </Shown>
    </>
  );
}

function DayField({ label, value, onChange }: { label: string; value: string | null; onChange: (value: string) => void }): JSX.Element {
  return (
    <label class="filter">
      <span>{label}</span>
      <input type="date" value={value ?? ""} onChange={(event) => event.currentTarget.value && onChange(event.currentTarget.value)} />
    </label>
  );
}

function Sums({ items }: { items: Used[] }): JSX.Element {
  const sum = (pick: (each: Used) => number | null): number => items.reduce((total, each) => total + (pick(each) ?? 0), 0);
  const costs = items.some((each) => each.cost !== null);
  const facts: [string, string][] = [
    ["GPU hours", hours(sum((each) => each.gpu_hours))],
    ["of them lost", hours(sum((each) => each.lost_gpu_hours))],
    ["preempted attempts", String(sum((each) => each.preempted))],
    ...(costs ? [["cost", money(sum((each) => each.cost))] as [string, string]] : []),
  ];
  return <ul class="sums" aria-label="In all">{facts.map(([name, value]) => <li key={name}><b>{value}</b><span>{name}</span></li>)}</ul>;
}

const called = (each: Used): string => each.name ?? "(none)";

function Report({ by, items, byDay = false }: { by: string; items: Used[]; byDay?: boolean }): JSX.Element {
  const most = Math.max(...items.map((each) => each.gpu_hours), 0);
  const columns: Column<Used>[] = [
    ...(byDay ? [{ title: "Day", show: (each: Used) => each.day ?? "" }] : []),
    { title: BY.find(([key]) => key === by)?.[1] ?? by, show: (each) => <Team name={called(each)} /> },
    ...(by === "policy" ? [{ title: "Pool", show: (each: Used) => each.pool ?? "" }] : []),
    { title: "GPU hours", show: (each) => hours(each.gpu_hours), numeric: true },
    { title: "Part", show: (each) => <Bar label="GPU hours" whole={most} parts={[{ amount: each.gpu_hours - each.lost_gpu_hours, kind: "used", says: hours(each.gpu_hours) }, { amount: each.lost_gpu_hours, kind: "borrowed", says: `${hours(each.lost_gpu_hours)} lost` }]} />, wide: true },
    { title: "Lost", show: (each) => hours(each.lost_gpu_hours), numeric: true },
    { title: "Node hours", show: (each) => hours(each.node_hours), numeric: true },
    { title: "Mean wait", show: (each) => (each.mean_wait === null ? "–" : span(each.mean_wait)), numeric: true },
    { title: "Preempted", show: (each) => each.preempted, numeric: true },
    ...(byDay ? [] : [{ title: "Requests", show: (each: Used) => each.requests, numeric: true }]),
    ...(items.some((each) => each.cost !== null) ? [{ title: "Cost", show: (each: Used) => (each.cost === null ? "–" : money(each.cost)), numeric: true }] : []),
  ];
  return (
    <Table<Used>
      label={byDay ? "Usage, day by day" : "Usage, the largest first"}
      rows={items}
      keyOf={(each) => `${each.day ?? ""} ${each.id ?? ""} ${each.name ?? ""}`}
      empty="Nothing was held in that time."
      columns={columns}
    />
  );
}

/** GPU hours of each day, the largest users apart and the others together. */
function DayChart({ items, from }: { items: Used[]; from: string }): JSX.Element {
  const totals = new Map<string, number>();
  for (const each of items) totals.set(called(each), (totals.get(called(each)) ?? 0) + each.gpu_hours);
  const names = [...totals.keys()].sort((a, b) => totals.get(b)! - totals.get(a)!);
  const apart = names.length > STACKED ? names.slice(0, STACKED - 1) : names;
  const last = Math.max(...items.map((each) => Date.parse(each.day!)));
  const times: number[] = [];
  for (let day = Date.parse(from); day <= last; day += DAY) times.push(day / 1000);
  const place = new Map(times.map((time, at) => [dayOf(time * 1000), at]));
  const sums = new Map<string, number[]>();
  for (const each of items) {
    const name = apart.includes(called(each)) ? called(each) : "others";
    const values = sums.get(name) ?? times.map(() => 0);
    const at = place.get(each.day!);
    if (at !== undefined) values[at] = (values[at] ?? 0) + each.gpu_hours;
    sums.set(name, values);
  }
  const series: Series[] = [...apart, ...(sums.has("others") ? ["others"] : [])].map((name) => ({ label: name, values: sums.get(name)!, colour: name === "others" ? "--promised" : badgeOf(name).colour }));
  const says = apart.slice(0, 3).map((name) => `${name} ${hours(totals.get(name)!)}`).join(", ");
  return <div role="img" aria-label={`GPU hours by day, most by ${says}`}><Chart title="GPU hours by day" times={times} series={series} unit="hours" stacked bars height={220} /></div>;
}

function hours(amount: number): string {
  if (amount === 0) return "0";
  return amount < 0.1 ? amount.toFixed(4) : amount.toLocaleString(undefined, { maximumFractionDigits: 1 });
}

const money = (amount: number): string => amount.toLocaleString(undefined, { minimumFractionDigits: 2, maximumFractionDigits: 2 });

function csv(items: Used[]): string {
  const keys = [...new Set(items.flatMap((each) => Object.keys(each.hours)))].sort();
  const days = items.some((each) => each.day !== null);
  const head = [...(days ? ["day"] : []), "name", "pool", "requests", "preempted", "starts", "mean_wait", "node_hours", "gpu_hours", "lost_gpu_hours", "cost", ...keys.map((key) => `hours_${key}`)];
  const rows = items.map((each) => [...(days ? [each.day ?? ""] : []), each.name ?? "", each.pool ?? "", each.requests ?? "", each.preempted, each.starts, each.mean_wait ?? "", each.node_hours, each.gpu_hours, each.lost_gpu_hours, each.cost ?? "", ...keys.map((key) => each.hours[key] ?? 0)]);
  return [head, ...rows].map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n";
}

function cell(value: string | number): string {
  // A spreadsheet takes what begins like this for a formula.
  const text = typeof value === "string" && /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

function download(text: string, name: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
