"""Authenticates a caller, and knows what it may see (C1 to C4).

Tokens are looked up by their SHA-256 in a small cache. One read for all of them, twice a second,
shows whether any token was changed since, so that a revocation, also one made by another server,
takes effect within a second.
"""

from __future__ import annotations

import asyncio
import hmac
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from anyio import CapacityLimiter, to_thread

from cede.model.errors import Forbidden
from cede.model.subject import Subject
from cede.model.token import Role, Token
from cede.server import tokens
from cede.server.api.problem import Problem

# C3: a revoked token works for at most this much longer; half of the promised second.
CACHE_SECONDS = 0.5
# An agent's heartbeat should cost no read of the database. Its token is revoked by the server that
# it calls, which then drops its cache; one whose term may be over answers nothing.
NODE_CACHE_SECONDS = 60.0
# With more callers than this at once some are only looked up more often.
CACHE_MAX = 32_768
# Threads that look up tokens that were not seen lately.
STRANGERS_MAX = 2
# The number of tokens and the sum of their hashes.
Version = tuple[int, int]
CHALLENGE = {"WWW-Authenticate": 'Bearer realm="cede"'}


@dataclass(frozen=True, slots=True)
class Caller:
    """An authenticated token, and what it may see and do."""

    token: Token

    @property
    def name(self) -> str:
        return self.token.name

    @property
    def identity(self) -> str:
        return self.token.identity

    def budget(self, kind: str) -> str:
        """Return the bucket that pays for a call. Operators have more: they could stop the
        server anyway."""
        operates = kind == "all" and self.token.role >= Role.OPERATOR
        return f"{'operator' if operates else kind}:{self.token.id}"

    def sees_identity(self, identity: str) -> bool:
        """Whether the caller may know an identity: its own, or a token of its own subjects only."""
        if self.bound is None or identity == self.identity:
            return True
        subjects = identity.rpartition("/")[0]
        mine = {str(each) for each in self.bound}
        return subjects != "" and set(subjects.split(",")) <= mine

    @property
    def bound(self) -> tuple[Subject, ...] | None:
        """The subjects it is confined to; None when it sees all."""
        if self.token.role >= Role.OPERATOR:
            return None
        if self.token.role.machine:
            return ()
        if self.token.subjects or self.token.role is Role.SUBMITTER:
            return self.token.subjects
        return None

    def sees(self, subject: Subject) -> bool:
        bound = self.bound
        return bound is None or subject in bound

    @property
    def node_id(self) -> str:
        """The node that an agent's token speaks for (C8)."""
        assert self.token.role is Role.NODE, self.token
        return "" if self.bridge else self.token.subjects[0].name

    @property
    def bridge(self) -> str:
        """The bridge that a token speaks for, with all of its nodes; empty for others."""
        first = self.token.subjects[0] if self.token.subjects else None
        is_bridge = self.token.role is Role.NODE and first is not None and first.type == "bridge"
        return first.name if is_bridge and first is not None else ""

    def subject_for(
        self, component: str | None, component_type: str | None, *, anybody: bool = False
    ) -> Subject:
        """Return the subject that a submission is from. A subject that the token is not bound to
        is refused, unless it may be for `anybody`: see `check_bound`.
        """
        if component is None:
            if self.token.subjects:
                return self.token.subjects[0]
            detail = "component: must be given, because this token is bound to no subject"
            raise Problem(422, "invalid", detail, field="component")
        if component_type is None:
            component_type = self._type_of(component)
        subject = Subject.of(component, component_type)
        if not anybody:
            self.check_bound(subject)
        return subject

    def check_bound(self, subject: Subject) -> None:
        """Refuse a subject that this token may not ask for."""
        if not self.sees(subject):
            raise Forbidden("component", f"this token is not bound to {subject}")

    def _type_of(self, component: str) -> str:
        """Return the type of the one subject of the token that has this name, else orchestrator."""
        types = [subject.type for subject in self.token.subjects if subject.name == component]
        return types[0] if len(types) == 1 else "orchestrator"


class _Known(NamedTuple):
    """A token as it was read at an instant, or that there was none. `version` was read before."""

    at: float
    version: Version
    token: Token | None


class Authenticator:
    """Tokens by hash, cached while the version of all tokens, which every change changes, is the
    same; the current version is cached for half a second.
    """

    def __init__(
        self,
        find: Callable[[str], Token | None],
        version: Callable[[], Version],
        wall: Callable[[], str],
        monotonic: Callable[[], float],
    ) -> None:
        self._find = find
        self._read_version = version
        self._wall = wall
        self._monotonic = monotonic
        self._cache: dict[str, _Known] = {}
        self._version: tuple[float, Version] = (-math.inf, (0, 0))
        self._reading: asyncio.Task[Version] | None = None
        # A caller that tries many tokens must not keep known ones from being looked up.
        self._strangers = CapacityLimiter(STRANGERS_MAX)

    async def authenticate(self, headers: list[str]) -> Caller:
        """Return the caller of the Authorization headers, or raise 401 without telling which
        check failed."""
        if len(headers) > 1:
            raise Problem(
                400, "malformed", "more than one Authorization header", field="Authorization"
            )
        secret = bearer(headers[0]) if headers else None
        if secret is None:
            raise _unauthenticated()
        digest = tokens.hash_of(secret)
        if digest not in self._cache and not tokens.well_formed(secret):
            raise _unauthenticated()
        return await self.recheck(digest)

    async def recheck(self, digest: str) -> Caller:
        """Return the caller with this hash as of now; long streams check again while they last."""
        token = await self._lookup(digest)
        if token is None or not hmac.compare_digest(token.hash, digest) or not self._valid(token):
            raise _unauthenticated()
        return Caller(token)

    def forget(self) -> None:
        """Let cached tokens be checked again, after one was made or revoked here."""
        self._version = (-math.inf, self._version[1])
        self._reading = None
        self._cache = {
            digest: known._replace(at=-math.inf)
            for digest, known in self._cache.items()
            if known.token is not None
        }

    async def _lookup(self, digest: str) -> Token | None:
        now = self._monotonic()
        known = self._cache.get(digest)
        if known is not None and now - known.at < _life(known.token):
            return known.token
        # Before the token: a change in between is found by the next look-up.
        version = await self._current()
        is_known = known is not None and known.token is not None
        if known is not None and is_known and version == known.version:
            return known.token
        limiter = None if is_known else self._strangers
        token = await to_thread.run_sync(self._find, digest, limiter=limiter)
        if len(self._cache) >= CACHE_MAX:
            self._cache.clear()
        self._cache[digest] = _Known(now, version, token)
        return token

    async def _current(self) -> Version:
        """Return the version of all tokens, at most as old as a revoked one may work."""
        at, version = self._version
        if self._monotonic() - at < CACHE_SECONDS:
            return version
        if self._reading is None:
            self._reading = asyncio.create_task(self._read())
        return await asyncio.shield(self._reading)

    async def _read(self) -> Version:
        now, mine = self._monotonic(), asyncio.current_task()
        try:
            version = await to_thread.run_sync(self._read_version)
            if self._reading is mine:  # else a token was changed here meanwhile
                self._version = (now, version)
            return version
        finally:
            if self._reading is mine:
                self._reading = None

    def _valid(self, token: Token) -> bool:
        if token.revoked:
            return False
        return token.expires_at_wall is None or self._wall() < token.expires_at_wall


def _life(token: Token | None) -> float:
    is_node = token is not None and token.role is Role.NODE
    return NODE_CACHE_SECONDS if is_node else CACHE_SECONDS


def bearer(header: str) -> str | None:
    scheme, _, secret = header.partition(" ")
    return secret.strip() if scheme.lower() == "bearer" else None


def _unauthenticated() -> Problem:
    detail = "this needs a valid token: Authorization: Bearer cede_…"
    return Problem(401, "unauthenticated", detail, headers=CHALLENGE)
