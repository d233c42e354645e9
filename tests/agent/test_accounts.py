"""C9: work runs as whom the map says, and never silently as root."""

from __future__ import annotations

import os

import pytest

from cede.agent.accounts import NotAllowed, Refused, account_for

WHO = ["ann", "team:red"]
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
        ({}, "", False, NotAllowed, "--user-map"),
        ({}, "nobody", False, NotAllowed, "--user-map"),
        ({"*": ("root",)}, "", False, NotAllowed, "--allow-root-jobs"),
        ({"*": ("no-such-account",)}, "", False, Refused, "no account"),
        ({"team:blue": ("nobody",)}, "", True, NotAllowed, "for ann or team:red"),
        (NOBODY, "root", True, NotAllowed, "root is not for ann"),
        ({}, "no-such-account", True, NotAllowed, "no account"),
    ],
    ids=[
        "no map",
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


def test_an_agent_that_is_not_root_runs_work_as_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    import pwd

    nobody = pwd.getpwnam("nobody")
    monkeypatch.setattr(os, "geteuid", lambda: nobody.pw_uid)
    assert account_for(WHO, "", NOBODY, allow_root=True).user is None
    with pytest.raises(NotAllowed, match="nobody else"):
        account_for(WHO, "daemon", NOBODY, allow_root=True)
