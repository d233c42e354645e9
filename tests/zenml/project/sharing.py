"""A user's project: a dynamic pipeline whose steps want GPUs. ZenML runs it; no test imports it."""

from __future__ import annotations

import json
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from zenml import pipeline, step
from zenml.config import ResourceSettings
from zenml.config.retry_config import StepRetryConfig


def note(trace: str, what: str) -> int:
    """Write down what happens, and when; returns how often it has happened."""
    file = Path(trace)
    with file.open("a") as stream:
        stream.write(f"{what} {time.time():.3f}\n")
    return sum(line.split()[0] == what for line in file.read_text().splitlines())


@step(enable_cache=False)
def train(trace: str, seconds: list[float], deaf: bool = False, leave: str = "") -> str:
    """Work for so many seconds: the first number in the first attempt, the last in later ones.

    When told to stop it may have something to save: until the file `leave` is there, if one is
    named.
    """
    attempt = note(trace, "start")
    work_for = seconds[min(attempt, len(seconds)) - 1]
    if deaf:
        time.sleep(work_for)
    try:
        until = time.monotonic() + work_for
        while time.monotonic() < until:
            time.sleep(0.05)
    except KeyboardInterrupt:
        with suppress(KeyboardInterrupt):  # told once more
            while leave and not Path(leave).exists():
                time.sleep(0.05)
        note(trace, "stopped")
        raise
    note(trace, "end")
    return "trained"


@pipeline(dynamic=True, enable_cache=False)
def sharing(plan: dict[str, Any]) -> None:
    while "go" in plan and not Path(plan["go"]).exists():
        time.sleep(0.05)
    retries = plan.get("retries", 2)
    chosen = train.with_options(
        settings={"resources": ResourceSettings(**plan["resources"])},
        retry=StepRetryConfig(max_retries=retries) if retries else None,
    )
    for _ in range(plan.get("times", 1)):
        how = {"deaf": plan.get("deaf", False), "leave": plan.get("leave", "")}
        call = chosen.submit if plan.get("submitted") else chosen
        call(trace=plan["trace"], seconds=plan["seconds"], **how)


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    sharing.with_options(run_name=given["run"])(plan=given)
