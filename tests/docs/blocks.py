"""The commands on a page, and what the page says that they print.

A page marks a fenced block with a comment on the line before it:

    <!-- run -->        these commands are typed, in one shell for the whole page
    <!-- shows -->      what the block before it printed: every line, in order, … for anything
    <!-- until: test --> (alone) the shell goes on once this succeeds

Blocks without a mark are only read. The comparison is light: spaces do not count, and the page may
leave lines out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_MARKED = re.compile(
    r"^<!-- until: (?P<until>.+?) -->$"
    r"|^<!-- (?P<mark>run|shows) -->\n```\w*\n(?P<body>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass
class Block:
    """Commands, and the lines they must print."""

    commands: str
    shows: list[str] = field(default_factory=list)


def blocks(page: str) -> list[Block]:
    """What a page wants typed, in order."""
    found: list[Block] = []
    for match in _MARKED.finditer(page):
        if match["until"] is not None:
            found.append(Block(_patience(match["until"])))
        elif match["mark"] == "run":
            found.append(Block(match["body"]))
        else:
            assert found, "a page shows something before anything ran"
            found[-1].shows += [line for line in match["body"].splitlines() if line.strip()]
    return found


def _patience(condition: str) -> str:
    """Whoever runs the page gives up first. `cede … | grep -q` has found what it looks for also if
    `cede` would have said more.
    """
    asked = f"(set +o pipefail; {condition})"
    return f"for _ in $(seq 1000); do {asked} && break; sleep 0.1; done; {asked}"


def missing(shown: list[str], printed: str) -> list[str]:
    """The lines that a page shows and that were not printed, at least not in that order."""
    rest = " ".join(printed.split())
    absent = []
    for line in shown:
        for piece in line.split("…"):
            wanted = " ".join(piece.split())
            if wanted not in rest:
                absent.append(line)
                break
            rest = rest[rest.index(wanted) + len(wanted) :]
    return absent


def script(found: list[Block], mark: str) -> str:
    """One shell script: after each block it prints the mark, and 0 or the exit code of the first
    command that failed.
    """
    lines = ["set -uo pipefail", "shopt -s expand_aliases"]
    lines += ["failed=0", "trap 'code=$?; ((failed)) || failed=$code' ERR"]
    for block in found:
        lines += [block.commands.rstrip(), "ended=$?; ((failed)) || failed=$ended"]
        lines += [f"echo; echo {mark} $failed; failed=0"]
    return "\n".join(lines) + "\n"
