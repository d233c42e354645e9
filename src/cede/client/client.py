"""`Client`: every route of the API as a method, grouped by resource.

Values are the API's own JSON objects: there is no second set of names to learn. Lists are iterators
that follow the cursors, so a list of a million requests never sits in memory.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cede.client.config import resolve
from cede.client.errors import CedeClientError, NotFound
from cede.client.http import API, Http, Json, problem, segment

if TYPE_CHECKING:
    from cede.client.allocation import Allocation

PAGE = 200
# Seconds that an answer may take on top of the time that the server was asked to hold it back.
HELD_TIMEOUT = 10.0


class Client:
    """One connection to one server, for any number of threads. Close it, or use it in a `with`."""

    def __init__(
        self, server: str | None = None, token: str | None = None, *, http: Http | None = None
    ) -> None:
        self.http = http or Http(resolve(server, token))
        self.pools = Pools(self.http)
        self.policies = Policies(self.http)
        self.requests = Requests(self.http)
        self.nodes = Nodes(self.http)
        self.tenants = Tenants(self.http)
        self.tokens = Tokens(self.http)
        self.audit = Audit(self.http)

    @property
    def server(self) -> str:
        return self.http.server

    def close(self) -> None:
        self.http.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def whoami(self) -> Json:
        return _object(self.http.call("GET", f"{API}/whoami"))

    def page_link(self) -> str:
        """A link that opens the page with this token; it works once, within minutes."""
        made = _object(self.http.call("POST", f"{API}/links"))
        return f"{self.server}/#link={made['code']}"

    def snapshot(self) -> Json:
        """Return the whole living state, as `cede plan` reads it."""
        return _object(self.http.call("GET", f"{API}/snapshot", timeout=60))

    def status(self) -> Json:
        """Return every pool, and each policy with what it has reserved, uses, borrows and lends."""
        return _object(self.http.call("GET", f"{API}/status", timeout=60))

    def plan(
        self, snapshot: Mapping[str, Any], *, until_rest: bool = False, horizon: float | None = None
    ) -> Json:
        """Return what the server's engine would do from a snapshot; nothing is changed."""
        params = {"until_rest": "true" if until_rest else None, "horizon": horizon}
        answer = self.http.call("POST", f"{API}/plan", params=params, body=snapshot, timeout=60)
        return _object(answer)

    def configuration(self) -> Json:
        """Return every pool, policy and tenant, in the form that `apply` takes."""
        return _object(self.http.call("GET", f"{API}/configuration", timeout=60))

    def apply(
        self, configuration: Mapping[str, Any], *, prune: bool = False, dry_run: bool = False
    ) -> Json:
        """Make pools, policies and tenants as they are declared, all of it or nothing.

        `prune` deletes what is there and not declared, of the kinds that are declared at all. A dry
        run returns what would change, and which requests that would stop, pause or start.
        """
        params = {"prune": prune or None, "dry_run": dry_run or None}
        answer = self.http.call(
            "POST", f"{API}/configuration", params=params, body=dict(configuration), timeout=60
        )
        return _object(answer)

    def usage(
        self,
        *,
        by: str = "pool",
        since: float | None = None,
        begin: str | None = None,
        end: str | None = None,
        days: bool = False,
        label: str | None = None,
    ) -> Json:
        """Return what was held `by` each pool, policy, team, user, tenant or `label`, in the last
        `since` seconds, or from `begin` to before `end`, which are times of ISO 8601; or day by
        day.
        """
        params: dict[str, Any] = {"by": by, "label": label, "days": "true" if days else None}
        params |= {"since": since, "from": begin, "to": end}
        return _object(self.http.call("GET", f"{API}/usage", params=_given(params), timeout=60))

    def history(
        self,
        /,
        *,
        since: float | None = None,
        begin: str | None = None,
        end: str | None = None,
        **filters: Any,
    ) -> Iterator[Json]:
        """Iterate over requests that ended in a period, the last first, with what each held, lost
        and cost; narrowed by `pool`, `component` and `user`.
        """
        asked = _given({**filters, "since": since, "from": begin, "to": end, "limit": 500})
        cursor = None
        while True:
            params = {**asked, "cursor": cursor} if cursor else asked
            page = _object(self.http.call("GET", f"{API}/history", params=params, timeout=60))
            yield from page["items"]
            cursor = page["next"]
            if cursor is None:
                return

    def pool_history(
        self,
        pool: str,
        *,
        since: float | None = None,
        begin: str | None = None,
        end: str | None = None,
        step: float | None = None,
    ) -> Json:
        """Return the levels of a pool over time: capacity, used, borrowed, free and waited for."""
        params = _given({"since": since, "from": begin, "to": end})
        if step is not None:
            params["step"] = round(step)
        path = f"{API}/pools/{segment(pool)}/history"
        return _object(self.http.call("GET", path, params=params, timeout=60))

    def events(
        self, *, after: int | None = None, follow: bool = False, request: str | None = None
    ) -> Iterator[Json]:
        """Iterate over the journal in order, whole or of one request; with `follow` for ever,
        across lost connections.
        """
        from cede.client.events import follow_events, past_events

        if follow:
            return follow_events(self.http, after, request)
        return past_events(self.http, after or 0, request)

    def allocation(
        self,
        *,
        wait_timeout: float | None = None,
        on_wait: Callable[[Json], None] | None = None,
        on_preempting: Callable[[Json], None] | None = None,
        checkpoint_dir: str | os.PathLike[str] | None = None,
        **demand: Any,
    ) -> Allocation:
        """Units to hold for the length of a `with` block; see `cede.client.demand.submission` for
        names."""
        from pathlib import Path

        from cede.client.allocation import Allocation
        from cede.client.demand import submission

        return Allocation(
            self,
            submission(**demand),
            wait_timeout=wait_timeout,
            on_wait=on_wait,
            on_preempting=on_preempting,
            checkpoint_dir=None if checkpoint_dir is None else Path(checkpoint_dir),
        )


class _Group:
    def __init__(self, http: Http) -> None:
        self._http = http

    def _pages(self, path: str, params: Mapping[str, Any]) -> Iterator[Json]:
        cursor: str | None = None
        while True:
            query = {"limit": PAGE, "cursor": cursor, **params}
            page = _object(self._http.call("GET", path, params=query))
            yield from page["items"]
            cursor = page.get("next")
            if not cursor:
                return


class Pools(_Group):
    def list(self, /, **filters: Any) -> Iterator[Json]:
        return self._pages(f"{API}/pools", filters)

    def get(self, pool: str) -> Json:
        return _object(self._http.call("GET", f"{API}/pools/{segment(pool)}"))

    def create(
        self, /, name: str, capacity: Mapping[str, int] | None = None, **fields: Any
    ) -> Json:
        """`fields`: nodes (labels, instead of capacity), description, preset, settings."""
        body = {"name": name, **_given({"capacity": capacity, **fields})}
        return _object(self._http.call("POST", f"{API}/pools", body=body))

    def update(self, /, pool: str, *, dry_run: bool = False, **fields: Any) -> Json:
        """`fields`: capacity (merged; 0 removes a key), nodes, description, settings. With
        `dry_run` return which requests it would stop, pause or start; nothing is changed.
        """
        path = f"{API}/pools/{segment(pool)}"
        return _object(self._http.call("PATCH", path, body=_given(fields), **_trying(dry_run)))

    def enable(self, pool: str) -> Json:
        """End the quarantine of a pool after a restore."""
        return _object(self._http.call("POST", f"{API}/pools/{segment(pool)}/enable", body={}))

    def delete(self, pool: str) -> None:
        self._http.call("DELETE", f"{API}/pools/{segment(pool)}")

    def requests(self, pool: str, *, view: str = "all", explain: bool = False) -> Iterator[Json]:
        """`explain`: with the reason why each waiter waits, as of now."""
        params = {"view": view, "explain": "true" if explain else None}
        return self._pages(f"{API}/pools/{segment(pool)}/requests", params)

    def shares(self, pool: str) -> Json:
        """Return every policy and request of a pool with its fair share."""
        path = f"{API}/pools/{segment(pool)}/shares"
        return _object(self._http.call("GET", path, timeout=60))

    def queue(self, pool: str) -> Json:
        """Return the ids of the pool's waiters in the order of the queue, with their places."""
        path = f"{API}/pools/{segment(pool)}/queue"
        return _object(self._http.call("GET", path, timeout=60))


class Policies(_Group):
    def list(self, /, **filters: Any) -> Iterator[Json]:
        """`filters`: pool, component, component_type."""
        return self._pages(f"{API}/policies", filters)

    def get(self, policy: str) -> Json:
        return _object(self._http.call("GET", f"{API}/policies/{segment(policy)}"))

    def attach(
        self,
        /,
        pool: str,
        component: str,
        *,
        priority: int = 0,
        dry_run: bool = False,
        **fields: Any,
    ) -> Json:
        """`fields`: component_type, name, parent, and what `update` takes. With `dry_run` return
        which requests it would stop, pause or start; nothing is changed.
        """
        body = {"pool": pool, "component": component, "priority": priority, **_given(fields)}
        return _object(self._http.call("POST", f"{API}/policies", body=body, **_trying(dry_run)))

    def update(self, /, policy: str, *, dry_run: bool = False, **fields: Any) -> Json:
        """`fields`: priority, reserved, limit, weight, mode, settings, integral, type, max_class,
        allow_sensitive, home, allow_lending, allow_borrowing, max_borrow_pct, return_grace; a map
        that is given replaces the whole map. With `dry_run` return which requests it would stop,
        pause or start; nothing is changed.
        """
        path = f"{API}/policies/{segment(policy)}"
        return _object(self._http.call("PATCH", path, body=_given(fields), **_trying(dry_run)))

    def detach(self, policy: str) -> None:
        self._http.call("DELETE", f"{API}/policies/{segment(policy)}")

    def of(self, pool: str, component: str, component_type: str | None = None) -> Json:
        """Return the policy of one component in one pool."""
        found = list(self.list(pool=pool, component=component, component_type=component_type))
        if not found:
            raise NotFound(
                f"{component} has no policy in pool {pool}",
                fix=f"see `cede resource-pool list-policies {pool}`",
            )
        if len(found) > 1:
            types = ", ".join(str(each["component_type"]) for each in found)
            raise NotFound(
                f"several components are called {component} in pool {pool}: {types}",
                fix="say which with --component-type",
            )
        return found[0]


class Tenants(_Group):
    def list(self) -> Iterator[Json]:
        return self._pages(f"{API}/tenants", {})

    def get(self, tenant: str) -> Json:
        return _object(self._http.call("GET", f"{API}/tenants/{segment(tenant)}"))

    def create(self, /, name: str, **fields: Any) -> Json:
        """`fields`: what `update` takes."""
        return _object(self._http.call("POST", f"{API}/tenants", body={"name": name, **fields}))

    def update(self, /, tenant: str, **fields: Any) -> Json:
        """`fields`: max_nodes, max_concurrent, gpu_hours_budget, node_hours_budget,
        fair_share_target, burst_allowance; None removes a bound.
        """
        path = f"{API}/tenants/{segment(tenant)}"
        return _object(self._http.call("PATCH", path, body=fields))

    def delete(self, tenant: str) -> None:
        self._http.call("DELETE", f"{API}/tenants/{segment(tenant)}")


class Requests(_Group):
    def list(self, /, **filters: Any) -> Iterator[Json]:
        """`filters`: status, pool, component, component_type, preemptible, part_of, tenant,
        `label.X`.
        """
        return self._pages(f"{API}/requests", filters)

    def get(self, request: str, *, wait: float | None = None, known: str | None = None) -> Json:
        """Return one request. With `wait` the answer may take so many seconds while the status is
        `known`.
        """
        path = f"{API}/requests/{segment(request)}"
        if not wait:
            return _object(self._http.call("GET", path))
        params = {"wait": wait, "known": known}
        return _object(self._http.call("GET", path, params=params, timeout=wait + HELD_TIMEOUT))

    def create(self, body: Mapping[str, Any], *, key: str | None = None) -> Json:
        """Submit a request. Under one `key` there is one request, however often it is sent within a
        day."""
        return _object(self._http.call("POST", f"{API}/requests", body=dict(body), key=key))

    def create_many(self, bodies: Sequence[Mapping[str, Any]]) -> Sequence[Json | CedeClientError]:
        """Submit many in one transaction; each becomes a request, or the error why it is none, in
        its place."""
        body = {"requests": [dict(each) for each in bodies]}
        answer = self._http.call("POST", f"{API}/requests/bulk", body=body)
        return [
            each["request"] if "request" in each else problem(each["status"], each["error"])
            for each in answer["items"]
        ]

    def renew(
        self,
        request: str,
        *,
        attempt: int | None = None,
        running: bool | None = None,
        wait: float | None = None,
        hint: int | None = None,
        timeout: float | None = None,
        attempts: int | None = None,
    ) -> Json:
        """Extend the lease. The answer is the request as it is: `preempting` if it must stop.

        With `wait` the answer may take so many seconds, unless there is news: for a waiter, which
        gives no `attempt`, that it waits no longer; for a holder, more than the `hint` that is
        known.
        """
        path = f"{API}/requests/{segment(request)}/renew"
        body = _given({"attempt": attempt, "running": running, "wait": wait, "hint": hint})
        return _object(self._http.call("POST", path, body=body, timeout=timeout, attempts=attempts))

    def say(self, /, request: str, kind: str, *, key: str | None = None, **fields: Any) -> Json:
        """Report what work said after a hint: answered, progress, deferral or saved.

        `fields`: attempt, hint, checkpoint, size, seconds, text.
        """
        path = f"{API}/requests/{segment(request)}/said"
        return _object(self._http.call("POST", path, body={"kind": kind, **fields}, key=key))

    def release(
        self,
        request: str,
        *,
        outcome: str = "done",
        attempt: int | None = None,
        exit_code: int | None = None,
        key: str | None = None,
        timeout: float | None = None,
        attempts: int | None = None,
    ) -> Json:
        """End an attempt. With the `key` of an earlier call it repeats that call."""
        body = _given({"outcome": outcome, "attempt": attempt, "exit_code": exit_code})
        path = f"{API}/requests/{segment(request)}/release"
        return _object(
            self._http.call("POST", path, body=body, key=key, timeout=timeout, attempts=attempts)
        )

    def hand_over(
        self, request: str, work: Mapping[str, Any], *, attempt: int, here: Mapping[str, str]
    ) -> Json:
        """Let the agent of the granted node run the work. If that node is `here` (name and boot of
        this machine), nothing changes, and `work` of the answer is None.
        """
        path = f"{API}/requests/{segment(request)}/hand-over"
        body = {"attempt": attempt, "work": dict(work), "here": dict(here)}
        return _object(self._http.call("POST", path, body=body))

    def set_limit(self, request: str, limit: Mapping[str, int]) -> Json:
        """Set how much it may hold from now on, with the independent tasks it came with; `{}`
        removes its limit.
        """
        path = f"{API}/requests/{segment(request)}"
        return _object(self._http.call("PATCH", path, body={"limit": dict(limit)}))

    def cancel(self, request: str) -> Json:
        path = f"{API}/requests/{segment(request)}/cancel"
        return _object(self._http.call("POST", path, body={}))

    def delete(self, request: str) -> bool:
        """Delete a request; False while it is being stopped first."""
        path = f"{API}/requests/{segment(request)}"
        return self._http.call("DELETE", path) is None

    def why(self, request: str, *, changes: bool = True) -> Json:
        """Return why a request waits. `changes`: also try what would start it now, which costs the
        server."""
        path = f"{API}/requests/{segment(request)}/why"
        return _object(self._http.call("GET", path, params={"changes": str(changes).lower()}))

    def logs(
        self,
        request: str,
        *,
        task: int = 0,
        stream: str = "stdout",
        attempt: int | None = None,
        offset: int = 0,
        follow: bool = False,
        tail: int | None = None,
        since: float | None = None,
        age: float | None = None,
        silence: float | None = None,
    ) -> Iterator[tuple[int, bytes]]:
        """Iterate over a task's output in pieces, each with its offset; with `follow` until the
        task has ended or the connection is lost, which `silence` seconds without output count as.

        `stream`: stdout, stderr or both, in the order in which they were written. `tail`: the last
        lines only; `since` a Unix time, or so many seconds of `age`.
        """
        path = f"{API}/requests/{segment(request)}/logs"
        params: Json = {"task": task, "stream": stream, "attempt": attempt, "offset": offset}
        params |= {"tail": tail, "since": since, "age": age}
        with self._http.stream_bytes(
            path, _given({**params, "follow": "true" if follow else None}), silence=silence
        ) as (start, pieces):
            for data in pieces:
                yield start, data
                start += len(data)


class Nodes(_Group):
    def list(self, /, **filters: Any) -> Iterator[Json]:
        """`filters`: pool."""
        return self._pages(f"{API}/nodes", filters)

    def get(self, node: str) -> Json:
        return _object(self._http.call("GET", f"{API}/nodes/{segment(node)}"))

    def drain(self, node: str, reason: str = "") -> Json:
        """Give the node no new work; what runs there ends by itself."""
        return self._do(node, "drain", {"reason": reason})

    def undrain(self, node: str) -> Json:
        return self._do(node, "undrain")

    def disable(self, node: str, reason: str = "") -> Json:
        """Take the node out of service at once: what runs there is stopped."""
        return self._do(node, "disable", {"reason": reason})

    def enable(self, node: str) -> Json:
        return self._do(node, "enable")

    def claim(self, nodes: Iterable[str], user: str | None = None) -> Json:
        """Keep nodes for a user's sensitive work (default: the caller's): all of them, or none."""
        body = _given({"nodes": [*nodes], "for": user})
        return _object(self._http.call("POST", f"{API}/nodes/claim", body=body))

    def unclaim(self, nodes: Iterable[str]) -> Json:
        body = {"nodes": [*nodes]}
        return _object(self._http.call("POST", f"{API}/nodes/unclaim", body=body))

    def delete(self, node: str, *, force: bool = False) -> None:
        params = {"force": "true"} if force else {}
        self._http.call("DELETE", f"{API}/nodes/{segment(node)}", params=params)

    def try_delete(self, node: str, *, force: bool = False) -> Json:
        """Return which requests deleting a node would stop, pause or start; nothing is changed."""
        trying = _trying(True)
        if force:
            trying["params"]["force"] = "true"
        return _object(self._http.call("DELETE", f"{API}/nodes/{segment(node)}", **trying))

    def _do(self, node: str, what: str, body: Json | None = None) -> Json:
        path = f"{API}/nodes/{segment(node)}/{what}"
        return _object(self._http.call("POST", path, body=body))


class Tokens(_Group):
    def list(self) -> Iterator[Json]:
        return self._pages(f"{API}/tokens", {})

    def create(self, /, name: str, role: str, **fields: Any) -> Json:
        """`fields`: subjects, expires_in, uses. Only this answer holds the secret."""
        body = {"name": name, "role": role, **_given(fields)}
        return _object(self._http.call("POST", f"{API}/tokens", body=body))

    def revoke(self, token: str) -> None:
        self._http.call("DELETE", f"{API}/tokens/{segment(token)}")


class Audit(_Group):
    def list(self) -> Iterator[Json]:
        """Iterate over the entries of the audit chain, newest first."""
        return self._pages(f"{API}/audit", {})

    def verify(self, noted: str | None = None) -> Json:
        """Whether the chain of hashes holds; see `cede.client.chain.follow`."""
        from cede.client.chain import follow

        return follow(self._piece, noted)

    def _piece(self, after: str, limit: int) -> Json:
        params = {"after": after, "limit": limit}
        return _object(self._http.call("GET", f"{API}/audit/verify", params=params, timeout=60))


def _trying(dry_run: bool) -> Json:
    """Return the arguments of a dry run, which takes longer than the edit."""
    return {"params": {"dry_run": "true"}, "timeout": 60} if dry_run else {}


def _given(fields: Mapping[str, Any]) -> Json:
    return {key: value for key, value in fields.items() if value is not None}


def _object(answer: Any) -> Json:
    assert isinstance(answer, dict), f"the API answers with objects, not {type(answer).__name__}"
    return answer
