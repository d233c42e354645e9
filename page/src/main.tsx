// The shell: signing in, addresses, keys, and whether the server is there.
import "./style.css";
import { render, type JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { forgetToken, get, hasToken, isKept, keepToken, Problem, openLink, takeCodeFromAddress, useToken, type Whoami } from "./api";
import { WhatIf } from "./actions";
import { clock, span } from "./format";
import { describe, startLive, stopLive, useLink } from "./live";
import { address, go, useRoute, type Route } from "./route";
import { Dialog } from "./ui";
import { Events } from "./views/events";
import { NodeView } from "./views/node";
import { Overview } from "./views/overview";
import { PoolView } from "./views/pool";
import { RequestView } from "./views/request";
import { Settings } from "./views/settings";
import { UsageView } from "./views/usage";

const VIEWS: [string, string][] = [["overview", "Overview"], ["usage", "Usage"], ["events", "Events"], ["settings", "Settings"]];
const RETRY_MS = 2_000;

// At once, not in an effect: somebody may go to another address before the first frame is drawn.
let code = takeCodeFromAddress();

function App(): JSX.Element {
  const [me, setMe] = useState<Whoami | null>(null);
  const [said, setSaid] = useState("");
  const leave = (message: string): void => {
    stopLive();
    forgetToken();
    setMe(null);
    setSaid(message);
  };
  const enter = async (): Promise<void> => {
    try {
      if (code !== null) {
        await openLink(code);
        code = null;
      }
      setMe(await get<Whoami>("/whoami"));
      setSaid("");
      startLive(() => leave("The token is not valid any more."));
    } catch (error) {
      if (error instanceof Problem && error.status === 401) return leave("The token is not valid.");
      if (error instanceof Problem && error.code === "no_such_link") {
        code = null;
        return leave(`It does not open: ${error.message}.`);
      }
      if (!hasToken() && code === null) return;
      setSaid(`The server: ${describe(error)}; trying again.`);
      setTimeout(() => void enter(), RETRY_MS);
    }
  };
  useEffect(() => {
    const listener = (): void => {
      const given = takeCodeFromAddress();
      if (given === null) return;
      code = given;
      stopLive();
      setMe(null);
      void enter();
    };
    window.addEventListener("hashchange", listener);
    if (hasToken() || code !== null) void enter();
    return () => window.removeEventListener("hashchange", listener);
  }, []);
  if (me === null) return <SignIn said={said} onEnter={() => void enter()} />;
  return <Shell me={me} onLeave={() => leave("")} />;
}

function SignIn({ said, onEnter }: { said: string; onEnter: () => void }): JSX.Element {
  const [token, setToken] = useState("");
  const [keep, setKeep] = useState(false);
  return (
    <main class="signin">
      <h1>cede</h1>
      <form
        autocomplete="off"
        onSubmit={(event) => {
          event.preventDefault();
          useToken(token.trim(), keep);
          setToken("");
          onEnter();
        }}
      >
        <label class="field">
          <span>Token</span>
          <input id="token" type="password" value={token} placeholder="cede_…" spellcheck={false} required onInput={(event) => setToken(event.currentTarget.value)} />
        </label>
        <label class="check">
          <input id="keep" type="checkbox" checked={keep} onChange={(event) => setKeep(event.currentTarget.checked)} />
          Keep it in this tab, so that a reload does not ask again
        </label>
        <button type="submit" class="primary">Sign in</button>
        <p id="said" class="notice" role="alert">{said}</p>
        <p class="soft">The token is sent to this server only. <code>cede page</code> prints a link that signs you in; <code>cede token create</code> makes a token.</p>
      </form>
    </main>
  );
}

function Shell({ me, onLeave }: { me: Whoami; onLeave: () => void }): JSX.Element {
  const route = useRoute();
  const link = useLink();
  const [help, setHelp] = useState(false);
  const [kept, setKept] = useState(isKept());
  useKeys(() => setHelp(true));
  useEffect(() => {
    document.title = `${route.name || titleOf(route.view)} · cede`;
    document.getElementById("main")?.focus({ preventScroll: true });
    window.scrollTo(0, 0);
  }, [route.view, route.name]);
  const operates = me.role === "operator" || me.role === "admin";
  return (
    <>
      <a class="skip" href="#main" onClick={(event) => { event.preventDefault(); document.getElementById("main")?.focus(); }}>Skip to content</a>
      <header class="top">
        <a class="brand" href="#/">cede</a>
        <nav aria-label="Views">
          {VIEWS.map(([view, title]) => <a key={view} href={address(view)} aria-current={route.view === view ? "page" : undefined}>{title}</a>)}
        </nav>
        <Search />
        <p id="who">
          {me.name} ({me.role}){me.subjects.length > 0 && ` for ${me.subjects.join(", ")}`}
          {!kept && <button type="button" title="A reload then does not ask for the token again" onClick={() => { keepToken(); setKept(true); }}>Keep in this tab</button>}
          <button type="button" id="leave" onClick={onLeave}>Sign out</button>
          <button type="button" aria-label="Keyboard help" onClick={() => setHelp(true)}>?</button>
        </p>
      </header>
      <Away link={link} />
      <main id="main" tabIndex={-1} class={link.state === "away" ? "stale" : ""}>
        <View route={route} me={me} />
        {route.view === "overview" && operates && <WhatIf />}
      </main>
      <footer><p id="state" role="status">{link.state === "live" ? "live" : link.state}</p></footer>
      {help && <Help onClose={() => setHelp(false)} />}
    </>
  );
}

function titleOf(view: string): string {
  return VIEWS.find(([key]) => key === view)?.[1] ?? "cede";
}

function View({ route, me }: { route: Route; me: Whoami }): JSX.Element {
  switch (route.view) {
    case "overview":
      return <Overview route={route} />;
    case "pool":
      return <PoolView key={route.name} route={route} />;
    case "request":
      return <RequestView key={route.name} route={route} me={me} />;
    case "node":
      return <NodeView key={route.name} route={route} me={me} />;
    case "events":
      return <Events route={route} />;
    case "usage":
      return <UsageView route={route} />;
    case "settings":
      return <Settings me={me} />;
    default:
      return <p class="empty">There is no view at this address. <a href="#/">Overview</a></p>;
  }
}

/** Says since when the server is away; what is shown below is as of then, and dimmed. */
function Away({ link }: { link: ReturnType<typeof useLink> }): JSX.Element | null {
  const [, tick] = useState(0);
  const away = link.state === "away";
  useEffect(() => {
    if (!away) return;
    const timer = window.setInterval(() => tick((n) => n + 1), 1000);
    return () => clearInterval(timer);
  }, [away]);
  if (!away) return null;
  return (
    <p id="away" class="banner" role="alert">
      The server is away: {link.problem}. What you see is as of {clock(new Date(link.heard))}, {span((Date.now() - link.heard) / 1000)} ago. Trying again by itself.
    </p>
  );
}

/** Goes to a request, a pool, a node or a team by its name or id. */
function Search(): JSX.Element {
  const [said, setSaid] = useState("");
  const box = useRef<HTMLInputElement>(null);
  const find = async (text: string): Promise<void> => {
    const name = encodeURIComponent(text);
    const places: [string, string][] = [[`/pools/${name}`, "pool"], [`/nodes/${name}`, "node"], [`/requests/${name}`, "request"]];
    for (const [path, view] of places) {
      try {
        const found = await get<{ id: string; name?: string }>(path);
        setSaid("");
        if (box.current) box.current.value = "";
        return go(address(view, view === "request" ? found.id : (found.name ?? found.id)));
      } catch (error) {
        if (!(error instanceof Problem) || (error.status !== 404 && error.status !== 422)) return setSaid(describe(error));
      }
    }
    const policies = await get<{ items: { component: string; pool: string }[] }>(`/policies?limit=1&component=${name}`);
    const policy = policies.items[0];
    if (!policy) return setSaid(`No pool, node, request or team ${text}.`);
    setSaid("");
    go(address("pool", policy.pool, { tab: "queue", team: policy.component }));
  };
  return (
    <form
      role="search"
      class="search"
      onSubmit={(event) => {
        event.preventDefault();
        const text = box.current?.value.trim();
        if (text) void find(text);
      }}
    >
      <input ref={box} id="search" type="search" placeholder="Find a request, pool, node, team" aria-label="Find a request, pool, node or team" spellcheck={false} />
      <span class="soft" role="status">{said}</span>
    </form>
  );
}

const KEYS: [string, string][] = [
  ["/", "Search"],
  ["j, k", "Next and previous row"],
  ["Enter", "Open the row"],
  ["g then o, u, e, s", "Go to Overview, Usage, Events, Settings"],
  ["Esc", "Leave a field or a dialog"],
  ["?", "This help"],
];

function Help({ onClose }: { onClose: () => void }): JSX.Element {
  return (
    <Dialog title="Keys" onClose={onClose}>
      <dl class="facts">{KEYS.map(([key, does]) => <div key={key}><dt><kbd>{key}</kbd></dt><dd>{does}</dd></div>)}</dl>
      <p class="soft">Everything here is also an API call and a command: <code>cede --help</code>.</p>
    </Dialog>
  );
}

function useKeys(help: () => void): void {
  useEffect(() => {
    let goes = false;
    const listener = (event: KeyboardEvent): void => {
      const at = event.target as HTMLElement;
      const typing = at.closest("input, select, textarea, dialog") !== null;
      if (event.key === "Escape" && typing) return at.blur();
      if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
      const view = { o: "overview", u: "usage", e: "events", s: "settings" }[event.key];
      if (goes && view) {
        event.preventDefault();
        goes = false;
        return go(address(view));
      }
      goes = event.key === "g";
      if (event.key === "/") document.getElementById("search")?.focus();
      else if (event.key === "?") help();
      else if (event.key === "j") moveRow(1);
      else if (event.key === "k") moveRow(-1);
      else if (event.key === "Enter" && at.dataset.open) go(at.dataset.open);
      else return;
      event.preventDefault();
    };
    window.addEventListener("keydown", listener);
    return () => window.removeEventListener("keydown", listener);
  }, []);
}

function moveRow(by: number): void {
  const rows = [...document.querySelectorAll<HTMLElement>("tr[data-open]")];
  const now = rows.indexOf(document.activeElement as HTMLElement);
  const row = rows[Math.min(rows.length - 1, Math.max(0, now + by))];
  if (!row) return;
  row.tabIndex = -1;
  row.focus();
  row.scrollIntoView({ block: "nearest" });
}

render(<App />, document.getElementById("root")!);
