"""The first start: makes an administrator, this machine as a pool, and a policy in it, so that work
runs at once.

The secret goes into the data folder before its hash goes into the database: a crash between the two
leaves a file that opens nothing, and the next start makes a new one; there is never an
administrator whose secret is lost.
"""

from __future__ import annotations

import getpass
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from cede.agent import detect
from cede.engine.admin import fleet
from cede.engine.admin.edits import attach_policy, create_pool
from cede.model.errors import Invalid
from cede.model.node import Node
from cede.model.subject import Subject
from cede.model.token import Role, Token
from cede.server import tokens
from cede.server.ids import new_id
from cede.server.local_agent import LABELS
from cede.server.tx import Tx
from cede.server.writer import Writer
from cede.store import Store

POOL = "local"
CLIENT_FILE = "client.yaml"
PRIORITY = 10
# Slots for steps: at least a small pipeline's worth, and more where there are more processors.
STEPS_MIN = 64
STEPS_PER_CORE = 4
_ACTOR = "first start"


@dataclass(frozen=True, slots=True)
class FirstStart:
    """The result of a first start, shown once to the operator who started the server."""

    secret: str
    client_file: Path
    subject: Subject
    capacity: dict[str, int]
    submitter: str = ""  # the secret in the client file, if that is not the administrator's


def first_start(
    store: Store,
    writer: Writer,
    data: Path,
    url: str,
    *,
    node: Node | None = None,
    ca: Path | None = None,
    show: Callable[[str], None] | None = None,
) -> FirstStart | None:
    """Make what a fresh database needs; None when this one has been started before.

    With a `node` the pool is made of it, else this machine's capacity is only counted. With `show`
    the administrator's secret goes there and into no file, for work could read it; the client file
    then has the secret of a submitter.
    """
    client_file = data / CLIENT_FILE
    if store.list_tokens(limit=1).items:
        _follow(client_file, url, ca)
        return None
    secret, _ = tokens.new_token()
    submitter = tokens.new_token()[0] if show else ""
    made = FirstStart(secret, client_file, _own_subject(), this_machine(), submitter)
    if show is not None:
        show(secret)  # before it opens anything, as with the file
    _write_private(client_file, {"server": url, "token": submitter or secret, **_trust(ca)})
    writer.execute(_command(made, node)).result()
    return made


def this_node(heartbeat: int, labels: Mapping[str, str] = LABELS) -> Node:
    """Return this machine as its agent will register it: work may be granted before the agent
    has joined."""
    found = detect.gpus()
    capacity = this_machine()
    devices = {"gpu": found.names} if found.names else {}
    return Node(
        id=new_id(),
        name=detect.hostname(),
        amounts=capacity,
        devices=devices,
        labels=labels,
        fingerprint=detect.fingerprint(found),
        boot=detect.boot_id(),
        heartbeat=heartbeat,
    )


def join_token(writer: Writer) -> str:
    """Make a join token for the agent of this machine, which has no token of its own yet."""
    secret, digest = tokens.new_token()

    def command(tx: Tx) -> None:
        token = Token(new_id(), "agent of this machine", Role.JOIN, (), digest, tx.wall, uses=1)
        tx.put_token(token)
        tx.audit(_ACTOR, "token.create", token.id, {"name": token.name, "role": str(token.role)})

    writer.execute(command).result()
    return secret


def this_machine() -> dict[str, int]:
    """Return what this process may use, in the keys and units of pools."""
    found = detect.amounts(detect.gpus())
    steps = max(STEPS_MIN, STEPS_PER_CORE * found["mcpu"] // 1000)
    return {**found, "step_run": steps}


def _command(made: FirstStart, node: Node | None) -> Callable[[Tx], None]:
    def command(tx: Tx) -> None:
        state, everything = tx.state, made.capacity
        pool = create_pool(
            state,
            id=new_id(),
            name=POOL,
            capacity=everything if node is None else None,
            nodes=None if node is None else LABELS,
            description="This machine",
            created=tx.wall,
        )
        if node is not None:
            _register(tx, node)
        tx.audit(_ACTOR, "pool.create", POOL, {"capacity": everything})
        attach_policy(
            state,
            id=new_id(),
            pool_id=pool.id,
            subject=made.subject,
            priority=PRIORITY,
            reserved=everything,
            limit=everything,
            created=tx.wall,
        )
        tx.audit(_ACTOR, "policy.attach", str(made.subject), {"pool": POOL})
        name = made.subject.name
        for secret, role in ((made.secret, Role.ADMIN), (made.submitter, Role.SUBMITTER)):
            if secret:
                digest = tokens.hash_of(secret)
                token = Token(new_id(), name, role, (made.subject,), digest, tx.wall)
                tx.put_token(token)
                tx.audit(_ACTOR, "token.create", token.id, {"name": name, "role": str(role)})

    return command


def _register(tx: Tx, node: Node) -> None:
    fleet.register(
        tx.state,
        id=node.id,
        name=node.name,
        amounts=node.amounts,
        devices=node.devices,
        labels=node.labels,
        fingerprint=node.fingerprint,
        boot=node.boot,
        heartbeat=node.heartbeat,
        created=tx.wall,
        now=tx.now,
    )
    tx.audit(_ACTOR, "node.register", node.id, {"name": node.name})


def _own_subject() -> Subject:
    """Return the account that started the server as a subject, by login name."""
    try:
        return Subject.of(getpass.getuser(), "user")
    except (Invalid, KeyError, OSError):
        return Subject("user", "admin")


def _trust(ca: Path | None) -> dict[str, str]:
    return {} if ca is None else {"ca": str(ca)}


def _follow(client_file: Path, url: str, ca: Path | None) -> None:
    """Update the server's own client file after the server moved to another port or to TLS."""
    try:
        known = yaml.safe_load(client_file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return
    if not isinstance(known, dict) or known.get("server") is None:
        return
    kept = {name: value for name, value in known.items() if name != "ca"}
    became = kept | {"server": url} | _trust(ca)
    if became != known:
        _write_private(client_file, became)


def _write_private(path: Path, content: dict[str, str]) -> None:
    """Write a file whole or not at all, at no time readable by others."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    file = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(file, "w", encoding="utf-8") as stream:
        yaml.safe_dump(content, stream, sort_keys=False)
        stream.flush()
        os.fsync(stream.fileno())
    part.replace(path)
