"""Bodies that agents send. An agent of another protocol is refused before anything else is read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, model_validator

from cede.model import bounds
from cede.model.errors import Invalid, quoted
from cede.server.api.bodies import Attempt, Body, Name, Seconds, example
from cede.server.api.declared import AmountsIn, Key, LabelText

# Agents of protocol 1 start from the resume point that they are told; those before protocol 3 have
# no session, so that two of them with one name are not always told apart.
PROTOCOLS = (1, 2, 3)
SESSIONS = 3

Short = Annotated[str, StringConstraints(max_length=bounds.NAME_LENGTH_MAX)]
Text = Annotated[str, StringConstraints(max_length=bounds.DESCRIPTION_LENGTH_MAX)]
Why = Annotated[str, StringConstraints(max_length=bounds.LABEL_LENGTH_MAX)]
Number = Annotated[int, Field(ge=0, le=bounds.AMOUNT_MAX)]
Device = Annotated[str, StringConstraints(min_length=1, max_length=bounds.NAME_LENGTH_MAX)]
# Base64 of the longest piece of a log.
LOG_TEXT_MAX = (bounds.LOG_CHUNK_BYTES + 2) // 3 * 4


class AgentBody(Body):
    protocol: int = Field(description="The protocol that the agent speaks: 1 to 3.")

    @model_validator(mode="before")
    @classmethod
    def _speaks_our_protocol(cls, given: Any) -> Any:
        spoken = given.get("protocol", PROTOCOLS[0]) if isinstance(given, Mapping) else PROTOCOLS[0]
        if type(spoken) is int and spoken not in PROTOCOLS:
            raise Invalid(
                "protocol",
                f"this server speaks protocols {PROTOCOLS[0]} to {PROTOCOLS[-1]} and the agent "
                f"{quoted(spoken)}; upgrade the {'server' if spoken > PROTOCOLS[-1] else 'agent'}",
            )
        return given


class RegisterIn(AgentBody):
    """A machine and what it has."""

    model_config = example(
        protocol=3,
        version="0.1.0",
        name="gpu-7",
        boot="6f1c2b3a-9d0e-4c55-8a11-0b7d2c9e4f10",
        amounts={"gpu": 2, "mcpu": 16000, "memory_mb": 64000},
        devices={"gpu": ["0", "1"]},
        labels={"gpu_type": "a100"},
        group="spine-1/rack-3",
        folder="8d1f6c0a5b7e4f52",
        session="3f0f7a52c1d64b0e9a55d1c2b7e80a41",
        machine="5c1e7d90a2b34f68",
    )

    version: Short = ""
    name: Name
    boot: Annotated[str, StringConstraints(min_length=1, max_length=bounds.NAME_LENGTH_MAX)]
    amounts: AmountsIn
    devices: Annotated[
        dict[Key, Annotated[list[Device], Field(max_length=bounds.DEVICES_MAX)]],
        Field(max_length=bounds.KEYS_MAX),
    ] = Field(default_factory=dict)
    labels: Annotated[dict[LabelText, LabelText], Field(max_length=bounds.LABELS_MAX)] = Field(
        default_factory=dict
    )
    group: Short = Field("", description="Where it is, as a path: such as spine-1/rack-3.")
    fingerprint: Short = ""
    folder: Short = Field("", description="Of its checkpoints; nodes with the same one share it.")
    session: Short = Field("", description="Of this process; heartbeats carry it too. Protocol 3.")
    previous: Short = Field("", description="The session that its data folder had before.")
    machine: Short = Field("", description="Identifies its machine and data folder.")

    @model_validator(mode="after")
    def _has_a_session(self) -> RegisterIn:
        if self.protocol >= SESSIONS and not self.session:
            raise Invalid("session", f"is missing; agents of protocol {SESSIONS} have one")
        return self


class OthersIn(Body):
    """Amounts that outside jobs hold of a bridged node now; all of it if it takes no work."""

    node: Name
    others: AmountsIn
    why: Why = Field("", description="The holders, or why it takes no work.")


class BridgedNodeIn(Body):
    """A node of a foreign cluster, and what it has."""

    name: Name
    amounts: AmountsIn
    labels: Annotated[dict[LabelText, LabelText], Field(max_length=bounds.LABELS_MAX)] = Field(
        default_factory=dict
    )
    group: Short = Field("", description="Where it is, as a path: such as spine-1/rack-3.")
    others: AmountsIn = Field(default_factory=dict)
    why: Why = ""


class BridgeIn(AgentBody):
    """A bridge and the nodes that it speaks for: all of them, each time."""

    model_config = example(
        protocol=3,
        version="0.1.0",
        name="slurm",
        boot="5c1e7d90a2b34f68",
        session="3f0f7a52c1d64b0e9a55d1c2b7e80a41",
        machine="5c1e7d90a2b34f68",
        nodes=[
            {
                "name": "n1",
                "amounts": {"gpu": 4, "mcpu": 64000, "memory_mb": 256000},
                "labels": {"partition": "main", "feature/a100": "yes"},
                "others": {"gpu": 1, "mcpu": 8000},
                "why": "job 812 of ann",
            }
        ],
    )

    version: Short = ""
    name: Name
    boot: Annotated[str, StringConstraints(min_length=1, max_length=bounds.NAME_LENGTH_MAX)]
    nodes: Annotated[list[BridgedNodeIn], Field(min_length=1, max_length=bounds.BRIDGED_NODES_MAX)]
    folder: Short = Field("", description="Of its checkpoints, which all of its nodes see.")
    session: Annotated[str, StringConstraints(min_length=1, max_length=bounds.NAME_LENGTH_MAX)]
    previous: Short = Field("", description="The session that its data folder had before.")
    machine: Short = Field("", description="Identifies its data folder.")


class ReportIn(Body):
    """A fact about one task; repeated until it is acknowledged by its id."""

    id: Annotated[str, StringConstraints(min_length=1, max_length=2 * bounds.NAME_LENGTH_MAX)]
    allocation: Annotated[str, StringConstraints(min_length=1, max_length=bounds.NAME_LENGTH_MAX)]
    attempt: Attempt
    task: Annotated[int, Field(ge=0, lt=bounds.TASKS_MAX)] = 0
    kind: Literal[
        "started",
        "answered",
        "progress",
        "deferral",
        "saved",
        "save_failed",
        "ended",
        "refused",
        "found",
        "reach",
    ]
    exit_code: Annotated[int, Field(ge=0, le=255)] | None = None
    cause: Short = ""
    checkpoint: Short = ""
    size: Number = 0
    hint: Number = Field(0, description="The hint that a checkpoint answers, if any.")
    seconds: Seconds = 0
    text: Text = ""
    ids: Annotated[list[Short], Field(max_length=bounds.CHECKPOINTS_KNOWN_MAX)] = Field(
        default_factory=list, description="Verified checkpoints that were found, newest first."
    )
    step: Number = Field(0, description="The first step at which it can save for the hint.")
    unread: bool = Field(False, description="What it left could not be verified in time.")
    devices: Annotated[
        dict[Key, Annotated[list[Device], Field(max_length=bounds.DEVICES_MAX)]],
        Field(max_length=bounds.KEYS_MAX),
    ] = Field(default_factory=dict, description="Of a bridge: those that its cluster chose.")


class LogIn(Body):
    """A piece of a log that the server asked for, under the id of its question."""

    id: Short
    offset: Number = Field(0, description="Where this piece begins.")
    data: Annotated[str, StringConstraints(max_length=LOG_TEXT_MAX)] = Field(
        "", description="In base64."
    )
    end: bool = Field(False, description="Nothing will follow: the task has ended.")
    rotated: bool = Field(False, description="What was asked for is gone; this is what is left.")
    gone: bool = Field(False, description="There is no such log here any more.")
    unordered: bool = Field(
        False, description="The order of the streams, and when they were written, is not known."
    )


class HeartbeatIn(AgentBody):
    """A sign of life; what happened, and which orders the agent has."""

    model_config = example(
        protocol=3,
        boot="6f1c2b3a-9d0e-4c55-8a11-0b7d2c9e4f10",
        session="3f0f7a52c1d64b0e9a55d1c2b7e80a41",
        epoch=3,
        index=41,
        seen=40,
        wait=10,
        reports=[
            {
                "id": "0198c1d2-8b44-7a51-8c21-6f0d9b3c2a17.1.0/started/1",
                "allocation": "0198c1d2-8b44-7a51-8c21-6f0d9b3c2a17.1",
                "attempt": 1,
                "task": 0,
                "kind": "started",
            }
        ],
    )

    boot: Short
    session: Short = Field("", description="As at its registration.")
    epoch: Number = Field(0, description="The highest it has seen.")
    index: Number = Field(0, description="The highest it has seen under that epoch.")
    seen: Number = Field(0, description="The version of the orders that it has.")
    strays: Number | None = Field(
        None, description="Tasks that live on the node and are in no order that it has seen."
    )
    wait: Seconds = Field(0, description="How long the answer may take when nothing is new.")
    reports: Annotated[list[ReportIn], Field(max_length=bounds.REPORTS_MAX)] = Field(
        default_factory=list
    )
    logs: Annotated[list[LogIn], Field(max_length=bounds.LOG_REPLIES_MAX)] = Field(
        default_factory=list
    )
    others: Annotated[list[OthersIn], Field(max_length=bounds.BRIDGED_NODES_MAX)] = Field(
        default_factory=list, description="Of a bridge: nodes of which others hold more or less."
    )
    saved: Annotated[list[Short], Field(max_length=bounds.SAVED_ASKED_MAX)] = Field(
        default_factory=list,
        description="Requests with old checkpoints on the node; the answer says which have ended.",
    )
