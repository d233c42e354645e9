// Charts over time by uPlot. Every chart has its numbers as a table beside it.
import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";

export interface Series {
  label: string;
  values: (number | null)[];
  colour: string; // a custom property of the style sheet
  area?: boolean;
  dash?: number[];
}

interface ChartProps {
  title: string;
  times: number[]; // seconds since 1970
  series: Series[];
  unit: string;
  stacked?: boolean;
  bars?: boolean;
  height?: number;
  most?: number; // the axis ends here, however high a value is: the text has the numbers
}

const DASHES = [[], [6, 4], [2, 3], [10, 3, 2, 3]];

function colourOf(name: string): string {
  return name.startsWith("--") ? getComputedStyle(document.documentElement).getPropertyValue(name).trim() : name;
}

/** Values on top of those before them. */
function stack(series: Series[]): (number | null)[][] {
  const sums: number[] = [];
  return series.map((each) =>
    each.values.map((value, at) => {
      if (value === null) return null;
      sums[at] = (sums[at] ?? 0) + value;
      return sums[at]!;
    }),
  );
}

export function Chart({ title, times, series, unit, stacked = false, bars = false, height = 190, most = Infinity }: ChartProps): JSX.Element {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const scheme = useScheme();
  const shape = `${scheme} ${bars} ${series.map((each) => `${each.label} ${each.colour} ${each.area}`).join("|")}`;
  const data = (): uPlot.AlignedData => {
    const values = stacked ? stack(series) : series.map((each) => each.values);
    // The highest of a stack is drawn first, so that it does not cover the others.
    return [times, ...(stacked ? values.reverse() : values)] as uPlot.AlignedData;
  };
  useEffect(() => {
    const where = box.current;
    if (!where) return;
    const made = new uPlot(options(where.clientWidth, height, series, unit, stacked, bars, most), data(), where);
    // It says nothing to a screen reader: the label and the table do.
    made.root.setAttribute("aria-hidden", "true");
    plot.current = made;
    const resize = new ResizeObserver(() => made.setSize({ width: where.clientWidth, height }));
    resize.observe(where);
    return () => {
      resize.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [shape, height, unit, most]);
  useEffect(() => plot.current?.setData(data()), [times, series]);
  return (
    <figure class="chart">
      <figcaption>
        <span class="charttitle">{title}</span>
        <ul class="legend">
          {series.map((each) => <li key={each.label}><span class="swatch" style={{ background: each.colour.startsWith("--") ? `var(${each.colour})` : each.colour }} aria-hidden="true" /> {each.label}</li>)}
        </ul>
      </figcaption>
      <div ref={box} class="plot" />
    </figure>
  );
}

function useScheme(): string {
  const dark = (): string => (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  const [scheme, setScheme] = useState(dark);
  useEffect(() => {
    const query = matchMedia("(prefers-color-scheme: dark)");
    const listener = (): void => setScheme(dark());
    query.addEventListener("change", listener);
    return () => query.removeEventListener("change", listener);
  }, []);
  return scheme;
}

function options(width: number, height: number, series: Series[], unit: string, stacked: boolean, bars: boolean, most: number): uPlot.Options {
  const ink = colourOf("--soft");
  const line = colourOf("--line");
  const axis = { stroke: ink, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 }, font: "12px system-ui, sans-serif" };
  const drawn = series.map((each, at): uPlot.Series => {
    const colour = colourOf(each.colour);
    const filled = each.area || bars;
    return {
      label: each.label,
      stroke: colour,
      width: filled ? 1 : 2,
      dash: each.dash ?? (filled ? [] : DASHES[at % DASHES.length]!),
      // Not translucent: what lies below a part of a stack must not tint it.
      fill: filled ? colour : undefined,
      points: { show: false },
      paths: bars ? uPlot.paths.bars!({ size: [0.7, 60], align: 1 }) : uPlot.paths.stepped!({ align: 1 }),
    };
  });
  return {
    width,
    height,
    legend: { show: false },
    cursor: { drag: { x: false, y: false }, points: { show: !bars } },
    scales: { x: { time: true }, y: { range: (_, __, highest) => [0, Math.min(most, Math.max(1, highest) * 1.05)] } },
    // Bars are days of UTC; everything else is local.
    ...(bars ? { tzDate: (at: number) => uPlot.tzDate(new Date(at * 1000), "Etc/UTC") } : {}),
    axes: [axis, { ...axis, size: 48, values: (_, ticks) => ticks.map((tick) => (tick >= 10_000 ? `${tick / 1000}k` : String(tick))) }],
    series: [{}, ...(stacked ? drawn.reverse() : drawn)],
    hooks: { setCursor: [(found) => tell(found, series, unit, stacked)] },
  };
}

/** Says the numbers under the pointer. */
function tell(found: uPlot, series: Series[], unit: string, stacked: boolean): void {
  const at = found.cursor.idx;
  if (at === null || at === undefined) return void (found.over.title = "");
  const order = stacked ? [...series].reverse() : series;
  const day = new Date((found.data[0]![at] ?? 0) * 1000);
  const when = stacked && unit === "hours" ? day.toISOString().slice(0, 10) : day.toLocaleString();
  const said = order.filter((each) => each.values[at] !== null && each.values[at] !== 0).map((each) => `${each.label}: ${Math.round((each.values[at] ?? 0) * 10) / 10} ${unit}`);
  found.over.title = [when, ...said].join("\n");
}
