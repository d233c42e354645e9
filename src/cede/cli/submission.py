"""Makes the body of a request from options, for commands that make requests. Imports only what
is used: scripts submit in a loop.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from cede.cli.usage import pairs, wrong
from cede.model.ids import short_id

if TYPE_CHECKING:
    from cede.client.client import Client

# Variables that make a program's name mean the same on the node. A fixed list: an environment holds
# secrets.
CAPTURED = ("PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "LANG")
# The key of a call that the compiled command made, and whose answer was lost, or was not plain.
KEY = "CEDE_IDEMPOTENCY_KEY"


def submit(client: Client, body: Mapping[str, Any], *, as_json: bool = False) -> str:
    """Make a request, print its id or all of it, and return the id."""
    made = client.requests.create(body, key=os.environ.pop(KEY, None))
    if made["status"] == "rejected":
        from cede.client.errors import ending

        raise ending(made) or AssertionError(made)
    if as_json:
        from cede.cli.printing import print_json

        print_json(made)
    else:
        # People get an id that they can type; a program gets one that stays unique.
        print(short_id(made["id"]) if sys.stdout.isatty() else made["id"], flush=True)
    return str(made["id"])


def body_of(
    *,
    command: tuple[str, ...],
    env: tuple[str, ...] = (),
    no_env: bool = False,
    directory: str | None = None,
    user: str | None = None,
    name: str | None = None,
    label: tuple[str, ...] = (),
    **given: Any,
) -> dict[str, Any]:
    """Return the body of a submission from the options of `cede submit`."""
    work = {
        "argv": list(command),
        "env": environment_of(env, os.environ, captured=() if no_env else CAPTURED),
        # Here, as in a shell: beginners and shared file systems expect it.
        "directory": _absolute(directory),
        "user": user,
    }
    counted, given = _placement(**given)
    labels = (*label, *([f"name={name}"] if name else []))
    body = submission_of(label=labels, **given)
    return body | counted | {"work": {key: value for key, value in work.items() if value}}


def _absolute(directory: str | None) -> str:
    if not directory:
        return os.getcwd()  # noqa: PTH109 (pathlib is slow to import)
    from pathlib import Path

    return str(Path(directory).absolute())


def environment_of(
    given: Iterable[str], here: Mapping[str, str], captured: Iterable[str] = CAPTURED
) -> dict[str, str]:
    """Return the captured variables, and over them the given ones: NAME=VALUE, or NAME as it is
    here."""
    found = {name: here[name] for name in captured if here.get(name)}
    for each in given:
        name, equals, value = each.partition("=")
        if not name:
            raise wrong(f"--env wants NAME=VALUE or NAME, not {each!r:.80}")
        if not equals and name not in here:
            raise wrong(f"--env {name:.80}: it is not set here; write {name:.80}=VALUE")
        found[name] = value if equals else here[name]
    for name, value in found.items():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise wrong(f"--env {name:.80}: its value here is not UTF-8") from None
    return found


def _placement(
    *,
    tasks: int | None = None,
    nodes: int | None = None,
    independent: bool = False,
    node_label: tuple[str, ...] = (),
    **given: Any,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the number of tasks, and the other options: `--nodes` is one task on each node."""
    if nodes is not None:
        if given.get("per_node") not in (None, 1) or tasks not in (None, nodes):
            raise wrong("--nodes means one task on each; leave out --tasks, --per-node")
        tasks, given["per_node"] = nodes, 1
    if given.get("array") and (tasks not in (None, 1) or independent):
        raise wrong("--array says which tasks there are; leave out --tasks, --nodes")
    given["node_labels"] = dict(pairs("--node-label", node_label)) or None
    counted = {"tasks": tasks, "gang": False if independent else None}
    return {name: value for name, value in counted.items() if value is not None}, given


def _ids(given: tuple[str, ...]) -> list[str] | None:
    """Return the ids with commas between them, in one option or several."""
    return [each for text in given for each in text.split(",") if each] or None


def submission_of(
    *,
    label: tuple[str, ...] = (),
    after: tuple[str, ...] = (),
    after_any: tuple[str, ...] = (),
    own_settings: tuple[str, ...] = (),
    **given: Any,
) -> dict[str, Any]:
    """Return the body of a request from these options."""
    from cede.client.demand import submission

    return submission(
        labels=dict(pairs("--label", label)) or None,
        after=_ids(after),
        after_any=_ids(after_any),
        settings=_settings(own_settings) if own_settings else None,
        **given,
    )


def _settings(given: tuple[str, ...]) -> dict[str, Any]:
    from cede.cli.values import settings_of
    from cede.model.terms import OF_REQUEST

    return settings_of("--set", given, OF_REQUEST, "a request")
