"""Tells why a request waits: one live line on a terminal, rare lines elsewhere.

Without a terminal a line is printed when the reason changes, and the gaps between lines grow, so
that a night of waiting leaves a page in the log and not a book.
"""

from __future__ import annotations

import sys
from typing import Any

import click

from cede.cli.printing import cell
from cede.cli.times import Age
from cede.client import clock
from cede.client.waiting import reason_text

GAP_FIRST = 5.0
GAP_MAX = 15 * 60.0


class WaitingLine:
    """Shows why a request waits and what happens to it, on stderr: stdout is the command's."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._status: Any = None
        self._last = ""
        self._gap = 0.0
        self._printed_at = -GAP_MAX

    def __enter__(self) -> WaitingLine:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()

    def waits(self, why: dict[str, Any]) -> None:
        text = waiting_text(why)
        if self._quiet:
            return
        if sys.stderr.isatty():
            self._show(f"waiting: {text}")
        elif text != self._last and clock.now() - self._printed_at >= self._gap:
            self._last, self._printed_at = text, clock.now()
            self._gap = min(max(self._gap * 2, GAP_FIRST), GAP_MAX)
            click.echo(f"cede: waiting: {text}", err=True)

    def happened(self, kind: str, text: str) -> None:
        """Print an event once: granted, told to stop, killed, back in the queue."""
        self.clear()
        if not self._quiet:
            click.echo(f"cede: {kind}{': ' if text else ''}{cell(text)}", err=True)

    def note(self, text: str) -> None:
        """Print that something cannot be done as wanted, or not now."""
        self.clear()
        if not self._quiet:
            click.echo(f"cede: {cell(text)}", err=True)

    def _show(self, text: str) -> None:
        from rich.console import Console
        from rich.text import Text

        if self._status is None:
            self._status = Console(stderr=True).status("")
            self._status.start()
        self._status.update(Text(text, overflow="ellipsis", no_wrap=True))

    def clear(self) -> None:
        """Remove the live line before something else is printed."""
        if self._status is not None:
            self._status.stop()
            self._status = None


def waiting_text(why: dict[str, Any]) -> str:
    """Return the reason, with the place in the queue and the latest start if the answer has
    them."""
    text = cell(reason_text(why)) or "its turn has not come"
    # Several pools, several queues: the best place is shown.
    places = [each["place"] for each in why.get("pools", []) if each.get("place")]
    starts = [each.get("earliest_start") for each in why.get("pools", [])]
    latest = min((each for each in starts if each is not None), default=None)
    told = [
        *([f"number {min(places)} in the queue"] if places else []),
        # Walltimes bound when holders end; they may end before.
        *([f"starts within {Age(latest)}"] if latest is not None else []),
    ]
    return f"{text} ({', '.join(told)})" if told else text
