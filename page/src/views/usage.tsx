// Teams and usage: hours by team, pool or tenant, as a table, bars and CSV; the numbers of `cede usage`.
import type { JSX } from "preact";
import { query, type Usage, type Used } from "../api";
import { useRead } from "../live";
import { changed, go, type Route } from "../route";
import { Bar, Command, Select, Shown, Table, Team } from "../ui";

const SPANS: [string, string][] = [["86400", "last day"], ["604800", "last 7 days"], ["2592000", "last 30 days"], ["", "all time"]];
const BY: [string, string][] = [["policy", "team"], ["pool", "pool"], ["tenant", "tenant"]];

export function UsageView({ route }: { route: Route }): JSX.Element {
  const by = route.params.get("by") ?? "policy";
  const since = route.params.get("since") ?? "604800";
  const read = useRead<Usage>(`/usage${query({ by, since: since === "all" ? null : since })}`);
  return (
    <>
      <h1>Teams and usage</h1>
      <form class="filters" onSubmit={(event) => event.preventDefault()}>
        <Select label="By" value={by} options={BY} onChange={(value) => go(changed(route, { by: value }), true)} />
        <Select label="Held in the" value={since === "all" ? "" : since} options={SPANS} onChange={(value) => go(changed(route, { since: value || "all" }), true)} />
      </form>
      <Shown read={read} what="usage">
        {(usage) => {
          const most = Math.max(...usage.items.map((each) => each.gpu_hours), 0);
          return (
            <>
              <Table<Used>
                label="Usage, the largest first"
                rows={usage.items}
                keyOf={(each) => `${each.id} ${each.name}`}
                empty="Nothing was held in that time."
                columns={[
                  { title: by === "policy" ? "Team" : by, show: (each) => <Team name={each.name ?? "no tenant"} /> },
                  ...(by === "policy" ? [{ title: "Pool", show: (each: Used) => each.pool ?? "" }] : []),
                  { title: "GPU hours", show: (each) => hours(each.gpu_hours), numeric: true },
                  { title: "Part", show: (each) => <Bar label="GPU hours" whole={most} parts={[{ amount: each.gpu_hours, kind: "used", says: hours(each.gpu_hours) }]} />, wide: true },
                  { title: "Node hours", show: (each) => hours(each.node_hours), numeric: true },
                  { title: "Requests", show: (each) => each.requests, numeric: true },
                  { title: "Preempted", show: (each) => each.preempted, numeric: true },
                ]}
              />
              <p>
                <button type="button" onClick={() => download(csv(usage.items), `usage-by-${by}.csv`)}>Download as CSV</button>{" "}
                <Command text={`cede usage --by ${by}${since === "all" ? "" : ` --since ${Number(since) / 86400}d`}`} />
              </p>
            </>
          );
        }}
      </Shown>
    </>
  );
}

function hours(amount: number): string {
  if (amount === 0) return "0";
  return amount < 0.1 ? amount.toFixed(4) : amount.toLocaleString(undefined, { maximumFractionDigits: 1 });
}

function csv(items: Used[]): string {
  const keys = [...new Set(items.flatMap((each) => Object.keys(each.hours)))].sort();
  const head = ["name", "pool", "requests", "preempted", "node_hours", "gpu_hours", ...keys.map((key) => `hours_${key}`)];
  const rows = items.map((each) => [each.name ?? "", each.pool ?? "", each.requests, each.preempted, each.node_hours, each.gpu_hours, ...keys.map((key) => each.hours[key] ?? 0)]);
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
