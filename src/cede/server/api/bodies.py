"""What callers may send, as pydantic models; they exist at this edge only.

Unknown fields are refused, and types are strict: `true` and `5.0` are not integers. Each bound is
one of `model.bounds`, so that it appears in the OpenAPI document and in the error that names it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PlainValidator,
    StringConstraints,
    WithJsonSchema,
    model_validator,
)

from cede.model import bounds
from cede.model.amounts import parse_processors
from cede.model.durations import parse_duration
from cede.model.errors import Invalid
from cede.model.terms import CLASS_DEFAULT, CLASS_MAX, CLASS_MIN, parse_class
from cede.server.api.errors import ERRORS_MAX, UnknownFields

Name = Annotated[str, StringConstraints(min_length=1, max_length=bounds.NAME_LENGTH_MAX)]
# A name, an id, or the first characters of an id.
Reference = Annotated[str, StringConstraints(min_length=1, max_length=bounds.NAME_LENGTH_MAX)]
Key = Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9_.\-/]{0,62}$")]
Amount = Annotated[int, Field(ge=0, le=bounds.AMOUNT_MAX)]
AmountsIn = Annotated[dict[Key, Amount], Field(max_length=bounds.KEYS_MAX)]
ComponentType = Literal["orchestrator", "step_operator", "team", "user"]
Priority = Annotated[int, Field(ge=0, le=bounds.PRIORITY_MAX)]
Description = Annotated[str, StringConstraints(max_length=bounds.DESCRIPTION_LENGTH_MAX)]
LabelText = Annotated[str, StringConstraints(max_length=bounds.LABEL_LENGTH_MAX)]
NodeLabels = Annotated[dict[LabelText, LabelText], Field(max_length=bounds.LABELS_MAX)]
NodeRefs = Annotated[list[Reference], Field(min_length=1, max_length=bounds.BULK_MAX)]
Attempt = Annotated[
    int, Field(ge=1, le=bounds.AMOUNT_MAX, description="The fence: the attempt that is meant.")
]


def _seconds(most: int, *, least: int = 0, word: str | None = None) -> Any:
    """A number of seconds within bounds, or one word; one check, so one error."""

    def check(value: Any) -> Any:
        if word is not None and value == word:
            return value
        if isinstance(value, str):  # programs send numbers; options and files have more
            raise Invalid("value", f"must be a number of seconds, not {value!r:.80}")
        if parse_duration(value, "value", most=most) < least:
            raise Invalid("value", f"must be at least {least / 1000:g} seconds, not {value}")
        return value

    number: dict[str, Any] = {"type": "number", "minimum": least / 1000, "maximum": most // 1000}
    schema = number if word is None else {"anyOf": [number, {"const": word}]}
    return Annotated[int | float | str, PlainValidator(check), WithJsonSchema(schema)]


def _processors(value: Any) -> Any:
    parse_processors(value)
    return value


if TYPE_CHECKING:
    Seconds = int | float
    RetryDelay = int | float
    CheckpointTime = int | float
    Lease = int | float | str
    Processors = int | float | str
    Class = int
else:
    Seconds = _seconds(bounds.DURATION_MAX)
    RetryDelay = _seconds(bounds.RETRY_DELAY_MAX)
    CheckpointTime = _seconds(bounds.CHECKPOINT_TIMEOUT_MAX)
    Lease = _seconds(bounds.LEASE_MAX, least=bounds.LEASE_MIN, word="none")
    Processors = Annotated[
        int | float | str,
        PlainValidator(_processors),
        WithJsonSchema({"type": "number", "minimum": 0, "examples": [4, 0.5]}),
    ]
    Class = Annotated[
        int,
        PlainValidator(parse_class),
        WithJsonSchema({"type": "integer", "minimum": CLASS_MIN, "maximum": CLASS_MAX}),
    ]


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _few_unknown(cls, given: Any) -> Any:
        """Refuse a heap of unknown fields with one error; pydantic makes one for each."""
        if isinstance(given, dict) and len(given) > len(cls.model_fields) + ERRORS_MAX:
            known = {each.alias or name for name, each in cls.model_fields.items()}
            unknown = [name for name in given if name not in known]
            raise UnknownFields(unknown[0], f"unknown field, and {len(unknown) - 1} others")
        return given


def example(**fields: Any) -> ConfigDict:
    return ConfigDict(json_schema_extra={"examples": [fields]})


class PoolIn(Body):
    """A new pool."""

    model_config = example(name="training-gpus", capacity={"gpu": 8, "step_run": 32})

    name: Name
    capacity: AmountsIn | None = None
    nodes: NodeLabels | None = Field(
        None,
        description="Instead of capacity: the labels of its nodes, whose sum it is then.",
    )
    preset: Annotated[str, StringConstraints(max_length=40)] = "quota"
    settings: dict[str, Any] | None = Field(
        None, description="Single settings that differ from the preset."
    )
    description: Description = ""


class PoolPatch(Body):
    """What changes; capacity is merged key by key, and 0 removes a key."""

    model_config = example(capacity={"gpu": 4})

    capacity: AmountsIn | None = None
    nodes: NodeLabels | None = Field(
        None,
        description="Other labels of its nodes, whole. Refused if a node that holds work would "
        "leave the pool.",
    )
    settings: dict[str, Any] | None = None
    description: Description | None = None


Ratio = Annotated[float, Field(ge=0, le=1)]
Weight = Annotated[float, Field(ge=bounds.WEIGHT_MIN, le=bounds.WEIGHT_MAX)]
Home = NodeLabels | Annotated[list[Name], Field(max_length=bounds.HOME_NODES_MAX)]


class OwnSettings(Body):
    """What of a fair-share pool's settings somebody below the pool may set for itself."""

    fair_share_starvation_timeout: Seconds | None = None
    fair_share_starvation_tolerance: Ratio | None = None
    non_preemptible_resource_usage_threshold: AmountsIn | None = None


class PolicySettings(OwnSettings):
    """Of a policy, and those below it."""

    enable_aggressive_starvation: bool | None = None
    allow_aggressive_preemption: bool | None = None


class IntegralIn(Body):
    """A guarantee over time: how fast it fills, and the most it gives at once."""

    guarantee_type: Literal["none", "burst", "relaxed"] = "none"
    resource_flow: AmountsIn | None = None
    burst_guarantee_resources: AmountsIn | None = None
    relaxed_share_multiplier_limit: (
        Annotated[float, Field(ge=1, le=bounds.MULTIPLIER_MAX)] | None
    ) = Field(None, description="Relaxed: the most it takes at once, in flows (3).")
    can_accept_free_volume: bool | None = Field(
        None, description="Whether it takes in what others' full volumes spill (true)."
    )
    should_distribute_free_volume_among_children: bool | None = Field(
        None, description="Whether those below it take in what is spilt there (false)."
    )


class PolicyFields(Body):
    """What a policy says; absent: the usual in a new one, unchanged in one that is there."""

    priority: Priority | None = None
    reserved: AmountsIn | None = None
    limit: AmountsIn | None = None
    weight: Weight | None = Field(
        None, description="Its part of what is shared by weight, against its siblings."
    )
    mode: Literal["fair_share", "fifo"] | None = Field(
        None, description="How those below it share: by weight, or one after the other."
    )
    settings: PolicySettings | None = None
    integral: IntegralIn | None = None
    type: Literal["hpc_batch", "ml_training", "service", "sensitive", "interactive"] | None = None
    max_class: Class | None = Field(None, description="The highest class its requests may have.")
    allow_sensitive: bool | None = Field(
        None, description="Whether its requests may be sensitive, or of class 10."
    )
    home: Home | None = Field(
        None, description="The nodes that are its own: by label or by name; empty: none."
    )
    allow_lending: bool | None = Field(None, description="Its own nodes, while they are idle.")
    allow_borrowing: bool | None = Field(None, description="The nodes of others.")
    max_borrow_pct: Annotated[float, Field(ge=0, le=1_000)] | None = Field(
        None, description="How much of its home it lends: this part of its nodes."
    )
    return_grace: Seconds | None = Field(
        None, description="How long a borrower has before a node of its own is taken back."
    )

    def said(self) -> dict[str, Any]:
        """What is given, as the engine takes it."""
        return {
            name: value
            for name, value in self.model_dump(exclude_none=True).items()
            if name in PolicyFields.model_fields
        }


class PolicyIn(PolicyFields):
    """A subject's place in a pool."""

    model_config = example(
        pool="training-gpus",
        component="red",
        component_type="team",
        priority=10,
        reserved={"gpu": 4},
    )

    pool: Reference
    component: Name
    component_type: ComponentType = "orchestrator"
    name: Annotated[str, StringConstraints(max_length=bounds.NAME_LENGTH_MAX)] = ""
    parent: Reference | None = Field(
        None, description="The policy of the same pool above it, by name or id."
    )


class PolicyPatch(PolicyFields):
    """What changes; maps given here replace the ones of the policy."""

    model_config = example(priority=20, limit={"gpu": 8})


class RetryIn(Body):
    """How often, and after what delay, a request comes back."""

    max_retries: Annotated[int, Field(ge=0, le=bounds.RETRIES_MAX)] = 0
    delay: RetryDelay = 0
    backoff: Annotated[int, Field(ge=1, le=bounds.BACKOFF_MAX)] = 1
    preemptions: Literal["count", "free"] | None = Field(
        None,
        description="Whether being preempted uses up a retry; a step's does unless told otherwise.",
    )


class SettingsIn(OwnSettings):
    """What a step declares: `cpu_count` becomes mcpu, `memory` becomes memory_mb. Beside it, and
    beside `resources`, its own settings in a pool that shares fairly.
    """

    gpu_count: Amount | None = None
    cpu_count: Processors | None = None
    memory: Annotated[str | None, Field(max_length=40, examples=["16GiB"])] = None
    pool_resources: AmountsIn | None = None
    preemptible: bool = True


class WorkIn(Body):
    """What agents run: a list of arguments, never a shell's text."""

    argv: Annotated[list[str], Field(min_length=1, examples=[["python", "train.py"]])]
    env: dict[str, str] = Field(default_factory=dict)
    directory: str = ""
    user: str = ""


class RequestIn(Body):
    """A request for compute: literal `resources`, or the `settings` of a step; for each task."""

    model_config = example(
        component="red",
        component_type="team",
        resources={"gpu": 2},
        lease=60,
        labels={"job": "train"},
    )

    component: Name | None = Field(None, description="Absent: the first subject of the token.")
    component_type: ComponentType | None = Field(None, description="Absent: orchestrator.")
    resources: AmountsIn | None = None
    settings: SettingsIn | None = None
    preemptible: bool | None = Field(None, description="Absent: as in settings, else true.")
    pool: Reference | None = Field(
        None, description="Only this pool: its name, id or start of its id."
    )
    retry: RetryIn | None = None
    walltime: Seconds | None = None
    lease: Lease | None = Field(
        None, description="Seconds of silence after which the units return; `none` for never."
    )
    on_silence: Literal["stop", "keep"] | None = Field(
        None, description="Absent: `keep` beside the only server, else `stop`."
    )
    labels: Annotated[dict[LabelText, LabelText], Field(max_length=bounds.LABELS_MAX)] | None = None
    kind: Literal["step", "work"] = Field(
        "step", description="`work` needs a policy; a step may run untracked."
    )
    tasks: Annotated[int, Field(ge=1, le=bounds.TASKS_MAX)] = 1
    gang: bool | None = Field(
        None, description="All tasks or none; false: each waits, runs and retries by itself."
    )
    per_node: Annotated[int, Field(ge=1, le=bounds.TASKS_MAX)] | None = Field(
        None, description="At most so many tasks on one node."
    )
    node_labels: NodeLabels | None = None
    fingerprint: Annotated[str, StringConstraints(max_length=bounds.NAME_LENGTH_MAX)] = ""
    topology: Literal["any", "tight", "spread"] = Field(
        "tight", description="Its tasks: in few and near groups of nodes, in many, in any."
    )
    work: WorkIn | None = Field(None, description="Absent: the caller holds the units itself.")
    checkpoint: Literal["auto", "manual", "none"] = "none"
    checkpoint_protocol: Literal["signal", "shm", "grpc"] = "signal"
    checkpoint_timeout: CheckpointTime | None = None
    max_deferral: CheckpointTime | None = None
    interruptible: bool = False
    resume: Literal["preferred", "required"] = Field(
        "preferred", description="Whether it may start anew when its checkpoint cannot be read."
    )
    resume_wait: CheckpointTime | None = Field(
        None, description="Seconds to wait for nodes that have its checkpoint; 600 unless given."
    )
    class_: Class | None = Field(
        None, alias="class", description=f"Its preemption class; absent: {CLASS_DEFAULT}."
    )
    sensitive: bool = Field(False, description="Never stopped for anybody; the policy must allow.")
    tenant: Name | None = Field(None, description="Whose it is, for quotas and accounts.")
    limit: AmountsIn | None = Field(
        None, description="The most that all its tasks may hold together."
    )
    weight: Weight | None = Field(
        None, description="Its part of what its policy shares, against its other requests."
    )


class RequestPatch(Body):
    """What changes of a request that waits or runs; the map replaces the old one."""

    model_config = example(limit={"gpu": 4})

    limit: AmountsIn


class BulkIn(Body):
    """Many requests in one transaction; each succeeds or fails alone."""

    model_config = example(
        requests=[{"component": "red", "component_type": "team", "resources": {"gpu": 1}}]
    )

    # Items are checked one by one, so that a bad one does not take its neighbours along.
    requests: Annotated[list[Any], Field(min_length=1, max_length=bounds.BULK_MAX)] = Field(
        json_schema_extra={"items": {"$ref": "#/components/schemas/RequestIn"}}
    )


class RenewIn(Body):
    """A sign of life."""

    model_config = example(attempt=1, running=True)

    attempt: Attempt | None = None
    running: bool | None = Field(None, description="True once the work itself has started.")
    wait: Seconds = Field(0, description="How long the answer may take when nothing is new.")
    hint: Amount = Field(0, description="The hint that the holder knows of; with `wait`.")


class SaidIn(Body):
    """What work that its client holds says after it was asked to save itself."""

    model_config = example(attempt=1, kind="deferral", seconds=60, text="an epoch is nearly over")

    attempt: Attempt | None = None
    kind: Literal["answered", "progress", "deferral", "saved", "found"]
    checkpoint: Annotated[str, StringConstraints(max_length=bounds.NAME_LENGTH_MAX)] = ""
    size: Amount = 0
    hint: Amount = Field(0, description="The hint that a checkpoint answers, if any.")
    seconds: Seconds = Field(0, description="Of a deferral: how much longer it would like.")
    text: Annotated[str, StringConstraints(max_length=bounds.DESCRIPTION_LENGTH_MAX)] = ""
    ids: Annotated[
        list[Annotated[str, StringConstraints(max_length=bounds.NAME_LENGTH_MAX)]],
        Field(max_length=bounds.CHECKPOINTS_KNOWN_MAX),
    ] = Field(
        default_factory=list,
        description="Of `found`: the verified checkpoints there, newest first; it starts from the "
        "first.",
    )


class NodeOutIn(Body):
    """Why a node is taken out of service."""

    model_config = example(reason="a fan is to be replaced")

    reason: Annotated[str, StringConstraints(max_length=bounds.LABEL_LENGTH_MAX)] = ""


class ClaimIn(Body):
    """Which nodes are kept for whose sensitive work."""

    model_config = example(**{"nodes": ["gpu-7", "gpu-8"], "for": "red-ci"})

    nodes: NodeRefs
    for_: Annotated[str, StringConstraints(min_length=1, max_length=1_000)] | None = Field(
        None,
        alias="for",
        description="The `owner` of that work, as SUBJECT/NAME where several tokens have the name; "
        "absent: who calls.",
    )


class UnclaimIn(Body):
    """Which nodes are everybody's again."""

    model_config = example(nodes=["gpu-7", "gpu-8"])

    nodes: NodeRefs


class ReleaseIn(Body):
    """How the work ended."""

    model_config = example(outcome="done", attempt=1, exit_code=0)

    outcome: Literal["done", "failed", "stopped"] = "done"
    attempt: Attempt | None = None
    exit_code: Annotated[int, Field(ge=-(2**31), le=2**31 - 1)] | None = None


class TokenIn(Body):
    """A new token. A submitter is bound to subjects; a viewer may be. A machine joins by `join`."""

    model_config = example(name="red-ci", role="submitter", subjects=["team:red"], expires_in=86400)

    name: Name
    role: Literal["viewer", "submitter", "operator", "admin", "join"]
    subjects: Annotated[
        list[
            Annotated[str, StringConstraints(min_length=1, max_length=bounds.NAME_LENGTH_MAX + 20)]
        ],
        Field(max_length=100, examples=[["team:red"]]),
    ] = []
    expires_in: Annotated[int, Field(ge=1, le=bounds.DURATION_MAX // bounds.SECOND)] | None = Field(
        None, description="Seconds from now; absent: it does not expire."
    )
    uses: Annotated[int, Field(ge=1, le=bounds.JOIN_USES_MAX)] | None = Field(
        None, description="How many nodes a join token may make; absent: any number."
    )
