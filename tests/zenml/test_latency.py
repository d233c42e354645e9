"""How long freed units stay idle: from the end of one step to the grant and start of the next."""

from __future__ import annotations

import itertools
import threading
import time

import pytest

from cede import Client
from tests.client.serving import Serving
from tests.zenml.world import ZenServer, pool

# Whichever test is first also starts the servers.
pytestmark = [pytest.mark.zenml, pytest.mark.system, pytest.mark.timeout(3600)]

STEPS = 4
# What ZenML 0.98 sleeps between two looks at a request: doubled up to the most, shortened by up to
# half.
POLL_FIRST, POLL_MOST = 1.0, 20.0


def test_the_next_step_is_granted_when_the_last_one_ends(
    cede: Serving, zen: ZenServer, capsys: pytest.CaptureFixture[str]
) -> None:
    pool(cede, gpus=1, red=0, blue=0)
    granted: list[float] = []
    client = cede.client()
    threading.Thread(target=_watch, args=(client, granted), daemon=True).start()
    plan = {"resources": {"gpu_count": 1}, "seconds": [2.0], "times": STEPS}
    runs = [zen.run(name, f"{name}-alternating", **plan) for name in ("red", "blue")]
    for run in runs:
        run.succeeds()
    client.close()
    starts = sorted(at for run in runs for at in run.noted("start"))
    ends = sorted(at for run in runs for at in run.noted("end"))
    assert len(granted) == len(starts) == len(ends) == 2 * STEPS
    # One holds at a time, so the n-th grant follows the end before it, and a start follows a grant.
    grants = [b - a for a, b in zip(ends, granted[1:], strict=False)]
    begins = [b - a for a, b in zip(granted, starts, strict=True)]
    assert all(a < b for a, b in itertools.pairwise(sorted([*starts, *ends])))
    with capsys.disabled():
        print(
            f"\n{len(grants)} hand-overs between two pipelines on one GPU (seconds):\n"
            f"  end of a step's function to the next grant   {_spread(grants)}\n"
            f"  grant to the start of the step's function    {_spread(begins)}\n"
            f"  ZenML's own pause between two looks          {POLL_FIRST / 2:g} to {POLL_MOST:g}"
        )


def _watch(client: Client, granted: list[float]) -> None:
    """When each grant is made, by the wall clock that the steps write down."""
    try:
        for event in client.events(follow=True):
            if event["kind"] == "granted":
                granted.append(time.time())
    except Exception:
        return  # the test is over


def _spread(values: list[float]) -> str:
    ordered = sorted(values)
    middle = ordered[len(ordered) // 2]
    return f"least {ordered[0]:5.2f}  median {middle:5.2f}  most {ordered[-1]:5.2f}"
