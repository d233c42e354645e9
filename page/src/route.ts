// Addresses: #/view/name?filter=…. The fragment is sent to no server, so names in it stay in the browser.
import { useEffect, useState } from "preact/hooks";

export interface Route {
  view: string;
  name: string;
  params: URLSearchParams;
}

export function parse(hash: string): Route {
  const [path = "", search = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  const [view = "", ...rest] = path.split("/");
  return { view: view || "overview", name: decode(rest.join("/")), params: new URLSearchParams(search) };
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

type Params = Record<string, string | null | undefined>;

export function address(view: string, name = "", params: Params = {}): string {
  const search = new URLSearchParams();
  for (const [key, value] of Object.entries(params)) if (value) search.set(key, value);
  const text = search.toString();
  return `#/${view}${name ? `/${encodeURIComponent(name)}` : ""}${text ? `?${text}` : ""}`;
}

/** The present address with some filters changed; null takes one away. */
export function changed(route: Route, params: Params): string {
  const all: Params = Object.fromEntries(route.params);
  return address(route.view, route.name, { ...all, ...params });
}

export function go(to: string, replace = false): void {
  if (replace) {
    history.replaceState(null, "", to);
    window.dispatchEvent(new HashChangeEvent("hashchange"));
  } else {
    location.hash = to;
  }
}

export function useRoute(): Route {
  const [route, setRoute] = useState(() => parse(location.hash));
  useEffect(() => {
    const listener = (): void => setRoute(parse(location.hash));
    window.addEventListener("hashchange", listener);
    return () => window.removeEventListener("hashchange", listener);
  }, []);
  return route;
}
