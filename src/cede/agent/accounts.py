"""Which account of this machine runs whose work. Never silently root (C9)."""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cede.launch.spec import User


class Refused(Exception):
    """This node cannot do what its own map says: its operator must look."""


class NotAllowed(Exception):
    """Nobody allowed this work to run here as whom it would. Its submitter is told what would help;
    that is no reason to think less of the node.
    """


@dataclass(frozen=True, slots=True)
class Account:
    """`user` is None where the work runs as the agent itself does."""

    name: str
    home: str
    user: User | None = None


def account_for(
    submitters: Sequence[str],
    asked: str,
    users: Mapping[str, tuple[str, ...]],
    *,
    allow_root: bool,
) -> Account:
    """The account for work of these submitters, the most telling name first."""
    own = _own()
    if os.geteuid() != 0:
        if asked not in ("", own.name):
            raise NotAllowed(f"the agent runs as {own.name} and can start work as nobody else")
        return own
    if not users and not allow_root:
        raise NotAllowed(
            "its agent is root and knows no other account: start the agent with --user-map "
            "WHO=ACCOUNT, or with --allow-root-jobs if work may be root"
        )
    names = _mapped(submitters, users) if users else (asked or "root",)
    if not names or (asked and asked not in names):
        wanted = f"the account {asked}" if asked else "no account of this node"
        raise NotAllowed(f"{wanted} is {'not ' if asked else ''}for {' or '.join(submitters)}")
    account = _named(asked or names[0], asked)
    if account.user is not None and account.user.uid == 0 and not allow_root:
        raise NotAllowed("work runs as root only on agents with --allow-root-jobs")
    return account


def _mapped(submitters: Sequence[str], users: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    return next((users[each] for each in (*submitters, "*") if each in users), ())


def _own() -> Account:
    try:
        entry = pwd.getpwuid(os.geteuid())
    except KeyError:
        return Account(str(os.geteuid()), "/")
    return Account(entry.pw_name, entry.pw_dir)


def _named(name: str, asked: str) -> Account:
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        error = NotAllowed if asked else Refused
        raise error(f"this node has no account {name}") from None
    groups = tuple(os.getgrouplist(entry.pw_name, entry.pw_gid))
    return Account(entry.pw_name, entry.pw_dir, User(entry.pw_uid, entry.pw_gid, groups))
