"""The agent's data directory, its locks, and the token, session and epoch that it must not
forget.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import secrets
import shlex
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from cede.launch.presence import Presence, is_shown
from cede.model.private import is_private

FILE = "agent.json"
LOCK = "lock"


class Unusable(Exception):
    """The data directory cannot be this agent's."""


@dataclass(frozen=True, slots=True)
class Identity:
    """`epoch` and `index` are the highest seen: a witness against a server that went back.

    `session` is the one that the server knows; `next_session` is on disk before it is asked for, so
    that a process that dies with the answer under way can go on.
    """

    node: str = ""
    token: str = field(default="", repr=False)
    epoch: int = 0
    index: int = 0
    session: str = ""
    next_session: str = ""


def take(data: Path) -> int:
    """Lock the data directory for this process; the lock ends with the process, however that
    ends."""
    try:
        # Work of other accounts opens its own directories in here, and lists nothing.
        data.mkdir(mode=0o711, parents=True, exist_ok=True)
        lock = os.open(data / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise Unusable(f"cannot use {data}: {error.strerror}") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise Unusable(f"another agent runs on {data}") from None
    os.ftruncate(lock, 0)
    os.pwrite(lock, str(os.getpid()).encode(), 0)
    return lock


def hold_machine(node: str) -> Presence:
    """Keep any other agent of this node off this machine, also one with a copy of the data folder.

    Only one in the same network namespace is seen; others are left to the server.
    """
    held = Presence("cede-agent-" + hashlib.sha256(node.encode()).hexdigest()[:32])
    if not held.show() and is_shown(held.name):
        raise Unusable("another agent of this node runs on this machine")
    return held


def opened(identity: Identity) -> Identity:
    """Return the identity with a session for this process."""
    return replace(identity, next_session=identity.next_session or secrets.token_hex(16))


def confirmed(identity: Identity) -> Identity:
    """Return the identity after the server has taken its session."""
    return replace(identity, session=identity.next_session, next_session="")


def load(data: Path) -> Identity:
    try:
        with (data / FILE).open(encoding="utf-8") as file:
            mode = os.fstat(file.fileno())
            if not is_private(mode.st_mode, mode.st_uid):
                path = shlex.quote(str(data / FILE))
                raise Unusable(
                    f"{data / FILE} holds this node's token, and others than its owner may use it; "
                    f"chmod 600 {path}"
                )
            found: Any = json.loads(file.read())
        return Identity(**found)
    except FileNotFoundError:
        return Identity()
    except (OSError, ValueError, TypeError) as error:
        raise Unusable(
            f"cannot read {data / FILE}: {error}; remove it to join again under another name"
        ) from None


def save(data: Path, identity: Identity) -> None:
    """Write the file whole or not at all, on disk, and never readable by others."""
    part = data / f".{FILE}.new"
    file = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(file, "w", encoding="utf-8") as stream:
        json.dump(asdict(identity), stream)
        stream.flush()
        os.fsync(stream.fileno())
    part.replace(data / FILE)
    folder = os.open(data, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
