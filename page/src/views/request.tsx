// One request: where it stands and why, what became of it attempt by attempt, and what it prints.
import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { call, query, type Event, type Page, type Request, type Whoami } from "../api";
import { Act } from "../actions";
import { amounts, detail, nameOf, plain, sentence, shortId, span, timeIn } from "../format";
import { describe, useRead } from "../live";
import { address, changed, type Route } from "../route";
import { Age, Command, Copy, Facts, Sentence, Shown, Status, Table, Team, Time, Why } from "../ui";
import { protection, Where } from "./pool";

const ENDED = new Set(["released", "failed", "cancelled", "rejected", "deleted"]);

interface Story {
  reason?: { code: string; text: string; fix: string } | null;
  pools?: PoolStory[];
}
interface PoolStory {
  pool: string;
  place: number | null;
  in_share: boolean;
  bypassed: number;
  earliest_start: number | null;
  reason: { code: string; text: string; fix: string };
  holders: Holder[];
  candidates?: Candidate[];
  changes: { text: string }[] | null;
}
/** A holder as the engine weighed it for this waiter; why not, if it may not be stopped for it. */
interface Candidate {
  id: string;
  policy?: string;
  price?: number;
  why_not?: { text?: string } | string | null;
  [more: string]: unknown;
}
interface Holder {
  request: string;
  policy: string;
  amounts: Record<string, number>;
  in_share: boolean;
  preemptible: boolean;
  promised: boolean;
  leaving: boolean;
  nodes: string[];
  ends_in: number | null;
}

export function RequestView({ route, me }: { route: Route; me: Whoami }): JSX.Element {
  const path = `/requests/${encodeURIComponent(route.name)}`;
  const read = useRead<Request>(path);
  return (
    <Shown read={read} what="request">
      {(request) => {
        const over = ENDED.has(request.status);
        return (
          <>
            <h1>
              Request <code>{shortId(request.id ?? "")}</code> <Status is={request.status} />
            </h1>
            <p class="soft">{nameOf(request)} <code>{request.id}</code> <Copy text={request.id ?? ""} /></p>
            {request.comment && <p>{request.comment as string}</p>}
            {me.role !== "viewer" && <p class="actions">
              {!over && <Act me={me} title="Cancel" what={{ kind: "cancel", request }} />}
              {over && request.work && <Act me={me} title="Submit again" what={{ kind: "resubmit", request }} />}
            </p>}
            <Standing request={request} over={over} />
            <Related request={request} />
            <TimeLine request={request} />
            {request.work && <Logs request={request} route={route} />}
            <Declared request={request} />
          </>
        );
      }}
    </Shown>
  );
}

function Standing({ request, over }: { request: Request; over: boolean }): JSX.Element {
  const waits = request.status === "queued" || request.status === "suspended";
  const why = useRead<Story>(over ? null : `/requests/${request.id}/why`);
  const stories = why.data?.pools ?? [];
  return (
    <section aria-labelledby="why-title">
      <h2 id="why-title">{waits ? "Why it waits" : over ? "How it ended" : "Where it is"}</h2>
      {request.reason && <p><Why reason={request.reason} /></p>}
      {!request.reason && over && <p>It ended as {request.status}.</p>}
      {!waits && !over && <Facts rows={[["Pool", request.pool && <a href={address("pool", request.pool)}>{request.pool}</a>], ["Nodes", <Where request={request} />]]} />}
      {waits && why.data === null && (why.error ? <p class="notice">What would start it is not known: {why.error}</p> : <p class="soft" aria-busy="true">Trying what would start it…</p>)}
      {stories.map((story) => <InPool key={story.pool} story={story} />)}
    </section>
  );
}

function InPool({ story }: { story: PoolStory }): JSX.Element {
  return (
    <div class="card">
      <h3>In pool <a href={address("pool", story.pool, { tab: "queue" })}>{story.pool}</a></h3>
      <Facts
        rows={[
          ["Place in the queue", story.place ?? "beyond 100,000"],
          ["Right", story.in_share ? "in its share" : "it would borrow"],
          ["Overtaken", story.bypassed ? `${story.bypassed} times` : ""],
          ["Latest start", story.earliest_start === null ? "not known" : `in ${span(story.earliest_start)}`],
        ]}
      />
      {story.changes && story.changes.length > 0 && (
        <>
          <h4>What would start it, tried on the engine</h4>
          <ul>{story.changes.map((change, n) => <li key={n}><Sentence text={change.text} /></li>)}</ul>
        </>
      )}
      {story.candidates && story.candidates.length > 0 && (
        <details>
          <summary>Whom the engine weighed for it ({story.candidates.length})</summary>
          <Table<Candidate>
            label="Candidates"
            rows={story.candidates}
            keyOf={(each) => each.id}
            empty="Nobody."
            columns={[
              { title: "Request", show: (each) => <a href={address("request", each.id)} title={each.id}><code>{shortId(each.id)}</code></a> },
              ...Object.keys(story.candidates[0]!).filter((key) => key !== "id").map((key) => ({
                title: key.replaceAll("_", " "),
                show: (each: Candidate) => <Sentence text={each[key] === null ? "" : plain(each[key])} />,
              })),
            ]}
          />
        </details>
      )}
      <details>
        <summary>Who holds what it needs ({story.holders.length})</summary>
        <Table<Holder>
          label="Holders"
          rows={story.holders}
          keyOf={(holder) => `${holder.request}${holder.promised}`}
          empty="Nobody."
          columns={[
            { title: "Request", show: (holder) => <a href={address("request", holder.request)} title={holder.request}><code>{shortId(holder.request)}</code></a> },
            { title: "Team", show: (holder) => <Team name={holder.policy} /> },
            { title: "Holds", show: (holder) => amounts(holder.amounts), numeric: true },
            { title: "Right", show: (holder) => (holder.promised ? "promised" : holder.in_share ? "in share" : "borrowed") },
            { title: "Protection", show: (holder) => (holder.leaving ? "is leaving" : holder.preemptible ? "preemptible" : "not preemptible") },
            { title: "Nodes", show: (holder) => holder.nodes.join(", ") },
            { title: "Ends in", show: (holder) => (holder.ends_in === null ? "not known" : span(holder.ends_in)), numeric: true },
          ]}
        />
      </details>
    </div>
  );
}

/** The other tasks of its array or group, and what it waits for. */
function Related({ request }: { request: Request }): JSX.Element | null {
  const tasks = useRead<Page<Request>>(request.part_of ? `/requests${query({ part_of: request.part_of, limit: 500 })}` : null);
  const after = [...request.after.map((ref): [string, string] => [ref, "ends well"]), ...request.after_any.map((ref): [string, string] => [ref, "ends, in whatever way"])];
  if (!request.part_of && after.length === 0) return null;
  return (
    <section aria-labelledby="related-title">
      <h2 id="related-title">Array and dependencies</h2>
      {after.length > 0 && (
        <ul>{after.map(([ref, when]) => <li key={ref + when}>It starts only after <Dependency of={ref} /> {when}.</li>)}</ul>
      )}
      {request.part_of && (
        <Shown read={tasks} what="tasks">
          {(page) => (
            <details open={page.items.length <= 12}>
              <summary>
                {request.array_task === null ? "Its group" : `Task ${request.array_task} of array ${request.array}`}: {counted(page.items)}
              </summary>
              <Table<Request>
                label="Tasks of the array"
                rows={[...page.items].sort((a, b) => (a.array_task ?? 0) - (b.array_task ?? 0) || a.index - b.index)}
                keyOf={(each) => each.id ?? ""}
                opens={(each) => address("request", each.id ?? "")}
                empty="None that you may see."
                columns={[
                  { title: "Task", show: (each) => each.array_task ?? "", numeric: true },
                  { title: "Request", show: (each) => <a href={address("request", each.id ?? "")} title={each.id ?? ""} aria-current={each.id === request.id ? "true" : undefined}><code>{shortId(each.id ?? "")}</code></a> },
                  { title: "Status", show: (each) => <Status is={each.status} /> },
                  { title: "Attempt", show: (each) => each.attempt, numeric: true },
                  { title: "Where", show: (each) => <Where request={each} /> },
                ]}
              />
            </details>
          )}
        </Shown>
      )}
    </section>
  );
}

function Dependency({ of }: { of: string }): JSX.Element {
  const read = useRead<Request>(`/requests/${encodeURIComponent(of)}`);
  return <><a href={address("request", of)} title={of}><code>{shortId(of)}</code></a>{read.data && <> (<Status is={read.data.status} />)</>}</>;
}

/** Such as "12 tasks: 8 allocated, 4 queued". */
function counted(tasks: Request[]): string {
  const counts = new Map<string, number>();
  for (const each of tasks) counts.set(each.status, (counts.get(each.status) ?? 0) + 1);
  return `${tasks.length} tasks: ${[...counts].map(([status, many]) => `${many} ${status}`).join(", ")}`;
}

function TimeLine({ request }: { request: Request }): JSX.Element {
  const read = useRead<Page<Event>>(`/events${query({ request_id: request.id, limit: 500 })}`);
  return (
    <section aria-labelledby="line-title">
      <h2 id="line-title">Time line</h2>
      <Shown read={read} what="events">
        {(page) => {
          let attempt = 0;
          return (
            <ol class="story line">
              {page.items.map((event) => {
                const granted = Number((event.data as { attempt?: number }).attempt ?? 0);
                const begins = event.kind === "granted" && granted > attempt;
                if (begins) attempt = granted;
                return (
                  <li key={event.index} class={`event kind-${event.kind}`}>
                    <Time at={timeIn(request, event.at)} />
                    <span>
                      {begins && <b>Attempt {attempt}: </b>}
                      {sentence(event)} <span class="soft"><Sentence text={detail(event)} /></span>
                      <Weighed of={(event.data as { weighed?: Weighing[] }).weighed ?? []} />
                    </span>
                  </li>
                );
              })}
            </ol>
          );
        }}
      </Shown>
      {request.saved && <p>Its last checkpoint is <code>{request.saved.id}</code> of <Time at={timeIn(request, request.saved.at)} />, {request.saved.size} bytes.</p>}
    </section>
  );
}

/** Who could have been stopped instead, or was stopped too. */
interface Weighing {
  request: string;
  price: number;
  why_not: string | null;
}

function Weighed({ of }: { of: Weighing[] }): JSX.Element | null {
  if (of.length === 0) return null;
  return (
    <details>
      <summary>Whom the engine weighed ({of.length})</summary>
      <ul>
        {of.map(({ request, price, why_not }) => (
          <li key={request}>
            <Sentence text={`${request} at ${price}: ${why_not === null ? "stopped" : why_not.replaceAll("_", " ")}`} />
          </li>
        ))}
      </ul>
    </details>
  );
}

const LOG_CHARACTERS = 200_000; // of what is kept in the page; the whole log stays on its node

function Logs({ request, route }: { request: Request; route: Route }): JSX.Element {
  const task = Number(route.params.get("task") ?? 0);
  const stream = route.params.get("stream") ?? "both";
  const wanted = route.params.get("log") !== null;
  const [text, setText] = useState("");
  const [said, setSaid] = useState("");
  const box = useRef<HTMLPreElement>(null);
  const granted = request.allocation !== null;
  useEffect(() => {
    if (!wanted || !granted) return;
    const abort = new AbortController();
    setText("");
    setSaid("reading…");
    void followLog(request.id ?? "", task, stream, abort.signal, (more) => setText((old) => (old + more).slice(-LOG_CHARACTERS)), setSaid);
    return () => abort.abort();
  }, [wanted, granted, request.id, request.attempt, task, stream]);
  useEffect(() => {
    const shown = box.current;
    // It follows the end while the reader is there.
    if (shown && shown.scrollHeight - shown.scrollTop - shown.clientHeight < 200) shown.scrollTop = shown.scrollHeight;
  }, [text]);
  return (
    <section aria-labelledby="logs-title">
      <h2 id="logs-title">Logs</h2>
      {!wanted ? (
        <p><a class="button" href={changed(route, { log: "1" })}>Follow what it prints</a> <Command text={`cede logs ${request.id} --follow`} /></p>
      ) : (
        <>
          <p class="tabs">
            {(["both", "stdout", "stderr"] as const).map((each) => (
              <a key={each} href={changed(route, { stream: each })} aria-current={stream === each ? "true" : undefined}>{each}</a>
            ))}
            {request.tasks > 1 && Array.from({ length: Math.min(request.tasks, 64) }, (_, n) => (
              <a key={n} href={changed(route, { task: String(n) })} aria-current={task === n ? "true" : undefined}>task {n}</a>
            ))}
          </p>
          <pre ref={box} class="log" tabIndex={0} aria-label="What it prints">{text}</pre>
          <p class="soft" role="status">{granted ? said : "It has not started, so it has printed nothing yet."}</p>
        </>
      )}
    </section>
  );
}

async function followLog(id: string, task: number, stream: string, signal: AbortSignal, add: (text: string) => void, say: (text: string) => void): Promise<void> {
  try {
    const response = await call(`/requests/${id}/logs${query({ task, stream, follow: true, tail: 1000 })}`, { signal });
    say("following");
    const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      add(value);
    }
    say("this is all of it");
  } catch (error) {
    if (!signal.aborted) say(describe(error));
  }
}

function Declared({ request }: { request: Request }): JSX.Element {
  const settings = request.settings as Record<string, unknown>;
  return (
    <section aria-labelledby="declared-title">
      <h2 id="declared-title">As it was submitted</h2>
      <Facts
        rows={[
          ["Team", <Team name={request.component} />],
          ["Asks for", amounts(request.resources)],
          ["Tasks", request.tasks > 1 ? request.tasks : ""],
          ["Submitted", <><Age of={request.created} /> ago by {request.owner}</>],
          ["Protection", protection(request)],
          ["Attempt", `${request.attempt}${request.preempted_count ? `, preempted ${request.preempted_count} times` : ""}${request.lost_count ? `, lost ${request.lost_count} times` : ""}`],
          ["Walltime", request.walltime === null ? "" : span(Number(request.walltime))],
          ["Checkpoint", request.checkpoint === "none" ? "" : String(request.checkpoint)],
          ["Command", request.command && <code>{request.command}</code>],
          ["Directory", request.work?.directory && <code>{request.work.directory}</code>],
          ["Labels", Object.keys(request.labels ?? {}).length ? plain(request.labels) : ""],
          ["Tenant", request.tenant as string | null],
          ["Part of", request.part_of && <a href={address("request", request.part_of)}><code>{shortId(request.part_of)}</code></a>],
          ["Settings", Object.keys(settings).length ? plain(settings) : ""],
        ]}
      />
    </section>
  );
}
