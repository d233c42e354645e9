"""Commands that scripts call in a loop: plain forms are read without click.

Importing click and declaring the options of one command takes longer than all the rest of it. So
the options that such scripts use are read here, in their plain forms; what they mean is in modules
that the commands of click use as well. Any other command line, mistakes above all, is left to
click, which has every option and the error messages. A test compares the two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

# Option: keyword of its value.
Texts = Mapping[str, str]

SUBMIT: Texts = {
    "--pool": "pool",
    "--component": "component",
    "--gpu": "gpu",
    "-t": "component_type",
    "--component-type": "component_type",
    "--name": "name",
    "--directory": "directory",
    "--user": "user",
}
# A longer number is a mistake, and click names it.
GPU_DIGITS = 9
SUBMIT_FLAGS: Texts = {"--no-env": "no_env", "--json": "as_json"}


def run(arguments: Sequence[str]) -> bool:
    """Run a plain command line; False if it is not plain, and then nothing was done."""
    for words, command in COMMANDS.items():
        if tuple(arguments[: len(words)]) == words:
            return command(arguments[len(words) :])
    return False


def read(
    arguments: Sequence[str], texts: Texts, flags: Texts
) -> tuple[dict[str, Any], list[str]] | None:
    """Return options before `--` by their keywords, and what follows it; None if it is not that
    plain."""
    found: dict[str, Any] = {}
    at = 0
    while at < len(arguments):
        word = arguments[at]
        if word == "--":
            return found, list(arguments[at + 1 :])
        if word in flags:
            found[flags[word]] = True
            at += 1
        elif word in texts and at + 1 < len(arguments) and arguments[at + 1][:1] not in ("", "-"):
            found[texts[word]] = arguments[at + 1]
            at += 2
        else:
            return None
    return found, []


def submission(arguments: Sequence[str]) -> tuple[dict[str, Any], bool] | None:
    """Return the body that `cede submit` sends, and whether to print all of the answer."""
    from cede.cli.submission import body_of
    from cede.model.subject import SUBJECT_TYPES

    line = read(arguments, SUBMIT, SUBMIT_FLAGS)
    if line is None or not line[1]:
        return None
    given, command = line
    gpu = given.get("gpu", "0")
    if not (gpu.isascii() and gpu.isdecimal()) or len(gpu) > GPU_DIGITS:
        return None
    if "gpu" in given:
        given["gpu"] = int(gpu)
    if given.get("component_type", SUBJECT_TYPES[0]) not in SUBJECT_TYPES:
        return None
    as_json = given.pop("as_json", False)
    return body_of(command=tuple(command), **given), as_json


def _submit(arguments: Sequence[str]) -> bool:
    found = submission(arguments)
    if found is None:
        return False
    from cede.cli.connecting import connect
    from cede.cli.submission import submit

    body, as_json = found
    with connect() as client:
        submit(client, body, as_json=as_json)
    return True


def _list_pools(arguments: Sequence[str]) -> bool:
    line = read(arguments, {}, {"--json": "as_json"})
    if line is None or line[1]:
        return False
    from cede.cli.connecting import connect
    from cede.cli.lists import listing_of
    from cede.cli.pool_rows import POOLS, print_pools

    with connect() as client:
        print_pools(client, listing_of(POOLS, line[0]))
    return True


COMMANDS: dict[tuple[str, ...], Callable[[Sequence[str]], bool]] = {
    ("submit",): _submit,
    ("pool", "list"): _list_pools,
}
