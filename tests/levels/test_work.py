"""The examples with real work: functions of steps in child processes, and `cede run`."""

from __future__ import annotations

import os
import signal

import pytest

from cede import Rejected, ResourceSettings, pipeline, step
from tests.client.serving import WAIT_SECONDS, Serving, eventually
from tests.examples import EXAMPLES, Example
from tests.levels.level import InPython, OnCommandLine
from tests.levels.test_examples import prepare, submit

pytestmark = pytest.mark.system

DECIDED_AT_ONCE = [
    each for each in EXAMPLES if each.expected.status in ("allocated", "rejected")
]  # fmt: skip


def example(number: int) -> Example:
    return next(each for each in EXAMPLES if each.number == number)


@pytest.mark.parametrize("example", DECIDED_AT_ONCE, ids=lambda each: each.name)
def test_the_step_runs_in_the_documented_pool_or_is_rejected(
    server: Serving, example: Example
) -> None:
    level = InPython(server)
    prepare(level, example)
    component = level.own(example.step.component)
    operator = component if example.step.component_type == "step_operator" else None

    @step(settings={"resources": ResourceSettings(**example.step.settings)}, step_operator=operator)
    def where() -> str:
        return os.environ["CEDE_POOL"]

    @pipeline(dynamic=True, orchestrator=component, client=level.client)
    def flow() -> str:
        return where()

    if example.expected.status == "allocated":
        assert level.plain(flow()) == example.expected.pool
    else:
        with pytest.raises(Rejected) as refused:
            flow()
        assert refused.value.code == example.expected.reason
    level.close()


def test_cede_run_waits_for_the_fifth_slot(server: Serving) -> None:
    level, ten = OnCommandLine(server), example(10)
    prepare(level, ten)
    first, *_ = [submit(level, each) for each, _ in ten.prelude]
    who = ("--component", level.own("k8s-orch"), "--gpu", 2)
    fifth = server.start_cede("run", *who, "--label", f"example={level.tag}", "--", "true")
    waiting = eventually(lambda: [each for each in level.requests() if each["status"] == "queued"])
    assert level.reason(waiting[0]["id"])["key"] == "step_run"
    level.end(first["id"], "done")
    assert fifth.wait(2 * WAIT_SECONDS) == 0
    level.close()


def test_cede_run_gives_way_to_production_and_comes_back(server: Serving) -> None:
    level, sixteen = OnCommandLine(server), example(16)
    prepare(level, sixteen)

    def run(component: str, gpus: int, *command: str) -> object:
        label = ("--label", f"example={level.tag}", "--label", f"name={component}")
        who = ("--component", level.own(component), "--gpu", gpus)
        return server.start_cede("run", *who, *label, "--", *command)

    def of(component: str) -> dict:
        return next(e for e in level.requests() if e["labels"]["name"] == component)

    sandbox = run("sandbox-orch", 6, "sleep", "1000")

    def runs() -> bool:
        return bool(level.requests()) and of("sandbox-orch")["allocation"]["state"] == "running"

    eventually(runs)
    prod = run("prod-orch", 4, "true")
    assert prod.wait(2 * WAIT_SECONDS) == 0
    eventually(lambda: of("sandbox-orch")["status"] == "allocated")
    again = of("sandbox-orch")
    assert (again["attempt"], again["preempted_count"]) == (2, 1)
    sandbox.send_signal(signal.SIGTERM)
    assert sandbox.wait(WAIT_SECONDS) == 128 + signal.SIGTERM
    level.close()
