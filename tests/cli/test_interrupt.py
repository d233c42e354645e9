"""Ctrl-C at `cede run` goes to the command, twice cancels; the exit code is the command's."""

from __future__ import annotations

import signal
import sys
import time

import pytest

from cede import Client
from cede.client.interruptions import AGAIN_WITHIN
from tests.cli.terminal import CTRL_C, Typing
from tests.cli.test_run import only_request
from tests.client.serving import WAIT_SECONDS, Serving, two_teams
from tests.client.test_supervisor import alive, sleeper

pytestmark = pytest.mark.system

RUN = ("run", "--component", "red", "-t", "team", "--gpu", "1", "--")


def press_until_ended(typing: Typing) -> None:
    """Ctrl-C again and again: however slow the machine is, two come in quick succession."""
    deadline = time.monotonic() + WAIT_SECONDS
    while typing.process.poll() is None and time.monotonic() < deadline:
        typing.press(CTRL_C)
        time.sleep(0.05)


def test_an_interactive_program_lives_on_and_its_exit_code_is_ours(
    server: Serving, client: Client
) -> None:
    two_teams(client)
    command = (*RUN, sys.executable, "-q", "-i", "-c", "print('rea' + 'dy')")
    with Typing(*command, env=server.environment()) as typing:
        typing.until("ready")
        typing.until(">>> ")
        typing.press(CTRL_C)
        typing.until("KeyboardInterrupt")
        time.sleep(AGAIN_WITHIN + 0.5)  # it was seen, so the next one is later by more than that
        typing.press(CTRL_C)
        typing.until("KeyboardInterrupt", 2)
        typing.press("print(6 * 7)\r")
        typing.until("42")
        typing.press("raise SystemExit(7)\r")
        shown = typing.ended()
    assert shown.code == 7
    assert shown.text.count("cede: Ctrl-C: it went to the command; twice within 2 s cancels") == 1
    assert only_request(client)["status"] == "failed"
    assert client.pools.get("gpus")["occupied"] == {"gpu": 0}


def test_a_shell_ends_with_the_code_it_was_left_with(server: Serving, client: Client) -> None:
    two_teams(client)
    with Typing(*RUN, "bash", "--norc", "-i", env=server.environment(PS1="sh> ")) as typing:
        typing.until("sh> ")
        typing.press("trap 'echo caught' INT; echo $((2 + 3)) set\r")
        typing.until("5 set")
        typing.press(CTRL_C)
        typing.until("caught", 2)  # as it was typed, and as it happened
        typing.press("exit 0\r")
        assert typing.ended().code == 0
    assert only_request(client)["status"] == "released"


def test_a_program_that_dies_of_it_is_cancelled(server: Serving, client: Client) -> None:
    two_teams(client)
    with Typing(*RUN, "sh", "-c", "echo here; sleep 600", env=server.environment()) as typing:
        typing.until("here")
        typing.press(CTRL_C)
        assert typing.ended().code == 130
    assert only_request(client)["status"] == "cancelled"


def test_one_that_ends_by_its_own_code_is_not_tried_again(server: Serving, client: Client) -> None:
    two_teams(client)
    script = "trap 'exit 3' INT; echo here; while :; do sleep 0.05; done"
    command = (*RUN[:-1], "--retries", "2", "--", "sh", "-c", script)
    with Typing(*command, env=server.environment()) as typing:
        typing.until("here")
        typing.press(CTRL_C)
        assert typing.ended().code == 3
    found = only_request(client)
    assert (found["status"], found["attempt"]) == ("cancelled", 2)
    assert client.pools.get("gpus")["occupied"] == {"gpu": 0}


def test_twice_cancels_what_ignores_it(server: Serving, client: Client) -> None:
    two_teams(client)
    sleep = sleeper()
    script = f"trap '' INT TERM; echo here; while :; do {sleep} & wait; done"
    with Typing(*RUN, "sh", "-c", script, env=server.environment()) as typing:
        typing.until("here")
        press_until_ended(typing)
        # One more Ctrl-C may end the interpreter as it leaves; to a shell both are 130.
        assert typing.ended().code in (130, -signal.SIGINT)
    assert not alive(sleep)
    assert only_request(client)["status"] == "cancelled"


def test_a_pipeline_on_a_terminal_keeps_to_its_pool(server: Serving, client: Client) -> None:
    """Steps from a thread pool, futures and coroutines, and the requests that they made."""
    two_teams(client)
    client.policies.attach("gpus", "orch", priority=10, limit={"gpu": 2})
    program = """
import asyncio
from concurrent.futures import ThreadPoolExecutor
from cede import ResourceSettings, pipeline, step

@step(settings={"resources": ResourceSettings(gpu_count=2)})
def double(value):
    return 2 * value

@pipeline(dynamic=True, orchestrator="orch")
async def flow():
    with ThreadPoolExecutor() as threads:
        first = threads.submit(double, 1)
        second = double.map([2, 3])
        third = await asyncio.gather(double.submit(4), *second)
        print("doubled", await asyncio.wrap_future(first), *third)

asyncio.run(flow())
"""
    env = server.environment()
    with Typing("-c", program, env=env, program=(sys.executable,)) as typing:
        shown = typing.ended()
    assert (shown.code, "doubled 2 8 4 6" in shown.text) == (0, True), shown.text
    columns = ("request", "list", "--component", "orch", "--columns", "status,asks")
    with Typing(*columns, env=env) as typing:
        listed = typing.ended()
    assert listed.text.count("released") == 4 and listed.text.count("gpu 2") == 4, listed.text
    assert max(map(len, listed.lines)) <= 80
