"""Errors of usage, without importing click until there is one."""

from __future__ import annotations

from collections.abc import Iterable


def wrong(problem: str) -> Exception:
    import click

    return click.UsageError(problem)


def pairs(option: str, given: Iterable[str]) -> list[tuple[str, str]]:
    """Parse NAME=VALUE, as often as it was given."""
    found = []
    for each in given:
        name, equals, value = each.partition("=")
        if not equals or not name:
            raise wrong(f"{option} wants NAME=VALUE, not {each!r:.80}")
        found.append((name, value))
    return found
