"""In CI, a test that depends on other programs is tried a second time if it fails, and is named.

Real processes on a machine that others use are late now and then, and a change must not be refused
for what it did not do. A test that passed at its second try is a defect all the same, in the test
or in cede: the run ends with its name and with how it failed. Whatever is computed by this process
alone gets no second try, nor does anything outside CI.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest

DEPENDENT = ("browser", "postgres", "slow", "system")


def allow(items: Iterable[pytest.Item]) -> None:
    for item in items:
        if any(item.get_closest_marker(name) for name in DEPENDENT):
            item.add_marker(pytest.mark.flaky(reruns=1))


def report(reporter: pytest.TerminalReporter) -> None:
    failed = reporter.stats.get("rerun", [])
    if not failed:
        return
    reporter.section("FAILED AT FIRST, AND WAS TRIED AGAIN", red=True, bold=True)
    for each in failed:
        reporter.line(f"{each.nodeid} ({each.when})", red=True)
        each.toterminal(reporter._tw)
