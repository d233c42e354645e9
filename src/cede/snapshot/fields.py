"""Readers of single snapshot fields, each with the path to the field in its error."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from typing import Any, TypeVar

from cede.model import bounds
from cede.model.amounts import parse_amount, parse_amounts
from cede.model.durations import parse_duration, parse_instant
from cede.model.errors import CedeError, Invalid, choices
from cede.model.fields import changed
from cede.model.reason import Reason
from cede.model.request import Preemptions, Retry
from cede.model.resources import ResourceSettings
from cede.model.settings import parse_own
from cede.model.shape import Shape, parse_count
from cede.model.stopping import Ask, Pin, Saved, StopPolicy, StopProgress
from cede.model.subject import Subject
from cede.model.terms import OF_REQUEST, USUAL, Terms

Entry = Mapping[str, Any]
Word = TypeVar("Word", bound=StrEnum)


class SnapshotError(CedeError):
    """An error in a snapshot; `path` is its place, such as `running[2].pool`."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}" if path else problem)
        self.path = path
        self.problem = problem


@contextmanager
def at(path: str) -> Iterator[None]:
    """Add the place in the snapshot to errors raised inside."""
    try:
        yield
    except Invalid as error:
        where = f"{path}.{error.field}" if path else error.field
        raise SnapshotError(where, error.problem) from None
    except SnapshotError:
        raise
    except CedeError as error:
        raise SnapshotError(path, str(error)) from None


def entry(value: object, path: str, known: Iterable[str]) -> Entry:
    if not isinstance(value, Mapping):
        raise SnapshotError(path, f"must be a map, not {type(value).__name__}")
    for name in value:
        if name not in known:
            where = f"{path}.{name}" if path else str(name)
            raise SnapshotError(where, f"unknown field; {choices(name, known)}")
    return value


def entries(fields: Entry, which: str, path: str = "") -> list[tuple[str, Any]]:
    where = f"{path}.{which}" if path else which
    value = [] if fields.get(which) is None else fields[which]
    if not isinstance(value, list):
        raise SnapshotError(where, "must be a list")
    return [(f"{where}[{position}]", each) for position, each in enumerate(value)]


def timed(fields: Entry, path: str, name: str, default: Any) -> Any:
    if fields.get(name) is None:
        return default
    with at(path):
        return parse_instant(fields[name], name)


def count(fields: Entry, path: str, name: str, default: Any) -> Any:
    if fields.get(name) is None:
        return default
    with at(path):
        return parse_amount(fields[name], name)


def flag(fields: Entry, path: str, name: str) -> bool:
    value = fields.get(name, False)
    if not isinstance(value, bool):
        raise SnapshotError(f"{path}.{name}", f"must be true or false, not {value!r:.80}")
    return value


def text(fields: Entry, path: str, name: str) -> str:
    value = "" if fields.get(name) is None else fields[name]
    if not isinstance(value, str) or len(value) > bounds.LABEL_LENGTH_MAX:
        raise SnapshotError(
            f"{path}.{name}", f"must be text of at most {bounds.LABEL_LENGTH_MAX} characters"
        )
    return value


def word(fields: Entry, path: str, name: str, default: Word) -> Word:
    """One of the values of an enumeration."""
    kind, value = type(default), fields.get(name, default)
    known = {str(each): each for each in kind}
    if not isinstance(value, str) or value not in known:
        raise SnapshotError(f"{path}.{name}", f"must be one of {', '.join(known)}")
    return known[value]


def duration(fields: Entry, name: str) -> int | None:
    return None if fields.get(name) is None else parse_duration(fields[name], name)


# The demand of a request ----------------------------------------------------------------------


def subject(fields: Entry) -> Subject:
    return Subject.of(fields.get("component"), fields.get("component_type", "orchestrator"))


_NO_GPU = {"gpu": 0}


def amounts(fields: Entry, whole: Callable[[], dict[str, int]]) -> tuple[dict[str, int], bool]:
    """The demand of one task, and whether it is preemptible.

    A request for nodes that names no amounts takes each node whole, or all but its GPUs if it says
    that it needs none.
    """
    preemptible = fields.get("preemptible", True)
    if not isinstance(preemptible, bool):
        raise Invalid("preemptible", f"must be true or false, not {preemptible!r:.80}")
    needs = _settings(fields)[0]
    named = bool(fields.get("nodes")) or fields.get("per_node") == 1
    if named and needs is None and fields.get("resources", _NO_GPU) == _NO_GPU:
        none = fields.get("resources", ())
        if not (rest := {key: amount for key, amount in whole().items() if key not in none}):
            raise Invalid("gpus_per_node", "is 0, and its nodes have nothing else")
        return rest, preemptible
    if ("resources" in fields) == (needs is not None):
        if isinstance(needs, Mapping) and not set(needs) & set(
            ResourceSettings.__dataclass_fields__
        ):
            parse_own(needs, OF_REQUEST, "a request")  # names the unknown one
        raise Invalid("resources", "give either resources or settings")
    if needs is None:
        literal = parse_amounts(fields["resources"], "resources", empty=False)
        return {key: amount for key, amount in literal.items() if amount}, preemptible
    settings = ResourceSettings.parse(needs)
    return settings.amounts, settings.preemptible and preemptible


def _settings(fields: Entry) -> tuple[Any, dict[str, Any]]:
    """The needs that a step declares, None if it declares none; and the request's own settings."""
    given = fields.get("settings")
    if not isinstance(given, Mapping):
        return given if "settings" in fields else None, {}
    own = {name: value for name, value in given.items() if name in OF_REQUEST}
    rest = {name: value for name, value in given.items() if name not in OF_REQUEST}
    return rest if rest or not own else None, own


def terms(fields: Entry) -> Terms:
    """The terms on which the request waits and holds."""
    own = parse_own(_settings(fields)[1], OF_REQUEST, "a request")
    return changed(USUAL, fields, settings=own)


def shape(fields: Entry, each: dict[str, int]) -> Shape | None:
    """The shape of the request; None for one task on any node."""
    tasks = fields.get("tasks")
    if tasks is None:  # a holder that names its nodes has a task on each
        named = fields.get("members") or fields.get("nodes")
        tasks = len(named) if isinstance(named, list) and named else 1
    anywhere = Shape(each, parse_count(tasks, "tasks"))
    found = changed(anywhere, fields)
    return None if found.tasks == 1 and found is anywhere else found


def retry(fields: Entry, path: str) -> Retry:
    """The retry rules, where `retries` is how often it may still come back; without it preemption
    uses none up.
    """
    if fields.get("retries") is None:
        return Retry(preemptions=Preemptions.FREE)
    backoff = fields.get("retry_backoff", 1)
    return Retry(
        max_retries=parse_amount(fields["retries"], "retries"),
        delay=duration(fields, "retry_delay") or 0,
        backoff=min(parse_amount(backoff, "retry_backoff", 1), bounds.BACKOFF_MAX),
        preemptions=word(fields, path, "preemptions", Preemptions.COUNT),
    )


SAVED = frozenset({"id", "at", "size", "index", "attempt", "before", "folders"})
PIN = frozenset({"folders", "until"})


def saved(fields: Entry, path: str, now: int) -> Saved | None:
    """The checkpoint of a request; in a snapshot written by hand the instant of its last one is
    enough.
    """
    last = timed(fields, path, "last_checkpoint_at", None)
    if last is not None and last > now:
        raise SnapshotError(f"{path}.last_checkpoint_at", "is after the instant of the snapshot")
    if fields.get("saved") is None:
        return None if last is None else Saved("checkpoint", last, 0)
    if last is not None:
        raise SnapshotError(f"{path}.last_checkpoint_at", "is in saved already: give one of them")
    path = f"{path}.saved"
    given = entry(fields["saved"], path, SAVED)
    if not (name := text(given, path, "id")):
        raise SnapshotError(f"{path}.id", "must name the checkpoint")
    size, place = count(given, path, "size", 0), count(given, path, "index", 0)
    return Saved(
        name,
        timed(given, path, "at", now),
        size,
        place,
        attempt=count(given, path, "attempt", 0),
        folders=texts(given, path, "folders"),
        before=text(given, path, "before"),
    )


def pin(fields: Entry, path: str) -> Pin | None:
    """The checkpoint folders that a waiter is pinned to, and until when."""
    if fields.get("pin") is None:
        return None
    path = f"{path}.pin"
    given = entry(fields["pin"], path, PIN)
    return Pin(texts(given, path, "folders"), timed(given, path, "until", None))


def texts(fields: Entry, path: str, name: str) -> tuple[str, ...]:
    value = fields.get(name) or []
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise SnapshotError(f"{path}.{name}", "must be a list of texts")
    return tuple(value)


STOP_PROGRESS = frozenset(
    {"hinted_at", "until", "answered", "extended", "deferred", "saved", "failed"}
)
ASKED = frozenset({"at", "until", "over", "took"})
# The number of a hint only matches answers to hints, and decides nothing.
_NUMBER = 0


def stop_progress(
    fields: Entry, path: str, stop_policy: StopPolicy, now: int, hinted: bool
) -> StopProgress | None:
    """The progress of a holder's stop; a checkpointing holder without any was hinted just now."""
    path = f"{path}.parting"
    if fields.get("parting") is None:
        return StopProgress(_NUMBER, now, now + stop_policy.timeout) if hinted else None
    given = entry(fields["parting"], path, STOP_PROGRESS)
    hinted_at = timed(given, path, "hinted_at", now)
    return StopProgress(
        hint=_NUMBER,
        hinted_at=hinted_at,
        until=timed(given, path, "until", hinted_at + stop_policy.timeout),
        answered=flag(given, path, "answered"),
        extended=flag(given, path, "extended"),
        deferred=timed(given, path, "deferred", 0),
        saved=flag(given, path, "saved"),
        failed=flag(given, path, "failed"),
    )


def asked(fields: Entry, path: str, now: int) -> Ask | None:
    """When it was last asked to save itself and go on, and how long saving takes."""
    if fields.get("asked") is None:
        return None
    path = f"{path}.asked"
    given = entry(fields["asked"], path, ASKED)
    at_ = timed(given, path, "at", now)
    until, took = timed(given, path, "until", at_), timed(given, path, "took", None)
    return Ask(_NUMBER, at_, until, flag(given, path, "over"), took)


def reason(fields: Entry, path: str) -> Reason | None:
    value = fields.get("reason")
    if value is None:
        return None
    try:
        return Reason.from_dict(value)
    except (AttributeError, KeyError, TypeError, ValueError):
        raise SnapshotError(f"{path}.reason", "must be a map with the code of a reason") from None
