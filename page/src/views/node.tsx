// One node: its devices, the work on them, its heartbeats and what operators asked of it.
import type { JSX } from "preact";
import type { Node, Whoami } from "../api";
import { Act } from "../actions";
import { amounts, plain, span } from "../format";
import { useRead } from "../live";
import { address, type Route } from "../route";
import { Age, Facts, Id, Shown, Status, Table, Team } from "../ui";
import { Devices } from "./pool";

type OnNode = Node["allocations"][number];

export function NodeView({ route, me }: { route: Route; me: Whoami }): JSX.Element {
  const read = useRead<Node>(`/nodes/${encodeURIComponent(route.name)}`);
  return (
    <Shown read={read} what="node">
      {(node) => (
        <>
          <h1>Node {node.name} <Status is={node.state} /></h1>
          {node.reason && <p>{node.reason}</p>}
          {(me.role === "operator" || me.role === "admin") && (
            <p class="actions">
              {node.claimed_by ? <Act me={me} title="Unclaim" what={{ kind: "unclaim", node: node.name }} /> : <Act me={me} title="Claim" what={{ kind: "claim", node: node.name }} />}
              {node.out === "no" ? <Act me={me} title="Drain" what={{ kind: "drain", node: node.name }} /> : <Act me={me} title="Undrain" what={{ kind: "undrain", node: node.name }} />}
            </p>
          )}
          <Devices node={node} />
          <h2>Work on it</h2>
          <Table<OnNode>
            label={`Work on node ${node.name}`}
            rows={node.allocations}
            keyOf={(each) => `${each.request}.${each.attempt}`}
            opens={(each) => address("request", each.request)}
            empty="Nothing that you may see is on this node."
            columns={[
              { title: "Request", show: (each) => <Id id={each.request} /> },
              { title: "Team", show: (each) => <Team name={each.subject.replace(/^team:/, "")} /> },
              { title: "State", show: (each) => <Status is={each.state} /> },
              { title: "Attempt", show: (each) => each.attempt, numeric: true },
              { title: "Tasks", show: (each) => each.tasks.join(", ") },
              { title: "Devices", show: (each) => each.devices.join(", ") },
            ]}
          />
          <h2>Facts</h2>
          <Facts
            rows={[
              ["Pool", node.pool ? <a href={address("pool", node.pool, { tab: "nodes" })}>{node.pool}</a> : "none"],
              ["Has", amounts(node.amounts)],
              ["Held", amounts(node.held)],
              ["Free", amounts(node.free)],
              ["Held outside", node.others_why && `${amounts(node.others)}: ${node.others_why}`],
              ["Bridge", node.bridge],
              ["Heard of", `${span(node.silent)} ago; it should call every ${span(node.heartbeat)}`],
              ["Lease", `its work survives ${span(node.lease)} without the server`],
              ["Failed starts", node.failures || ""],
              ["Group", node.group],
              ["Labels", Object.keys(node.labels).length ? plain(node.labels) : ""],
              ["Fingerprint", node.fingerprint && <code>{node.fingerprint}</code>],
              ["Checkpoints", node.checkpoints === "own" ? "its own folder: work that saved itself here resumes here" : node.checkpoints],
              ["Claimed by", node.claimed_by],
              ["Joined", <><Age of={node.created} /> ago</>],
            ]}
          />
        </>
      )}
    </Shown>
  );
}
