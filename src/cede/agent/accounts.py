"""Which account of this machine runs whose work. Never silently root (C9)."""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cede.launch.spec import User


class Refused(Exception):
    """This node will not run it, and trying again does not change that."""


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
            raise Refused(f"this agent runs as {own.name} and can start work as nobody else")
        return own
    names = _mapped(submitters, users)
    if not names:
        names = (asked or "root",) if allow_root and not users else ()
    if not names:
        raise Refused(
            f"no account of this node is for {submitters[0] if submitters else 'this work'}: start "
            "its agent with --user-map, or --allow-root-jobs if its work may be root"
        )
    if asked and asked not in names:
        raise Refused(f"the account {asked} is not for {submitters[0]} on this node")
    account = _named(asked or names[0])
    if account.user is not None and account.user.uid == 0 and not allow_root:
        raise Refused("work runs as root only on agents with --allow-root-jobs")
    return account


def _mapped(submitters: Sequence[str], users: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    return next((users[each] for each in (*submitters, "*") if each in users), ())


def _own() -> Account:
    try:
        entry = pwd.getpwuid(os.geteuid())
    except KeyError:
        return Account(str(os.geteuid()), "/")
    return Account(entry.pw_name, entry.pw_dir)


def _named(name: str) -> Account:
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        raise Refused(f"this node has no account {name}") from None
    groups = tuple(os.getgrouplist(entry.pw_name, entry.pw_gid))
    return Account(entry.pw_name, entry.pw_dir, User(entry.pw_uid, entry.pw_gid, groups))
