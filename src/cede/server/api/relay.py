"""Questions to agents about logs: sent with the next answer to the agent, which is given at
once; the pieces come in with the agent's next call. Everything here is on the event loop.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from cede.model import bounds
from cede.server.api.agent_bodies import LogIn
from cede.server.api.errors import unavailable
from cede.server.api.json_type import Json
from cede.server.api.problem import Problem
from cede.server.ids import new_id

# Each holds a piece in memory; more at once on one node would only wait for each other.
QUESTIONS_MAX = 32
# An answer may be lost with its question: after so long, it is asked once more.
ASK_AGAIN_SECONDS = 2.0
# An agent answers within a moment; this is for one on a slow link.
PATIENCE_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class About:
    """A place in the output of one task."""

    allocation: str
    attempt: int
    task: int
    stream: str
    offset: int
    tail: int | None = None
    since: float | None = None
    age: float | None = None

    @property
    def needs_order(self) -> bool:
        """Whether only an agent that knows the order of the streams can answer."""
        return self.stream == "both" or (self.tail, self.since, self.age) != (None, None, None)

    def after(self, offset: int) -> About:
        """Return the question after an answer: only the first one has a beginning."""
        return replace(self, offset=offset, tail=None, since=None, age=None)


@dataclass(frozen=True, slots=True)
class Piece:
    offset: int
    data: bytes
    end: bool


@dataclass(slots=True)
class _Question:
    about: About
    reply: asyncio.Future[Piece]
    asked_at: float | None = None


class Relay:
    def __init__(
        self, wake: Callable[[Iterable[str]], None], monotonic: Callable[[], float]
    ) -> None:
        self._wake = wake
        self._monotonic = monotonic
        self._open: dict[str, dict[str, _Question]] = {}

    async def ask(self, node_id: str, about: About) -> Piece:
        """Return a piece of a log from its node; raise a problem when there is none, or no
        answer."""
        asked = self._open.setdefault(node_id, {})
        if len(asked) >= QUESTIONS_MAX:
            raise unavailable("too_many_streams", f"{QUESTIONS_MAX} logs of this node are read", 5)
        question = _Question(about, asyncio.get_running_loop().create_future())
        number = new_id()
        asked[number] = question
        self._wake([node_id])
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                return await question.reply
        except TimeoutError:
            raise unavailable(
                "node_silent", "the node does not answer; its logs are on it, not here", 10
            ) from None
        finally:
            del asked[number]
            if not asked:
                self._open.pop(node_id, None)

    def has_questions(self, node_id: str) -> bool:
        return any(self._is_due(each) for each in self._open.get(node_id, {}).values())

    def questions(self, node_id: str) -> list[Json]:
        """Return the questions to send to this node with the next answer."""
        now = self._monotonic()
        due = [(i, q) for i, q in self._open.get(node_id, {}).items() if self._is_due(q)]
        shown: list[Json] = []
        for number, question in due[: bounds.LOG_REPLIES_MAX]:
            question.asked_at = now
            about = question.about
            shown.append(
                {
                    "id": number,
                    "allocation": about.allocation,
                    "attempt": about.attempt,
                    "task": about.task,
                    "stream": about.stream,
                    "offset": about.offset,
                    "most": bounds.LOG_CHUNK_BYTES,
                    "tail": about.tail,
                    "since": about.since,
                    "age": about.age,
                }
            )
        return shown

    def take(self, node_id: str, piece: LogIn) -> None:
        """Take an answer; one to a question that this node was not asked is dropped (C8)."""
        question = self._open.get(node_id, {}).get(piece.id)
        if question is None or question.reply.done():
            return
        try:
            data = base64.b64decode(piece.data, validate=True)
        except (ValueError, binascii.Error):
            question.reply.set_exception(_gone("its agent sent something unreadable"))
            return
        if piece.unordered:
            question.reply.set_exception(no_order())
        elif piece.gone:
            question.reply.set_exception(_gone("they are not kept any more"))
        else:
            question.reply.set_result(Piece(piece.offset, data, piece.end))

    def _is_due(self, question: _Question) -> bool:
        at = question.asked_at
        return at is None or self._monotonic() - at >= ASK_AGAIN_SECONDS


def _gone(why: str) -> Problem:
    return Problem(409, "logs_gone", f"the logs of this attempt cannot be read: {why}")


def no_order() -> Problem:
    return Problem(
        409,
        "no_order",
        "an agent or supervisor of an older version runs this attempt and knows neither the order "
        "of its two streams nor when they were written; read stdout and stderr one by one",
    )
