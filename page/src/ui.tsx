// Parts that several views share.
import { Component, type ComponentChildren, type JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { Amounts, Reason } from "./api";
import type { Read } from "./live";
import { clock, cutAtIds, exact, keysOf, shortId, span } from "./format";
import { address } from "./route";

// White text on each of these has a contrast of at least 4.5, in both schemes.
const COLOURS = ["#1f6fb2", "#a8401c", "#2a7547", "#7549b0", "#83600a", "#a62f74", "#0d6e79", "#59661c", "#96393b", "#4a5a8a"];

/** A team's colour and letters, the same in every view: the letters tell teams apart where colours do not. */
export function badgeOf(team: string): { colour: string; letters: string } {
  const name = team.includes(":") ? team.slice(team.indexOf(":") + 1) : team;
  let sum = 0;
  for (const letter of name) sum = (sum * 31 + letter.codePointAt(0)!) % 9973;
  return { colour: COLOURS[sum % COLOURS.length]!, letters: [...name].slice(0, 2).join("") };
}

export function Team({ name }: { name: string }): JSX.Element {
  const { colour } = badgeOf(name);
  return (
    <span class="team">
      <span class="dot" style={{ background: colour }} aria-hidden="true" />
      {name}
    </span>
  );
}

export function Id({ id, link = true }: { id: string; link?: boolean }): JSX.Element {
  return (
    <span class="id">
      {link ? <a href={address("request", id)} title={id}>{shortId(id)}</a> : <span title={id}>{shortId(id)}</span>}
      <Copy text={id} />
    </span>
  );
}

export function Copy({ text }: { text: string }): JSX.Element {
  const [done, setDone] = useState(false);
  return (
    <button
      type="button"
      class="copy"
      title={`Copy ${text}`}
      aria-label={done ? "Copied" : `Copy ${shortId(text)}`}
      onClick={(event) => {
        event.stopPropagation();
        void navigator.clipboard?.writeText(text).then(() => {
          setDone(true);
          setTimeout(() => setDone(false), 1500);
        });
      }}
    >
      {done ? "✓" : <svg viewBox="0 0 16 16" width="12" height="12" aria-hidden="true"><path d="M5 5V2h9v9h-3M2 5h9v9H2z" fill="none" stroke="currentColor" stroke-width="1.5" /></svg>}
    </button>
  );
}

/** A sentence of the server in which ids are short and lead to their request. */
export function Sentence({ text }: { text: string }): JSX.Element {
  return <>{cutAtIds(text).map((part, n) => (part.id ? <a key={n} href={address("request", part.text)} title={part.text}>{shortId(part.text)}</a> : part.text))}</>;
}

export function Why({ reason }: { reason: Reason | null | undefined }): JSX.Element | null {
  if (!reason) return null;
  return (
    <>
      <Sentence text={reason.text} />
      {reason.fix && reason.fix !== "nothing" && (
        <small class="fix">
          <b>What helps:</b> <Sentence text={reason.fix} />
        </small>
      )}
    </>
  );
}

export function Time({ at }: { at: Date | null }): JSX.Element | null {
  if (at === null || Number.isNaN(at.getTime())) return null;
  return <time dateTime={at.toISOString()} title={exact(at)}>{clock(at)}</time>;
}

const TICK_MS = 1000;
const ages = new Set<() => void>();

/** How long ago something was. It grows by itself: one clock for all that are shown, and only what reads differently is drawn. */
export function Age({ of }: { of: string | Date }): JSX.Element {
  const at = typeof of === "string" ? new Date(of) : of;
  const said = (): string => span((Date.now() - at.getTime()) / 1000);
  const [, draw] = useState("");
  useEffect(() => {
    const tick = (): void => draw(said());
    ages.add(tick);
    return () => void ages.delete(tick);
  }, [at.getTime()]);
  return <time dateTime={at.toISOString()} title={exact(at)}>{said()}</time>;
}

setInterval(() => {
  if (!document.hidden) for (const each of ages) each();
}, TICK_MS);

export function Status({ is }: { is: string }): JSX.Element {
  return <span class={`status is-${is}`}>{is.replaceAll("_", " ")}</span>;
}

export interface Column<T> {
  title: string;
  show: (row: T) => ComponentChildren;
  numeric?: boolean;
  wide?: boolean;
}

interface TableProps<T> {
  label: string;
  columns: Column<T>[];
  rows: T[];
  keyOf: (row: T) => string;
  empty: ComponentChildren;
  opens?: (row: T) => string;
  alone?: boolean; // what a row shows is in it alone: one that is as before is not drawn again
}

interface RowProps<T> {
  row: T;
  columns: Column<T>[];
  id: string;
  open: string | undefined;
  alone: boolean;
}

class Row<T> extends Component<RowProps<T>> {
  override shouldComponentUpdate(next: RowProps<T>): boolean {
    return !next.alone || next.row !== this.props.row || next.open !== this.props.open;
  }

  override render({ row, columns, id, open }: RowProps<T>): JSX.Element {
    return (
      <tr role="row" data-id={id} data-open={open}>
        {columns.map((column) => (
          <td key={column.title} role="cell" data-title={column.title} class={`${column.numeric ? "number" : ""} ${column.wide ? "wide" : ""}`}>
            {column.show(row)}
          </td>
        ))}
      </tr>
    );
  }
}

/** A table on a desk, cards with the columns' names on a phone. The roles keep it a table where it is laid out as cards. */
export function Table<T>({ label, columns, rows, keyOf, empty, opens, alone = false }: TableProps<T>): JSX.Element {
  if (!rows.length) return <p class="empty">{empty}</p>;
  return (
    <table role="table" aria-label={label}>
      <thead role="rowgroup">
        <tr role="row">{columns.map((column) => <th key={column.title} role="columnheader" scope="col" class={column.numeric ? "number" : ""}>{column.title}</th>)}</tr>
      </thead>
      <tbody role="rowgroup">
        {rows.map((row) => <Row key={keyOf(row)} row={row} columns={columns} id={keyOf(row)} open={opens?.(row)} alone={alone} />)}
      </tbody>
    </table>
  );
}

export interface Part {
  amount: number;
  kind: string; // a class: used, borrowed, promised, lent, waiting
  says: string;
}

/** A bar of parts against a whole, with marks; its numbers stand beside it as text. */
export function Bar({ whole, parts, marks = [], label }: { whole: number; parts: Part[]; marks?: { at: number; says: string; kind: string }[]; label: string }): JSX.Element {
  const percent = (amount: number): string => `${Math.min(100, (100 * amount) / Math.max(whole, 1))}%`;
  const said = [...parts.filter((part) => part.amount > 0).map((part) => part.says), ...marks.map((mark) => mark.says)].join(", ");
  return (
    <div class="bar" role="img" aria-label={`${label}: ${said || "nothing"} of ${whole}`}>
      {parts.filter((part) => part.amount > 0).map((part) => (
        <div key={part.kind} class={`part ${part.kind}`} style={{ width: percent(part.amount) }} title={part.says} />
      ))}
      {marks.map((mark) => <div key={mark.kind} class={`mark ${mark.kind}`} style={{ left: percent(mark.at) }} title={mark.says} />)}
    </div>
  );
}

export function Shown<T>({ read, children, what }: { read: Read<T>; children: (data: T) => ComponentChildren; what: string }): JSX.Element {
  if (read.data !== null) return <>{children(read.data)}</>;
  if (read.status === 404) return <p class="empty">There is no such {what}, or your token may not see it.</p>;
  if (read.error) return <p class="notice" role="alert">Could not read {what}: {read.error}</p>;
  return <p class="empty" aria-busy="true">Reading {what}…</p>;
}

export function Command({ text }: { text: string }): JSX.Element {
  return (
    <span class="command">
      <code>{text}</code>
      <Copy text={text} />
    </span>
  );
}

export function Facts({ rows }: { rows: [string, ComponentChildren][] }): JSX.Element {
  return (
    <dl class="facts">
      {rows.filter(([, value]) => value !== null && value !== undefined && value !== "").map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

export function Dialog({ title, onClose, children }: { title: string; onClose: () => void; children: ComponentChildren }): JSX.Element {
  const box = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const shown = box.current;
    if (shown && !shown.open) shown.showModal();
    return () => shown?.close();
  }, []);
  return (
    <dialog ref={box} onClose={onClose} aria-labelledby="dialog-title">
      <header>
        <h2 id="dialog-title">{title}</h2>
        <button type="button" onClick={onClose} aria-label="Close">✕</button>
      </header>
      {children}
    </dialog>
  );
}

/** Every key of a pool as a bar: used, promised and free. */
export function Capacity({ capacity, used, promised }: { capacity: Amounts; used: Amounts; promised: Amounts }): JSX.Element {
  return (
    <div class="capacity">
      {keysOf(capacity).map((key) => {
        const whole = capacity[key] ?? 0;
        const busy = used[key] ?? 0;
        const owed = Math.max(0, Math.min(promised[key] ?? 0, whole - busy));
        return (
          <div class="key" key={key}>
            <span class="name">{key}</span>
            <Bar label={key} whole={whole} parts={[
              { amount: busy, kind: "used", says: `${busy} used` },
              { amount: owed, kind: "promised", says: `${owed} promised` },
            ]} />
            <span class="figure">{busy} of {whole}{owed > 0 ? `, ${owed} promised` : ""}</span>
          </div>
        );
      })}
    </div>
  );
}

/** A text field that changes the address once the user pauses. */
export function Filter({ label, value, onChange }: { label: string; value: string; onChange: (value: string) => void }): JSX.Element {
  const [text, setText] = useState(value);
  const timer = useRef<number>();
  useEffect(() => setText(value), [value]);
  return (
    <label class="filter">
      <span>{label}</span>
      <input
        type="search"
        value={text}
        spellcheck={false}
        onInput={(event) => {
          const next = event.currentTarget.value;
          setText(next);
          clearTimeout(timer.current);
          timer.current = window.setTimeout(() => onChange(next), 250);
        }}
      />
    </label>
  );
}

export function Select({ label, value, options, onChange }: { label: string; value: string; options: [string, string][]; onChange: (value: string) => void }): JSX.Element {
  return (
    <label class="filter">
      <span>{label}</span>
      <select value={value} onChange={(event) => onChange(event.currentTarget.value)}>
        {options.map(([key, says]) => <option key={key} value={key}>{says}</option>)}
      </select>
    </label>
  );
}
