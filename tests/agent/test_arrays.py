"""Arrays and dependencies as people type them, on a terminal of 80 columns and a real node."""

from __future__ import annotations

from pathlib import Path

import pytest

from cede.cli import exit_codes
from tests.agent.cluster import Cluster, read_when_there
from tests.cli.terminal import Shown, typed

pytestmark = pytest.mark.system

OWN = ("--pool", "nodes", "--component", "red", "-t", "team", "--gpu", "1")


@pytest.fixture
def go(tmp_path: Path) -> Path:
    """A folder in which work waits until a file of its number is there."""
    tmp_path.chmod(0o777)
    return tmp_path


def holding(go: Path) -> tuple[str, ...]:
    """Work that says which task it is, and ends when it may."""
    told = 'echo "task $CEDE_TASK of $CEDE_TASKS"; [ "$CEDE_TASK" = 2 ] && exit 3'
    waits = f"while ! test -e {go}/$CEDE_TASK; do sleep 0.05; done"
    return "--", "sh", "-c", f"{told}; echo yes > {go}/started-$CEDE_TASK; {waits}"


def test_a_transcript_of_an_array(shared: Cluster, go: Path) -> None:
    env = shared.server.environment()

    def cede(*words: str) -> Shown:
        return typed(*words, env=env)

    array = cede("submit", *OWN, "--array", "0-4%1", "--directory", str(go), *holding(go)).line
    assert len(array) == 8
    read_when_there(go / "started-0")
    why = cede("why", array)
    assert why.lines[:2] == [f"array {array}: 4 queued, 1 allocated", "task 0: allocated"]
    assert (
        "tasks 1-4: queued: at most 1 tasks of its array run at once: 1 hold units, and 0 are "
        "before it in the queue fix: one of these must end; to run more at once, submit "
        "the array with more than %1"
    ) in " ".join(why.text.split())
    assert cede("cancel", f"{array}_3").line == f"request {array}_3 is cancelled"
    listed = cede("request", "list", "--array", array, "--columns", "id,status")
    assert [each.split() for each in listed.lines[1:]] == [
        [f"{array}_4", "queued"],
        [f"{array}_3", "cancelled"],
        [f"{array}_2", "queued"],
        [f"{array}_1", "queued"],
        [f"{array}_0", "allocated"],
    ]
    for number in (0, 1, 4):
        (go / str(number)).touch()
    waited = cede("wait", array)
    assert waited.code == 3 and f"{array}_2: the work itself failed with exit code 3" in waited.text
    assert cede("logs", array).lines == [f"{each}: task {each} of 5" for each in (0, 1, 2, 4)]
    assert cede("logs", f"{array}_4").line == "task 4 of 5"
    assert cede("wait", "-q", f"{array}_1").code == 0
    described = cede("request", "describe", array).text
    assert "3 released, 1 cancelled, 1 failed" in " ".join(described.split())
    assert cede("logs", f"{array}_7").code == exit_codes.NOT_FOUND


def test_independent_tasks_know_which_they_are(shared: Cluster) -> None:
    many = ("--tasks", "3", "--independent", "--wait")
    told = ("--", "sh", "-c", "echo $CEDE_TASK/$CEDE_TASKS")
    done = shared.server.cede("submit", *OWN, *many, *told)
    assert done.returncode == 0, done.stderr
    printed = shared.server.cede("logs", done.stdout.strip())
    assert printed.stdout.splitlines() == ["0: 0/3", "1: 1/3", "2: 2/3"]


def test_a_transcript_of_dependencies(shared: Cluster, go: Path) -> None:
    env = shared.server.environment()

    def cede(*words: str) -> Shown:
        return typed(*words, env=env)

    def submit(*words: str) -> str:
        return cede("submit", *OWN, "--directory", str(go), *words).line

    waits = ("--", "sh", "-c", f"while ! test -e {go}/go; do sleep 0.05; done; exit 5")
    first = submit(*waits)
    array = submit("--array", "1-2", "--after", first, "--", "true")
    last = submit("--after", f"{array}_2,{array}_1", "--", "true")
    anyhow = submit("--after-any", array, "--", "echo", "cleaned up")
    why = " ".join(cede("why", last).text.split())
    assert f"it starts after {array}_2, which is queued, and 1 more" in why
    (go / "go").touch()
    assert cede("wait", "-q", first).code == 5
    waited = cede("wait", last)
    assert waited.code == exit_codes.CANCELLED
    story = " ".join(waited.text.split())
    assert f"it was to start after {array}_1, which ended as cancelled ({first}: the" in story
    assert "work itself failed with exit code 5)" in story
    assert cede("wait", "-q", anyhow).code == 0
    assert cede("logs", anyhow).line == "cleaned up"
    late = cede("submit", *OWN, "--after", first, "--wait", "--", "true")
    assert late.code == exit_codes.CANCELLED and "ended as failed" in " ".join(late.text.split())
    assert cede("submit", *OWN, "--after", "nobody", "--", "true").code == exit_codes.NOT_FOUND
