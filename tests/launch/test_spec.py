"""A spec that is wrong is refused with the name of what is wrong; paths stay where they belong."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest

from cede.launch.launcher import prepare
from cede.launch.places import Place, component
from cede.launch.probe import Containment
from cede.launch.spec import Fence, Limits, Spec, User
from cede.model.errors import Conflict, Invalid

GOOD: dict[str, Any] = {
    "fence": {"allocation": "a1", "attempt": 2, "task": 3},
    "argv": ["train", "--fast"],
    "env": {"CEDE_ALLOCATION": "a1", "CEDE_TASK": "3", "EMPTY": ""},
    "directory": "/tmp",
    "user": {"uid": 1000, "gid": 1000, "groups": [4, 5]},
    "limits": {"pids": 100},
    "log_bytes": 10000,
    "walltime": 3600,
    "walltime_grace": 2.5,
}
NOWHERE = Containment("subreaper", "", {}, {})


def test_json_both_ways() -> None:
    spec = Spec.from_json(GOOD)
    assert spec.to_json() == GOOD
    assert Spec.from_json(json.loads(json.dumps(spec.to_json()))) == spec
    assert spec.fence == Fence("a1", 2, 3)
    assert (spec.user, spec.limits) == (User(1000, 1000, (4, 5)), Limits(100, None))
    assert spec.name == "a1.3"


def test_what_may_be_left_out_has_the_documented_default() -> None:
    spec = Spec.from_json({key: GOOD[key] for key in ("fence", "argv", "env", "directory")})
    assert (spec.user, spec.limits, spec.walltime) == (None, Limits(), None)
    assert spec.walltime_grace == 30


WRONG: dict[str, tuple[tuple[str, ...], Any, str]] = {
    "a shell's line": (("argv",), "train --fast", "argv"),
    "no arguments": (("argv",), [], "argv"),
    "an empty program": (("argv",), [""], "argv"),
    "an argument that is a number": (("argv",), ["train", 1], "argv"),
    "an argument with a zero byte": (("argv",), ["a\0b"], "argv"),
    "an argument of 2 MB": (("argv",), ["a", "b" * 2**21], "argv"),
    "2 MB of arguments": (("argv",), ["b" * 2**16] * 32, "argv"),
    "half a character": (("argv",), ["\ud800"], "argv"),
    "an environment that is a list": (("env",), ["A=b"], "env"),
    "a variable with = in its name": (("env", "A=B"), "c", "env"),
    "a variable without a name": (("env", ""), "c", "env"),
    "a variable that is a number": (("env", "A"), 1, "env.'A'"),
    "a marker of another allocation": (("env", "CEDE_ALLOCATION"), "b", "env.CEDE_ALLOCATION"),
    "a relative directory": (("directory",), "tmp", "directory"),
    "an allocation that is a path": (("fence", "allocation"), "../a", "allocation"),
    "an allocation that is hidden": (("fence", "allocation"), ".a", "allocation"),
    "an allocation of 10 kB": (("fence", "allocation"), "a" * 10000, "allocation"),
    "attempt 0": (("fence", "attempt"), 0, "fence.attempt"),
    "a task that is true": (("fence", "task"), True, "fence.task"),
    "a fence with more": (("fence", "epoch"), 1, "fence.epoch"),
    "a user by name": (("user", "uid"), "root", "user.uid"),
    "nobody's number": (("user", "uid"), 2**32 - 1, "user.uid"),
    "a negative group": (("user", "groups"), [-1], "user.groups"),
    "no limit, said as 0": (("limits", "pids"), 0, "limits.pids"),
    "half a megabyte": (("limits", "memory_mb"), 0.5, "limits.memory_mb"),
    "an unknown limit": (("limits", "cpu"), 1, "limits.cpu"),
    "limits that are nothing": (("limits",), None, "limits"),
    "no log": (("log_bytes",), 0, "log_bytes"),
    "a walltime of NaN": (("walltime",), math.nan, "walltime"),
    "a walltime without end": (("walltime",), math.inf, "walltime"),
    "a grace that is text": (("walltime_grace",), "30", "walltime_grace"),
    "a field of tomorrow": (("nice",), 3, "spec.nice"),
}


@pytest.mark.parametrize("case", WRONG)
def test_it_is_refused_by_name(case: str) -> None:
    path, value, field = WRONG[case]
    given = json.loads(json.dumps(GOOD))
    target = given
    for each in path[:-1]:
        target = target[each]
    target[path[-1]] = value
    with pytest.raises(Invalid) as refused:
        Spec.from_json(given)
    assert refused.value.field == field


@pytest.mark.parametrize("field", ["fence", "argv", "env", "directory"])
def test_what_is_missing_is_named(field: str) -> None:
    with pytest.raises(Invalid, match=f"spec.{field}: is missing"):
        Spec.from_json({key: value for key, value in GOOD.items() if key != field})


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/a", ".a", "-a", "a\0", "ä", "a" * 129, 1])
def test_a_name_is_one_component(name: object) -> None:
    with pytest.raises(Invalid, match="field"):
        component("field", name)


def test_links_are_not_followed(tmp_path: Path) -> None:
    """C6: neither a file nor a directory."""
    (tmp_path / "real").mkdir()
    (tmp_path / "secret").write_text("{}")
    (tmp_path / "real/link").symlink_to(tmp_path / "secret")
    (tmp_path / "alias").symlink_to(tmp_path / "real")
    with Place(tmp_path / "real") as place:
        with pytest.raises(OSError, match="symbolic links"):
            place.read("link")
        with pytest.raises(Invalid):
            place.read("../secret")
        place.write("link", 1)  # replaces the link, and not what it points to
    assert (tmp_path / "secret").read_text() == "{}"
    with pytest.raises(OSError, match="Not a directory"):
        Place(tmp_path / "alias")


def test_what_is_created_is_never_replaced(tmp_path: Path) -> None:
    with Place(tmp_path) as place:
        assert place.create("exit.json", 1)
        assert not place.create("exit.json", 2)
        assert place.read("exit.json") == 1
        assert [each.name for each in tmp_path.iterdir()] == ["exit.json"]


def test_a_lock_is_seen_from_outside_and_ends_with_its_process(tmp_path: Path) -> None:
    with Place(tmp_path) as place:
        assert place.holder() is None
        told, tell = os.pipe()
        pid = os.fork()
        if pid == 0:
            with Place(tmp_path) as mine:
                os.write(tell, b"1" if mine.lock() else b"0")
                os.read(os.pipe()[0], 1)
        assert os.read(told, 1) == b"1"
        assert place.holder() == pid
        assert not place.lock()
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        assert place.holder() is None
        assert place.lock()
        for each in (told, tell):
            os.close(each)


def test_preparing_again_changes_nothing_and_another_spec_is_refused(tmp_path: Path) -> None:
    spec = Spec.from_json(GOOD)
    directory = prepare(tmp_path, spec, NOWHERE, deadline=5)
    assert prepare(tmp_path, spec, NOWHERE, deadline=7) == directory
    with Place(directory) as place:
        _, _, wanted = place.read_spec()
        assert wanted == {"deadline": 5, "stop": None}
    other = Spec.from_json({**GOOD, "argv": ["other"]})
    with pytest.raises(Conflict, match="another spec"):
        prepare(tmp_path, other, NOWHERE)


def test_only_its_owner_reads_an_attempts_files(tmp_path: Path) -> None:
    directory = prepare(tmp_path, Spec.from_json(GOOD), NOWHERE)
    assert directory.stat().st_mode & 0o777 == 0o711
    assert {each.stat().st_mode & 0o077 for each in directory.iterdir()} == {0}
