"""C9: work runs as whom the map says, and never silently as root."""

from __future__ import annotations

import os
import pwd
from dataclasses import replace
from pathlib import Path

import pytest

from cede.agent import accounts
from cede.agent.accounts import FIRST_ID, IDS, NotAllowed, Refused, account_for, own_home
from cede.agent.isolation import isolation_here, warnings

WHO = ["ann", "team:red"]
TEAMS = ("team:red", "team:blue")
NOBODY = {"*": ("nobody",)}

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="asks what an agent that is root does")


@as_root
@pytest.mark.parametrize(
    ("users", "asked", "account"),
    [
        (NOBODY, "", "nobody"),
        (NOBODY, "nobody", "nobody"),
        ({"team:red": ("daemon",), **NOBODY}, "", "daemon"),
        ({"ann": ("bin", "daemon"), "team:red": ("nobody",)}, "", "bin"),
        ({"ann": ("bin", "daemon")}, "daemon", "daemon"),
    ],
    ids=["everybody's", "asked for", "the team's", "the person's first", "another of hers"],
)
def test_the_map_says_who_runs_it(
    users: dict[str, tuple[str, ...]], asked: str, account: str
) -> None:
    found = account_for(WHO, asked, users, allow_root=False)
    assert found.name == account
    assert found.user is not None and found.user.uid != 0


@as_root
@pytest.mark.parametrize(
    ("users", "asked", "allow_root", "error", "why"),
    [
        ({}, "nobody", False, NotAllowed, "--user-map"),
        ({"*": ("root",)}, "", False, NotAllowed, "--allow-root-jobs"),
        ({"*": ("no-such-account",)}, "", False, Refused, "no account"),
        ({"team:blue": ("nobody",)}, "", True, NotAllowed, "for ann or team:red"),
        (NOBODY, "root", True, NotAllowed, "root is not for ann"),
        ({}, "no-such-account", True, NotAllowed, "no account"),
    ],
    ids=[
        "asked without a map",
        "mapped to root",
        "mapped to nobody that exists",
        "not in the map",
        "asked for root",
        "asked for nobody that exists",
    ],
)
def test_everybody_else_is_refused(
    users: dict[str, tuple[str, ...]],
    asked: str,
    allow_root: bool,
    error: type[Exception],
    why: str,
) -> None:
    with pytest.raises(error, match=why):
        account_for(WHO, asked, users, allow_root=allow_root)


@as_root
def test_root_runs_work_only_where_the_operator_said_so() -> None:
    assert account_for(WHO, "", {}, allow_root=True).name == "root"


@as_root
def test_without_a_map_each_team_has_an_account_of_its_own() -> None:
    red, blue = (account_for(["ann", team], "", {}, allow_root=False) for team in TEAMS)
    assert red.user is not None and blue.user is not None
    assert len({0, red.user.uid, blue.user.uid}) == 3
    for each in (red.user, blue.user):
        assert each.uid == each.gid and not each.groups
        assert FIRST_ID <= each.uid < FIRST_ID + IDS
        with pytest.raises(KeyError):
            pwd.getpwuid(each.uid)
    # Checkpoints on a shared file system belong to it on every node, whoever of the team submits.
    assert account_for(["bob", "team:red"], "", {}, allow_root=False) == red


@as_root
def test_an_account_is_refused_where_the_container_has_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ids = tmp_path / "uid_map"
    ids.write_text("         0     100000      65536\n")
    monkeypatch.setattr(accounts, "ID_MAP", str(ids))
    with pytest.raises(Refused, match="--user-map"):
        account_for(WHO, "", {}, allow_root=False)


@as_root
def test_two_teams_with_one_number_are_not_given_one_account(tmp_path: Path) -> None:
    red = account_for(["ann", "team:red"], "", {}, allow_root=False)
    home = own_home(tmp_path, red)
    assert own_home(tmp_path, red) == home
    with pytest.raises(Refused, match="team:blue and team:red would share"):
        own_home(tmp_path, replace(red, made_for="team:blue"))


@as_root
@pytest.mark.parametrize(
    ("users", "allow_root", "found", "named"),
    [
        ({}, False, "account", ""),
        ({"team:red": ("daemon",), "team:blue": ("bin",)}, False, "account", ""),
        ({"*": ("nobody",)}, False, "shared-account", "nobody runs work of everybody else"),
        (
            {"team:red": ("daemon",), "team:blue": ("daemon",)},
            False,
            "shared-account",
            "daemon runs work of team:red and team:blue",
        ),
        ({}, True, "none", "work may be root here"),
        ({"ann": ("root",)}, True, "none", "work may be root here"),
    ],
    ids=["made", "one for each", "everybody's", "of two teams", "root", "mapped to root"],
)
def test_the_map_says_how_far_teams_are_apart(
    users: dict[str, tuple[str, ...]], allow_root: bool, found: str, named: str
) -> None:
    isolation = isolation_here(users, allow_root=allow_root)
    assert isolation == found
    said = warnings(isolation, users)
    assert [named in each for each in said] == ([True] if named else [])


def test_an_agent_that_is_not_root_runs_work_as_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    nobody = pwd.getpwnam("nobody")
    monkeypatch.setattr(os, "geteuid", lambda: nobody.pw_uid)
    assert account_for(WHO, "", NOBODY, allow_root=True).user is None
    with pytest.raises(NotAllowed, match="nobody else"):
        account_for(WHO, "daemon", NOBODY, allow_root=True)
