"""Chooses the account of this machine that runs a request's work. Never silently root (C9).

Without a map, an agent that is root gives each team an account of its own: a number that follows
from the team's name alone, so that it owns the same checkpoints on every node that shares them.
"""

from __future__ import annotations

import hashlib
import os
import pwd
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cede.launch.spec import User

# Ids of made accounts: a range that no system, directory service or container uses by convention.
FIRST_ID, IDS = 0x7000_0000, 0x0FFF_0000
ID_MAP = "/proc/self/uid_map"


class Refused(Exception):
    """This node cannot do what its own map says: its operator must act."""


class NotAllowed(Exception):
    """The work may not run here under the account that it would need. The submitter is told what
    would help; it does not count against the node.
    """


@dataclass(frozen=True, slots=True)
class Account:
    """`user` is None where the work runs as the agent's own account. `made_for` is the team for
    which an account without an entry in the system's own list was made.
    """

    name: str
    home: str
    user: User | None = None
    made_for: str = ""


def account_for(
    submitters: Sequence[str],
    asked: str,
    users: Mapping[str, tuple[str, ...]],
    *,
    allow_root: bool,
) -> Account:
    """Return the account for work of these submitters: the request's owner, then its team."""
    own = _own()
    if os.geteuid() != 0:
        if asked not in ("", own.name):
            raise NotAllowed(f"the agent runs as {own.name} and can start work as nobody else")
        return own
    if not users and not allow_root:
        if asked:
            raise NotAllowed(
                f"the account {asked} is for nobody here: start the agent with --user-map "
                "WHO=ACCOUNT, or with --allow-root-jobs if work may be root"
            )
        return _made(submitters[-1])
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


def _made(team: str) -> Account:
    digest = hashlib.sha256(team.encode()).digest()
    number = FIRST_ID + int.from_bytes(digest[:8], "big") % IDS
    if not _is_mapped(number):
        raise Refused(
            f"this node's container has no account {number} to run work of {team} as: start the "
            "agent with --user-map WHO=ACCOUNT"
        )
    # No home yet: the agent makes one.
    return Account(f"cede-{number:x}", "", User(number, number), made_for=team)


def _is_mapped(number: int) -> bool:
    """Whether the user namespace of this process, such as a container's, has this account."""
    with Path(ID_MAP).open(encoding="ascii") as file:
        ranges = [[int(each) for each in line.split()] for line in file]
    return any(first <= number < first + count for first, _, count in ranges)


def own_home(homes: Path, account: Account) -> Path:
    """Return the home of a made account: one for all work of its team on this node.

    Two teams whose names make the same number are refused rather than given one account.
    """
    assert account.user is not None
    homes.mkdir(mode=0o711, exist_ok=True)
    owner = homes / f"{account.user.uid}.team"
    try:
        with owner.open("x", encoding="utf-8") as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(account.made_for)
    except FileExistsError:
        known = owner.read_text(encoding="utf-8")
        if known not in ("", account.made_for):
            raise Refused(
                f"{account.made_for} and {known} would share the account {account.name}: start the "
                "agent with --user-map WHO=ACCOUNT"
            ) from None
    return homes / str(account.user.uid)


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
