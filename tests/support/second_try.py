"""In CI, a test that depends on other programs is tried a second time if it fails, and is named.

Real processes on a machine that others use are late now and then, and a change must not be refused
for what it did not do. A test that passed at its second try is a defect all the same, in the test
or in cede: the run ends with its name and with how it failed. Whatever is computed by this process
alone gets no second try, nor does anything outside CI.

The second try starts from nothing: also the servers and agents that several tests share are made
anew, for it may be their state that made the first one fail.
"""

from __future__ import annotations

from contextlib import suppress

import pytest
from _pytest.runner import runtestprotocol

DEPENDENT = ("browser", "postgres", "slow", "system")
AGAIN = "again"  # the outcome of a first try that a second one follows


def run(item: pytest.Item, nextitem: pytest.Item | None) -> bool:
    """Whether the test was run here; else it is run as any other."""
    if not any(item.get_closest_marker(name) for name in DEPENDENT):
        return False
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    reports = runtestprotocol(item, log=False, nextitem=nextitem)
    failed = [each for each in reports if each.failed]
    if failed:
        for each in failed:
            each.outcome = AGAIN  # type: ignore[assignment]
            item.ihook.pytest_runtest_logreport(report=each)
        with suppress(Exception):  # what has failed may not end well either
            item.session._setupstate.teardown_exact(None)
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
    for each in reports:
        item.ihook.pytest_runtest_logreport(report=each)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def status(report: pytest.TestReport) -> tuple[str, str, str] | None:
    return (AGAIN, "A", "AGAIN") if report.outcome == AGAIN else None  # type: ignore[comparison-overlap]


def report(reporter: pytest.TerminalReporter) -> None:
    failed = reporter.stats.get(AGAIN, [])
    if not failed:
        return
    reporter.section("FAILED AT FIRST, AND WAS TRIED AGAIN", red=True, bold=True)
    for each in failed:
        reporter.line(f"{each.nodeid} ({each.when})", red=True)
        each.toterminal(reporter._tw)
