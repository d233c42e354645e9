"""The one clock goes on over restarts and never back; ids sort by when they were made."""

from __future__ import annotations

import re
import uuid
from datetime import timedelta
from typing import Any

import pytest

from cede.server import clock, ids
from cede.server.clock import Clock
from cede.store.values import Moment


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A machine whose clock and boot the test decides."""
    values: dict[str, Any] = {"boottime": 1_000, "boot_id": "boot-1", "wall": 5_000}
    monkeypatch.setattr(clock, "boottime", lambda: values["boottime"])
    monkeypatch.setattr(clock, "boot_id", lambda: values["boot_id"])
    monkeypatch.setattr(clock, "wall_milliseconds", lambda: values["wall"])
    return values


def test_it_starts_at_the_committed_instant_and_counts(machine: dict[str, Any]) -> None:
    one = Clock(Moment(0, "", 0))
    assert one.now() == 0
    machine["boottime"] += 250
    assert one.now() == 250


def test_time_between_two_runs_of_one_boot_counts(machine: dict[str, Any]) -> None:
    first = Clock(Moment(0, "", 0))
    machine["boottime"] += 250
    moment = first.moment(first.now())
    machine["boottime"] += 10_000
    assert Clock(moment).now() == 10_250


def test_after_a_reboot_it_goes_on_where_it_was(machine: dict[str, Any]) -> None:
    first = Clock(Moment(0, "", 0))
    machine["boottime"] += 250
    moment = first.moment(first.now())
    machine |= {"boottime": 99_000, "boot_id": "boot-2"}
    assert Clock(moment).now() == 250


def test_it_never_goes_back(machine: dict[str, Any]) -> None:
    one = Clock(Moment(70, "boot-1", 2_000))  # committed later in this boot than "now"
    assert one.now() == 70
    machine["boottime"] = 500
    assert one.now() == 70


def test_a_system_without_a_boot_id_never_counts_time_twice(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setattr(clock, "_BOOT_ID", tmp_path / "gone")
    assert clock.boot_id() != clock.boot_id()


def test_labels_compare_as_text() -> None:
    now, later = clock.wall(), clock.wall(timedelta(hours=1))
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", now)
    assert now < later


def test_ids_are_uuid7_and_increase_even_when_the_wall_clock_does_not(
    machine: dict[str, Any],
) -> None:
    made = [ids.new_id() for _ in range(5_000)]
    machine["wall"] = 1
    made += [ids.new_id() for _ in range(10)]
    assert made == sorted(set(made))
    assert {uuid.UUID(each).version for each in made} == {7}
    assert {uuid.UUID(each).variant for each in made} == {uuid.RFC_4122}
