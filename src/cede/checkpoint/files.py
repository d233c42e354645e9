"""The small JSON files of a conversation, in the talk directory.

The host writes `hint.json` in every protocol, because it also tells a restarted host what was
asked. In the protocol `signal` the application reads it, and answers in `answer.json`. In every
protocol the tasks of a gang agree on a step: each writes `reach.json`, and its host writes
`agreed.json`.
"""

from __future__ import annotations

import json
from typing import Any

from cede.checkpoint import beneath
from cede.checkpoint.words import NUMBER_MAX, STEP_MAX, Answer, Hint, Status

HINT = "hint.json"
ANSWER = "answer.json"
REACH = "reach.json"
AGREED = "agreed.json"
# In the hint: its host passes on the agreed steps of a gang.
AGREES = "agrees"
BYTES_MAX = 1024 * 1024
_ANSWER_BYTES_MAX = 16 * 1024
_STEP_BYTES_MAX = 1024


def write_hint(talk: int, hint: Hint, **more: Any) -> None:
    """Write the hint; `more` is what the host needs again after a restart."""
    data = {
        "number": hint.number,
        "deadline": hint.deadline,
        "withdrawn": hint.withdrawn,
        "goes_on": hint.goes_on,
        **more,
    }
    beneath.replace_file(talk, HINT, json.dumps(data).encode(), sync=False)


def read_hint(talk: int) -> tuple[Hint, dict[str, Any]] | None:
    data = _read(talk, HINT, BYTES_MAX)
    number, deadline = data.pop("number", 0), data.pop("deadline", None)
    if not _is_number(number) or number == 0 or type(deadline) is not float:
        return None
    withdrawn, goes_on = data.pop("withdrawn", None), data.pop("goes_on", None)
    return Hint(number, deadline, withdrawn is True, goes_on is True), data


def write_answer(talk: int, answer: Answer) -> None:
    deferral = {"count": answer.deferrals, "seconds": answer.defer_seconds, "why": answer.why}
    data = {
        "number": answer.number,
        "status": answer.status.name.lower(),
        "progress": answer.fraction,
        "estimate": answer.estimate,
        "deferral": deferral if answer.deferrals else None,
        "saved": answer.saved,
        "why": answer.why,
    }
    beneath.replace_file(talk, ANSWER, json.dumps(data).encode(), sync=False)


def read_answer(talk: int) -> Answer | None:
    """The application's answer; invalid parts of it are left out."""
    data = _read(talk, ANSWER, _ANSWER_BYTES_MAX)
    number = data.get("number", 0)
    status = Status.__members__.get(str(data.get("status")).upper(), Status.ANSWERED)
    if not _is_number(number) or number == 0:
        return None
    deferral = data.get("deferral")
    deferral = deferral if isinstance(deferral, dict) else {}
    count = deferral.get("count", 1 if deferral else 0)
    return Answer(
        number,
        status,
        _float(data.get("progress")),
        _float(data.get("estimate")),
        count if _is_number(count) else 0,
        _float(deferral.get("seconds")) or 0.0,
        _text(deferral.get("why") or data.get("why")),
        _text(data.get("saved")),
    ).sane()


def write_step(talk: int, name: str, number: int, step: int) -> None:
    """Replace `reach.json` or `agreed.json`: a step, and the number of the hint that it is for."""
    data = {"number": number, "step": step}
    beneath.replace_file(talk, name, json.dumps(data).encode(), sync=False)


def read_step(talk: int, name: str) -> tuple[int, int] | None:
    """The number of the hint and the step in `reach.json` or `agreed.json`; None if it has none."""
    data = _read(talk, name, _STEP_BYTES_MAX)
    number, step = data.get("number", 0), data.get("step", -1)
    if not _is_number(number) or number == 0 or not _is_number(step):
        return None
    return (number, step) if step <= STEP_MAX else None


def _read(talk: int, name: str, most: int) -> dict[str, Any]:
    try:
        data = json.loads(beneath.read_file(talk, name, most))
    except (OSError, ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}


def _is_number(value: Any) -> bool:
    return type(value) is int and 0 <= value <= NUMBER_MAX


def _float(value: Any) -> float | None:
    return min(float(value), 1e18) if type(value) is float or _is_number(value) else None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
