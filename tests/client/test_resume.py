"""Where work that a client holds starts: at the newest checkpoint that verifies in its folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cede import CedeClientError
from cede.checkpoint import manifest
from cede.client import resume
from cede.client.stopping import Stopping

REQUEST = {"id": "r1", "attempt": 2, "checkpoint_protocol": "signal"}


def save(directory: Path, id: str) -> None:
    (directory / id).mkdir(parents=True)
    (directory / id / "model").write_text(id)
    manifest.write(directory, id, step=int(id.partition("-")[0]))


def damage(directory: Path, id: str) -> None:
    (directory / id / "model").write_text("?" * len(id))


class Told(list[tuple[str, str]]):
    def __call__(self, kind: str, text: str) -> None:
        self.append((kind, text))


def find(directory: Path, committed: str | None, **request: Any) -> tuple[tuple[str, ...], Told]:
    told = Told()
    saved = None if committed is None else {"id": committed}
    found = resume.find(directory, {**REQUEST, "saved": saved, **request}, told, lambda: None)
    return found.ids, told


def test_a_first_attempt_starts_from_the_beginning(tmp_path: Path) -> None:
    assert find(tmp_path / "none", None) == ((), [])


def test_a_newer_one_than_the_server_knows_counts(tmp_path: Path) -> None:
    for id in ("10-1", "20-1", "30-1"):
        save(tmp_path, id)
    assert find(tmp_path, "10-1") == (("30-1", "20-1"), [])


def test_a_damaged_one_is_named_and_the_one_before_it_counts(tmp_path: Path) -> None:
    for id in ("10-1", "20-1"):
        save(tmp_path, id)
    damage(tmp_path, "20-1")
    ids, told = find(tmp_path, "20-1")
    assert ids == ("10-1",)
    ((kind, text),) = told
    assert kind == "resume" and "20-1" in text and "model" in text and str(tmp_path) in text
    assert text.endswith("it goes on from checkpoint 10-1") and "\n" not in text


def test_a_missing_one_is_named_and_it_starts_from_the_beginning(tmp_path: Path) -> None:
    ids, told = find(tmp_path, "20-1")
    assert ids == ()
    assert told == [
        (
            "resume",
            f"checkpoint 20-1: there is no {tmp_path / '20-1.manifest.json'}; "
            "it starts from the beginning",
        )
    ]


def test_work_that_must_resume_does_not_start_without_a_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(CedeClientError, match=r"r1 cannot be resumed.*20-1\.manifest\.json"):
        find(tmp_path, "20-1", resume="required")
    save(tmp_path, "10-1")
    assert find(tmp_path, "20-1", resume="required")[0] == ("10-1",)


class Server:
    """Stands for the client of a server; `says` is what it heard."""

    def __init__(self, error: CedeClientError | None = None) -> None:
        self.requests = self
        self.says: list[dict[str, Any]] = []
        self._error = error

    def say(self, request: str, kind: str, **fields: Any) -> dict[str, Any]:
        self.says.append({"kind": kind, **fields})
        if self._error is not None:
            raise self._error
        return {"allocation": None}


class Unlost:
    lost = False


@pytest.mark.parametrize("error", [None, CedeClientError("no such kind")], ids=["heard", "refused"])
def test_the_server_is_told_what_it_did_not_know(
    tmp_path: Path, error: CedeClientError | None
) -> None:
    for id in ("10-1", "20-1"):
        save(tmp_path / "r1", id)
    server: Any = Server(error)
    stopping = Stopping(server, {**REQUEST, "saved": {"id": "10-1"}}, tmp_path, Told())
    try:
        assert server.says == [{"kind": "found", "attempt": 2, "ids": ["20-1", "10-1"]}]
        assert stopping.environment()["CEDE_RESUME_FROM"] == str(tmp_path / "r1" / "20-1")
    finally:
        stopping.close()


def test_what_the_server_knows_is_not_said_again(tmp_path: Path) -> None:
    save(tmp_path / "r1", "10-1")
    server: Any = Server()
    stopping = Stopping(server, {**REQUEST, "saved": {"id": "10-1"}}, tmp_path, Told())
    stopping.close()
    assert server.says == []


def test_where_it_started_from_stays_until_it_has_two_of_its_own(tmp_path: Path) -> None:
    folder = tmp_path / "r1"
    save(folder, "10-1")
    save(folder, "20-1")
    server: Any = Server()
    stopping = Stopping(server, {**REQUEST, "saved": {"id": "20-1"}}, tmp_path, Told())
    stopping._lease = Unlost()  # type: ignore[assignment]
    try:
        save(folder, "30-2")
        stopping._tell_saved(None, "30-2", 1)
        assert {each.name for each in folder.iterdir() if each.is_dir()} == {"10-1", "20-1", "30-2"}
        save(folder, "40-2")
        stopping._tell_saved(None, "40-2", 1)
        assert {each.name for each in folder.iterdir() if each.is_dir()} == {"30-2", "40-2"}
    finally:
        stopping.close()
