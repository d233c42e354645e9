"""The bodies of calls, as pydantic models; they exist at this edge only.

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
from cede.model.policy import Policy
from cede.model.request import Request, Retry
from cede.model.shape import Shape
from cede.model.stopping import StopPolicy
from cede.model.terms import CLASS, Terms
from cede.server.api.declared import Amount, AmountsIn, LabelsIn, count, seconds, sends
from cede.server.api.errors import ERRORS_MAX, UnknownFields

Name = Annotated[str, StringConstraints(min_length=1, max_length=bounds.NAME_LENGTH_MAX)]
# A name, an id, or the first characters of an id.
Reference = Annotated[str, StringConstraints(min_length=1, max_length=bounds.NAME_LENGTH_MAX)]
ComponentType = Literal["orchestrator", "step_operator", "team", "user"]
Priority = Annotated[int, Field(ge=0, le=bounds.PRIORITY_MAX)]
Description = Annotated[str, StringConstraints(max_length=bounds.DESCRIPTION_LENGTH_MAX)]
NodeRefs = Annotated[list[Reference], Field(min_length=1, max_length=bounds.BULK_MAX)]
Attempt = Annotated[
    int, Field(ge=1, le=bounds.AMOUNT_MAX, description="The fence: the attempt that is meant.")
]


def _processors(value: Any) -> Any:
    parse_processors(value)
    return value


if TYPE_CHECKING:
    Seconds = int | float
    Lease = int | float | str
    Processors = int | float | str
    Class = int
else:
    Seconds = seconds(bounds.DURATION_MAX)
    Lease = seconds(bounds.LEASE_MAX, least=bounds.LEASE_MIN, word="none")
    Processors = Annotated[
        int | float | str,
        PlainValidator(_processors),
        WithJsonSchema({"type": "number", "minimum": 0, "examples": [4, 0.5]}),
    ]
    Class = count(CLASS)


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _few_unknown(cls, given: Any) -> Any:
        """Refuse a heap of unknown fields with one error; pydantic makes one for each."""
        if not isinstance(given, dict) or len(given) <= ERRORS_MAX:
            return given
        if len(given) > len(cls.model_fields) + ERRORS_MAX:
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
    nodes: LabelsIn | None = Field(
        None,
        description="Instead of capacity: the labels of its nodes, whose sum it is then.",
    )
    preset: Annotated[str, StringConstraints(max_length=40)] = "quota"
    settings: dict[str, Any] | None = Field(
        None, description="Single settings that differ from the preset."
    )
    description: Description = ""


class PoolPatch(Body):
    """Changes of a pool; capacity is merged key by key, and 0 removes a key."""

    model_config = example(capacity={"gpu": 4})

    capacity: AmountsIn | None = None
    nodes: LabelsIn | None = Field(
        None,
        description="Other labels of its nodes, whole. Refused if a node that holds work would "
        "leave the pool.",
    )
    settings: dict[str, Any] | None = None
    description: Description | None = None


Ratio = Annotated[float, Field(ge=0, le=1)]
Weight = Annotated[float, Field(ge=bounds.WEIGHT_MIN, le=bounds.WEIGHT_MAX)]
Home = LabelsIn | Annotated[list[Name], Field(max_length=bounds.HOME_NODES_MAX)]


class OwnSettings(Body):
    """The settings of a fair-share pool that a policy or request may set for itself."""

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


@sends(Policy, edits=True)
class PolicyFields(Body):
    """The fields of a policy; absent ones have their defaults if it is new, else stay unchanged."""

    settings: PolicySettings | None = None
    integral: IntegralIn | None = None
    home: Home | None = Field(
        None, description="The nodes that are its own: by label or by name; empty: none."
    )

    def said(self) -> dict[str, Any]:
        """The given fields, as the engine takes them."""
        return self.model_dump(exclude_none=True, include=set(PolicyFields.model_fields))


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
    """Changes of a policy; a given map replaces the old one."""

    model_config = example(priority=20, limit={"gpu": 8})


@sends(Retry)
class RetryIn(Body):
    """How often, and after what delay, a request comes back."""


class SettingsIn(OwnSettings):
    """The needs that a step declares: `cpu_count` becomes mcpu, `memory` becomes memory_mb. Its
    settings in a pool of fair shares stand beside it, or beside `resources`.
    """

    gpu_count: Amount | None = None
    cpu_count: Processors | None = None
    memory: Annotated[str | None, Field(max_length=40, examples=["16GiB"])] = None
    pool_resources: AmountsIn | None = None
    preemptible: bool = True


class WorkIn(Body):
    """Work for agents: a list of arguments, never a shell's text."""

    argv: Annotated[list[str], Field(min_length=1, examples=[["python", "train.py"]])]
    env: dict[str, str] = Field(default_factory=dict)
    directory: str = ""
    user: str = ""


@sends(Request, Shape, StopPolicy, Terms)
class RequestIn(Body):
    """A request for compute: literal `resources`, or the `settings` of a step; for each task.

    What the model declares is added to these: they say what it asks for, of whom and by whom.
    """

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
    lease: Lease | None = Field(
        None, description="Seconds of silence after which the units return; `none` for never."
    )
    kind: Literal["step", "work"] = Field(
        "step", description="`work` needs a policy; a step may run untracked."
    )
    tasks: Annotated[int, Field(ge=1, le=bounds.TASKS_MAX)] = 1
    gang: bool | None = Field(
        None, description="All tasks or none; false: each waits, runs and retries by itself."
    )
    work: WorkIn | None = Field(None, description="Absent: the caller holds the units itself.")


class RequestPatch(Body):
    """Changes of a request that waits or runs; the map replaces the old one."""

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
    """The answer of work that its client holds to the ask to save itself."""

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


class MachineIn(Body):
    """Where a caller is."""

    name: Name
    boot: Name


class HandOverIn(Body):
    """Work for the agent of the granted node, unless that node is the caller's own machine."""

    model_config = example(
        attempt=1,
        work={"argv": ["python", "train.py"]},
        here={"name": "laptop", "boot": "6f1c2b3a-9d0e-4c55-8a11-0b7d2c9e4f10"},
    )

    attempt: Attempt
    work: WorkIn
    here: MachineIn | None = None


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
