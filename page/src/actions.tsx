// Acting: every action shows what the engine would do first, and is one documented call.
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { send, type Amounts, type Policy, type Pool, type Request, type Whoami } from "./api";
import { shortId } from "./format";
import { describe, refresh } from "./live";
import { address, go } from "./route";
import { Command, Dialog, Sentence } from "./ui";
import { commandOf, NEW, plan, understand, Unclear, type Change, type Effect } from "./whatif";

export type Action =
  | { kind: "cancel"; request: Request }
  | { kind: "resubmit"; request: Request }
  | { kind: "drain" | "undrain"; node: string }
  | { kind: "claim" | "unclaim"; node: string }
  | { kind: "pool"; pool: Pool }
  | { kind: "policy"; policy: Policy };

const mayPlan = (me: Whoami): boolean => me.role === "operator" || me.role === "admin";

/** A button that opens the dialog of an action. */
export function Act({ me, title, what }: { me: Whoami; title: string; what: Action }): JSX.Element {
  const [open, setOpen] = useState(false);
  return (
    <>
      <button type="button" onClick={() => setOpen(true)}>{title}</button>
      {open && <ActDialog me={me} title={title} what={what} onClose={() => setOpen(false)} />}
    </>
  );
}

function ActDialog({ me, title, what, onClose }: { me: Whoami; title: string; what: Action; onClose: () => void }): JSX.Element {
  const [edit, setEdit] = useState(() => initial(what));
  const [said, setSaid] = useState("");
  const [busy, setBusy] = useState(false);
  const change = changeOf(what, edit, me);
  const perform = async (): Promise<void> => {
    setBusy(true);
    setSaid("");
    try {
      const made = await act(what, edit);
      refresh();
      onClose();
      if (made) go(address("request", made));
    } catch (error) {
      setSaid(describe(error));
      setBusy(false);
    }
  };
  return (
    <Dialog title={`${title} ${nameOf(what)}`} onClose={onClose}>
      {what.kind === "drain" && <Field label="Reason, for people" value={edit.reason ?? ""} onInput={(reason) => setEdit({ ...edit, reason })} />}
      {what.kind === "policy" && (
        <div class="fields">
          <Field label="Reserved, such as gpu=8" value={edit.reserved ?? ""} onInput={(reserved) => setEdit({ ...edit, reserved })} />
          <Field label="Limit, such as gpu=16; empty for none" value={edit.limit ?? ""} onInput={(limit) => setEdit({ ...edit, limit })} />
          <Field label="Priority" value={edit.priority ?? ""} onInput={(priority) => setEdit({ ...edit, priority })} />
        </div>
      )}
      {what.kind === "claim" && <Field label="For whose sensitive work: the owner; empty for yours" value={edit.whom ?? ""} onInput={(whom) => setEdit({ ...edit, whom })} />}
      {what.kind === "pool" && (
        <div class="fields">
          <Field label="Description" value={edit.description ?? ""} onInput={(description) => setEdit({ ...edit, description })} />
          {what.pool.nodes === null && <Field label="Capacity, such as gpu=64; 0 takes a key away" value={edit.capacity ?? ""} onInput={(capacity) => setEdit({ ...edit, capacity })} />}
          <Field label="Cost of a unit an hour, such as gpu=2.5; for reports" value={edit.cost ?? ""} onInput={(cost) => setEdit({ ...edit, cost })} />
        </div>
      )}
      {change instanceof Unclear ? (
        <p class="notice" role="alert">{change.message}</p>
      ) : change && mayPlan(me) ? (
        <Effects key={JSON.stringify(change)} change={change} />
      ) : (
        change && <p class="soft">Operators are shown here what others would start or stop.</p>
      )}
      {change && !(change instanceof Unclear) && <p>The same on the command line: <Command text={commandOf(change)} /></p>}
      {said && <p class="notice" role="alert">{said}</p>}
      <p class="buttons">
        <button type="button" onClick={onClose}>Do nothing</button>
        <button type="button" class="primary" disabled={busy || change instanceof Unclear} onClick={() => void perform()}>{title}</button>
      </p>
    </Dialog>
  );
}

interface Edit {
  reason?: string;
  whom?: string;
  description?: string;
  capacity?: string;
  cost?: string;
  reserved?: string;
  limit?: string;
  priority?: string;
}

function initial(what: Action): Edit {
  if (what.kind === "pool") return { description: what.pool.description, capacity: written(what.pool.capacity), cost: written(costs(what.pool)) };
  if (what.kind !== "policy") return {};
  return { reserved: written(what.policy.reserved as Amounts), limit: written(what.policy.limit as Amounts), priority: String(what.policy.priority) };
}

const written = (given: Amounts): string => Object.entries(given).map(([key, amount]) => `${key}=${amount}`).join(", ");

const costs = (pool: Pool): Amounts => (pool.settings.cost_per_hour ?? {}) as Amounts;

function read(text: string, field: string, number = "\\d+"): Amounts {
  const found: Amounts = {};
  for (const part of text.split(/[,\s]+/).filter(Boolean)) {
    const match = new RegExp(`^([a-z_]\\w*)=(${number})$`, "i").exec(part);
    if (!match) throw new Unclear(`${field}: write KEY=NUMBER, such as gpu=8, not ${part}.`);
    found[match[1]!] = Number(match[2]);
  }
  return found;
}

function patchOf(policy: Policy, edit: Edit): { reserved: Amounts; limit: Amounts; priority: number } {
  if (!/^-?\d+$/.test(edit.priority ?? "")) throw new Unclear("Priority: write a whole number.");
  return { reserved: read(edit.reserved ?? "", "Reserved"), limit: read(edit.limit ?? "", "Limit"), priority: Number(edit.priority ?? policy.priority) };
}

/** What of a pool is written otherwise than it is. */
function poolPatch(pool: Pool, edit: Edit): { description?: string; capacity?: Amounts; cost?: Amounts } {
  const found: { description?: string; capacity?: Amounts; cost?: Amounts } = {};
  if (edit.description !== undefined && edit.description !== pool.description) found.description = edit.description;
  const cost = read(edit.cost ?? "", "Cost", "\\d+(?:\\.\\d+)?");
  if (written(cost) !== written(costs(pool))) found.cost = cost;
  if (pool.nodes === null) {
    const capacity = read(edit.capacity ?? "", "Capacity");
    if (written(capacity) !== written(pool.capacity)) found.capacity = { ...Object.fromEntries(Object.keys(pool.capacity).map((key) => [key, 0])), ...capacity };
  }
  return found;
}

const poolBody = (patch: ReturnType<typeof poolPatch>): Record<string, unknown> => ({
  ...(patch.description === undefined ? {} : { description: patch.description }),
  ...(patch.capacity ? { capacity: patch.capacity } : {}),
  ...(patch.cost ? { settings: { cost_per_hour: patch.cost } } : {}),
});

function changeOf(what: Action, edit: Edit, me: Whoami): Change | Unclear | null {
  switch (what.kind) {
    case "cancel":
      return { kind: "cancel", id: what.request.id ?? "" };
    case "resubmit":
      return { kind: "submit", team: what.request.component, type: what.request.component_type, pool: what.request.pool, amounts: without(what.request.resources, "step_run") };
    case "drain":
    case "undrain":
    case "unclaim":
      return { kind: what.kind, node: what.node };
    case "claim":
      return { kind: "claim", node: what.node, whom: edit.whom?.trim() || me.name };
    case "pool":
      try {
        return { kind: "pool", pool: what.pool.name, ...poolPatch(what.pool, edit) };
      } catch (error) {
        return error as Unclear;
      }
    case "policy":
      try {
        return { kind: "policy", team: what.policy.component, pool: what.policy.pool, ...patchOf(what.policy, edit) };
      } catch (error) {
        return error as Unclear;
      }
  }
}

function nameOf(what: Action): string {
  if (what.kind === "policy") return `policy ${what.policy.name} of ${what.policy.pool}`;
  if (what.kind === "pool") return `pool ${what.pool.name}`;
  return "request" in what ? shortId(what.request.id ?? "") : what.node;
}

/** The documented call; the id of a request that it made. */
async function act(what: Action, edit: Edit): Promise<string | null> {
  switch (what.kind) {
    case "cancel":
      await send("POST", `/requests/${what.request.id}/cancel`);
      return null;
    case "resubmit":
      return (await send<Request>("POST", "/requests", again(what.request)))?.id ?? null;
    case "drain":
      await send("POST", `/nodes/${encodeURIComponent(what.node)}/drain`, { reason: edit.reason ?? "" });
      return null;
    case "undrain":
      await send("POST", `/nodes/${encodeURIComponent(what.node)}/undrain`);
      return null;
    case "claim":
      await send("POST", "/nodes/claim", { nodes: [what.node], ...(edit.whom?.trim() ? { for: edit.whom.trim() } : {}) });
      return null;
    case "unclaim":
      await send("POST", "/nodes/unclaim", { nodes: [what.node] });
      return null;
    case "pool":
      await send("PATCH", `/pools/${what.pool.id}`, poolBody(poolPatch(what.pool, edit)));
      return null;
    case "policy":
      await send("PATCH", `/policies/${what.policy.id}`, patchOf(what.policy, edit));
      return null;
  }
}

/** What was submitted, as a new submission. */
function again(request: Request): Record<string, unknown> {
  const { component, component_type, preemptible, labels, comment, work, walltime, checkpoint, tenant } = request;
  const shape = request.shape;
  return {
    component,
    component_type,
    preemptible,
    labels,
    comment,
    work,
    walltime,
    checkpoint,
    tenant,
    class: request.class,
    resources: shape ? shape.resources : without(request.resources, "step_run"),
    ...(request.tasks > 1 ? { tasks: request.tasks } : {}),
  };
}

const without = (given: Amounts, key: string): Amounts => Object.fromEntries(Object.entries(given).filter(([each]) => each !== key));

function Field({ label, value, onInput }: { label: string; value: string; onInput: (value: string) => void }): JSX.Element {
  return (
    <label class="field">
      <span>{label}</span>
      <input value={value} spellcheck={false} onInput={(event) => onInput(event.currentTarget.value)} />
    </label>
  );
}

function Effects({ change }: { change: Change }): JSX.Element {
  const [effect, setEffect] = useState<Effect | null>(null);
  const [said, setSaid] = useState("");
  const ask = (): void => {
    setSaid("The engine is planning…");
    plan(change)
      .then((found) => {
        setEffect(found);
        setSaid("");
      })
      .catch((error: unknown) => setSaid(error instanceof Unclear ? error.message : describe(error)));
  };
  return (
    <div class="effects" aria-live="polite">
      {!effect && !said && <button type="button" onClick={ask}>Show what it would do</button>}
      {said && <p class="soft">{said}</p>}
      {effect && <EffectList effect={effect} />}
    </div>
  );
}

function EffectList({ effect }: { effect: Effect }): JSX.Element {
  const called = (id: string | undefined): JSX.Element => (id === NEW || !id ? <b>{id ?? "nobody"}</b> : <Sentence text={id} />);
  const nothing = !effect.starts.length && !effect.stops.length && !effect.rejected.length && !effect.waits.length;
  return (
    <>
      <h3>What the engine would do because of it</h3>
      {nothing && <p>Nothing would start and nothing would be stopped.</p>}
      <ul>
        {effect.stops.map((each, n) => <li key={`s${n}`}><b>Stops</b> {(each.victims ?? []).map((id, at) => <span key={id}>{at > 0 && ", "}{called(id)}</span>)} for {called(each.beneficiary ?? each.for ?? undefined)}{each.reason && <span class="soft"> ({each.reason.code.replaceAll("_", " ")})</span>}</li>)}
        {effect.starts.map((each, n) => <li key={`g${n}`}><b>Starts</b> {called(each.request)} in {each.pool}</li>)}
        {effect.waits.map((each) => <li key="w"><b>Waits:</b> {called(each.request)} <span class="soft">({each.reason?.code.replaceAll("_", " ")})</span></li>)}
        {effect.rejected.map((each, n) => <li key={`r${n}`}><b>Rejects</b> {called(each.request)} <span class="soft">{each.reason?.code.replaceAll("_", " ")}</span></li>)}
      </ul>
    </>
  );
}

/** The what-if box: a change in words, planned by the engine and never done. */
export function WhatIf(): JSX.Element {
  const [text, setText] = useState("");
  const [asked, setAsked] = useState<Change | null>(null);
  const [effect, setEffect] = useState<Effect | null>(null);
  const [said, setSaid] = useState("");
  const ask = async (): Promise<void> => {
    setEffect(null);
    setAsked(null);
    try {
      const change = understand(text);
      setAsked(change);
      setSaid("The engine is planning…");
      setEffect(await plan(change));
      setSaid("");
    } catch (error) {
      setSaid(error instanceof Unclear ? error.message : describe(error));
    }
  };
  return (
    <section class="whatif" aria-labelledby="whatif-title">
      <h2 id="whatif-title">What if</h2>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          void ask();
        }}
      >
        <label class="field">
          <span>A change in words; nothing is done</span>
          <input id="whatif" value={text} placeholder="reserve 8 for blue" spellcheck={false} onInput={(event) => setText(event.currentTarget.value)} />
        </label>
        <button type="submit">Plan</button>
      </form>
      <div aria-live="polite">
        {said && <p class="soft">{said}</p>}
        {effect && <EffectList effect={effect} />}
      </div>
      {effect && asked && <p>To do it: <Command text={commandOf(asked)} /></p>}
    </section>
  );
}

