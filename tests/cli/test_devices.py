"""`cede run --gpu N` where the pool only counts: this machine's devices are assigned, or it says
that none are known."""

from __future__ import annotations

from pathlib import Path

import pytest

from cede import Client, Conflict
from cede.client import devices
from tests.cli.terminal import Typing, typed
from tests.cli.test_run import only_request
from tests.client.serving import Serving, eventually, two_teams
from tests.client.test_supervisor import alive, sleeper

pytestmark = pytest.mark.system

RUN = ("run", "--component", "blue", "-t", "team", "--gpu")
SHOW = ("sh", "-c", "echo devices: $CUDA_VISIBLE_DEVICES.")
NONE = "cede: devices: none are assigned: "


def test_commands_at_the_same_time_have_different_devices(
    server: Serving, client: Client, tmp_path: Path
) -> None:
    two_teams(client, gpus=4)
    here = f"{tmp_path.name}-"  # names that no other test on this machine uses
    env = server.environment(CUDA_VISIBLE_DEVICES=",".join(f"{here}{n}" for n in range(4)))
    hold = ("sh", "-c", "echo devices: $CUDA_VISIBLE_DEVICES.; read line; exit 3")
    with Typing(*RUN, "3", "--", *hold, env=env) as first:
        first.until(f"devices: {here}0,{here}1,{here}2.")
        assert f"devices: {here}3." in typed(*RUN, "1", "--", *SHOW, env=env).lines
        # Another pool counts the same machine: what is in use here stays so.
        client.pools.create("others", {"gpu": 4})
        client.policies.attach("others", "blue", component_type="team", priority=1)
        refused = typed(*RUN, "2", "--pool", "others", "--", *SHOW, env=env)
        assert refused.code == 5, refused.text
        assert "2 GPUs were granted, and 1 of the 4 of this machine are free" in refused.text
        first.press("\r")
        assert first.ended().code == 3
    again = typed(*RUN, "4", "--", *SHOW, env=env)
    assert f"devices: {here}0,{here}1,{here}2,{here}3." in again.text
    assert client.pools.get("others")["occupied"] == {"gpu": 0}


def test_a_device_is_free_when_nothing_of_its_work_is_left(
    server: Serving, client: Client, tmp_path: Path
) -> None:
    two_teams(client)
    device = f"{tmp_path.name}-0"
    sleep = sleeper()
    env = server.environment(CUDA_VISIBLE_DEVICES=device)
    with Typing(*RUN, "1", "--", *sleep.split(), env=env) as typing:
        eventually(lambda: alive(sleep))
        with pytest.raises(Conflict, match="0 of the 1"):
            devices.take(1, (device,))
        typing.process.kill()
        typing.process.wait()

    def free() -> bool:
        try:
            devices.take(1, (device,)).close()
        except Conflict:
            return False
        return True

    eventually(free)
    assert not alive(sleep)


@pytest.mark.parametrize("given", ["", "one"])
def test_where_too_few_are_known_it_says_so_before_it_starts(
    server: Serving, client: Client, given: str
) -> None:
    two_teams(client)
    shown = typed(*RUN, "2", "--", *SHOW, env=server.environment(CUDA_VISIBLE_DEVICES=given))
    said = [number for number, line in enumerate(shown.lines) if line.startswith(NONE)]
    ran = shown.lines.index(f"devices: {given}.")
    assert len(said) == 1 and said[0] < ran, shown.text
    assert only_request(client, "blue")["status"] == "released"


def test_without_gpus_nothing_is_said_or_set(server: Serving, client: Client) -> None:
    two_teams(client)
    env = server.environment(CUDA_VISIBLE_DEVICES="7")
    shown = typed("run", "--component", "blue", "-t", "team", "--", *SHOW, env=env)
    assert "devices: 7." in shown.lines and NONE not in shown.text


def test_a_number_and_a_name_mean_one_device(monkeypatch: pytest.MonkeyPatch) -> None:
    found = devices.gpus().__class__(("GPU-a", "GPU-b"), ("A100", "A100"), "1")
    monkeypatch.setattr(devices, "gpus", lambda: found)
    assert devices.known({}) == ("GPU-a", "GPU-b")
    assert devices.known({"CUDA_VISIBLE_DEVICES": "1,GPU-b,GPU-c"}) == ("GPU-b", "GPU-c")
    assert devices.known({"CUDA_VISIBLE_DEVICES": ""}) == ()
