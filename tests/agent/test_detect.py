"""What a machine has is found out, also where there is no GPU, no driver and no library."""

from __future__ import annotations

import os
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from cede.agent import detect


class FakeNvml(SimpleNamespace):
    """NVIDIA's library as it answers on machines that we do not have."""

    class NVMLError(Exception):
        pass


def nvml(**functions: Any) -> FakeNvml:
    usual = {
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlDeviceGetCount": lambda: 2,
        "nvmlDeviceGetHandleByIndex": lambda n: n,
        "nvmlDeviceGetUUID": lambda n: f"GPU-{n}",
        "nvmlDeviceGetName": lambda n: b"A100",
        "nvmlSystemGetDriverVersion": lambda: "550.1",
    }
    return FakeNvml(**(usual | functions))


def fails(*_: object) -> None:
    raise FakeNvml.NVMLError


NONE = detect.Gpus()
TWO = detect.Gpus(("GPU-0", "GPU-1"), ("A100", "A100"), "550.1")


@pytest.mark.parametrize(
    ("library", "found"),
    [
        (None, NONE),
        (nvml(nvmlInit=fails), NONE),
        (nvml(nvmlDeviceGetCount=fails), NONE),
        (nvml(nvmlDeviceGetUUID=fails), NONE),
        (nvml(), TWO),
    ],
    ids=["no library", "no driver", "a broken driver", "one fell off the bus", "two"],
)
def test_gpus_are_named_where_there_are_any(
    library: Any, found: detect.Gpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", library)
    assert detect.gpus() == found
    assert detect.amounts(found).get("gpu", 0) == len(found.names)


def test_processors_are_those_that_this_process_may_use() -> None:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        assert detect.amounts(NONE)["mcpu"] == 1000
    finally:
        os.sched_setaffinity(0, before)


def test_a_fingerprint_changes_with_what_programs_notice() -> None:
    assert detect.fingerprint(NONE) == detect.fingerprint(NONE) != detect.fingerprint(TWO)
    assert len(detect.boot_id()) == 36
