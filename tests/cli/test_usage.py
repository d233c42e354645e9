"""`cede history` and `cede usage` at a terminal of 80 and 40 columns, piped, and for programs.

What other tests held stays in the sums, so teams and pools have names of their own here.
"""

from __future__ import annotations

import csv
import io
import json
import secrets
from datetime import UTC, datetime
from typing import NamedTuple

import pytest

from cede import Client
from cede.model.ids import short_id
from tests.cli.terminal import Shown, typed
from tests.client.serving import Serving

pytestmark = pytest.mark.system

WORK = {"component_type": "team", "kind": "work"}


class Stopped(NamedTuple):
    id: str
    team: str
    pool: str


@pytest.fixture
def stopped(client: Client) -> Stopped:
    """A team borrowed all four GPUs and was stopped for the owner, stars; both have ended."""
    pool, team = (f"{name}-{secrets.token_hex(2)}" for name in ("sky", "comets"))
    client.pools.create(pool, {"gpu": 4}, settings={"cost_per_hour": {"gpu": 1e6}})
    for owner, reserved in ((team, 0), ("stars", 4)):
        client.policies.attach(
            pool, owner, component_type="team", priority=1, reserved={"gpu": reserved}
        )
    labels = {"name": "sky-survey", "project": "orbits"}
    body = {**WORK, "pool": pool, "resources": {"gpu": 4}, "retry": {"preemptions": "count"}}
    lent = client.requests.create({**body, "component": team, "labels": labels})
    own = client.requests.create({**body, "component": "stars", "labels": {"name": "own"}})
    client.requests.release(lent["id"], outcome="stopped")
    client.requests.release(own["id"])
    return Stopped(lent["id"], team, pool)


def test_a_transcript_of_a_report(server: Serving, stopped: Stopped) -> None:
    def cede(*arguments: str, columns: int = 80, **env: str) -> Shown:
        return typed(*arguments, env={**server.environment(), **env}, columns=columns)

    teams = ("usage", "--by", "team", "--from", f"{datetime.now(UTC):%Y-%m}")
    shown = cede(*teams)
    assert shown.code == 0 and max(map(len, shown.lines)) <= 80
    for column in ("name", "requests", "preempted", "gpu_hours", "lost_gpu_hours", "cost"):
        assert column in shown.lines[0] or f"    {column} " in shown.text, shown.text
    row = next(line.split() for line in shown.lines if line.startswith(stopped.team))
    assert row[1:3] == ["1", "1"], shown.text
    narrow = cede(*teams, columns=40)
    assert max(map(len, narrow.lines)) <= 40
    assert stopped.team in narrow.text and "lost_gpu_hours" in narrow.text
    assert "\x1b[" not in cede(*teams, NO_COLOR="1").raw
    piped = server.cede(*teams)
    assert "\x1b[" not in piped.stdout and "stars" in piped.stdout

    past = cede("history", "--pool", stopped.pool)
    assert max(map(len, past.lines)) <= 80
    line = next(line for line in past.lines if "sky-survey" in line)
    assert line.split()[:4] == [short_id(stopped.id), "sky-survey", stopped.team, "preempted"]
    small = cede("history", "--pool", stopped.pool, columns=40)
    assert max(map(len, small.lines)) <= 40 and "sky-survey" in small.text
    nothing = cede("history", "--pool", stopped.pool, "--to", "2020-01")
    assert (nothing.code, nothing.line) == (0, "nothing has ended in that time")


def test_programs_get_csv_and_json(server: Serving, stopped: Stopped) -> None:
    def cede(*arguments: str) -> str:
        done = server.cede(*arguments, "--since", "1d")
        assert done.returncode == 0, done.stderr
        return str(done.stdout)

    rows = list(csv.DictReader(io.StringIO(cede("usage", "--by", "team", "-o", "csv"))))
    (comets,) = [each for each in rows if each["name"] == stopped.team]
    assert float(comets["lost_gpu_hours"]) > 0 and float(comets["cost"]) > 0
    found = json.loads(cede("usage", "--by", "label", "--label", "project", "--json"))["items"]
    assert "orbits" in {each["name"] for each in found}
    past = json.loads(cede("history", "--pool", stopped.pool, "--json"))
    assert [each["request"]["labels"]["name"] for each in past] == ["own", "sky-survey"]
    assert all(each["ended"].endswith("Z") and each["cost"] > 0 for each in past)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("usage", "--by", "taem"), "team"),
        (("usage", "--from", "yesterday"), "2026-11-01"),
        (("usage", "--from", "2026-13"), "2026-11-01"),
        (("usage", "--since", "1d", "--from", "2026-01"), "give one of them"),
        (("usage", "--days"), "give --from or --since"),
        (("history", "--columns", "gpu_huors"), "gpu_hours"),
        (("history", "--limit", "0"), "--limit"),
    ],
)
def test_wrong_usage_is_told(arguments: tuple[str, ...], said: str, server: Serving) -> None:
    shown = typed(*arguments, env=server.environment())
    assert shown.code == 2, shown.text
    assert said in shown.text and "Traceback" not in shown.text
