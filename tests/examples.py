"""The twenty examples of document 001 as data, in a form that every face can run.

An example is pools, policies, what must already hold (`prelude`), and one step; then what must
become of it. Policies are as `POST /policies` and `resource-pool attach-policy` take them, steps
as `ResourceSettings`. Nothing here knows of the engine.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Step:
    """A step of one component. `id` is how expectations speak of it."""

    id: str
    component: str
    settings: dict[str, Any]
    component_type: str = "orchestrator"


@dataclass(frozen=True)
class Expected:
    """What becomes of the step. `victims` are asked to stop; then it runs in `pool`."""

    status: str  # allocated | queued | rejected | preempts
    pool: str | None = None
    victims: tuple[str, ...] = ()
    reason: str | None = None  # the code, for queued and rejected
    key: str | None = None
    in_share: bool | None = None


@dataclass(frozen=True)
class Example:
    number: int
    title: str
    pools: dict[str, dict[str, int]]
    policies: list[dict[str, Any]]
    step: Step
    expected: Expected
    resources: dict[str, int]  # what the step asks for, as counted
    prelude: list[tuple[Step, str]] = field(default_factory=list)  # the step and its status

    @property
    def name(self) -> str:
        return f"{self.number:02}-{self.title.replace(' ', '-')}"


def _policy(
    pool: str,
    component: str,
    priority: int,
    reserved: dict[str, int],
    limit: dict[str, int],
    component_type: str = "orchestrator",
) -> dict[str, Any]:
    return {
        "pool": pool,
        "component": component,
        "component_type": component_type,
        "priority": priority,
        "reserved": reserved,
        "limit": limit,
    }


def _step(id_: str, component: str, type_: str = "orchestrator", **settings: Any) -> Step:
    return Step(id_, component, settings, type_)


def _asks(**resources: int) -> dict[str, int]:
    return {**resources, "step_run": 1}


_ML = {"datacenter-gpus": {"gpu": 8}}
_ML_POLICY = [_policy("datacenter-gpus", "team-ml-orch", 10, {"gpu": 4}, {"gpu": 8})]
_CPU = {"training": {"gpu": 4, "mcpu": 32000}}
_CPU_POLICY = [
    _policy("training", "k8s-orch", 10, {"gpu": 2, "mcpu": 4000}, {"gpu": 4, "mcpu": 32000})
]
_OMITS = {"training": {"gpu": 4, "mcpu": 8000}}
_OMITS_POLICY = [_policy("training", "k8s-orch", 10, {"gpu": 2}, {"gpu": 4})]
_SLOTS = [
    _policy("training", "k8s-orch", 10, {"gpu": 8, "step_run": 4}, {"gpu": 16, "step_run": 4})
]
_SHARED = {"shared": {"gpu": 8}}
_TEAMS = [
    _policy("shared", "red-orch", 10, {"gpu": 4}, {"gpu": 8}),
    _policy("shared", "blue-orch", 10, {"gpu": 4}, {"gpu": 8}),
]
_PROD = [
    _policy("shared", "sandbox-orch", 10, {"gpu": 4}, {"gpu": 8}),
    _policy("shared", "prod-orch", 100, {"gpu": 2}, {"gpu": 8}),
]
_TRT = {"gpu-only": {"gpu": 8}, "gpu-and-trt": {"gpu": 8, "tensorrt_sessions": 4}}
_OPERATOR = "step_operator"


EXAMPLES: list[Example] = [
    Example(
        1, "preemptible step borrows past reserved", _ML, _ML_POLICY,
        _step("train", "team-ml-orch", gpu_count=6, preemptible=True),
        Expected("allocated", "datacenter-gpus", in_share=False),
        _asks(gpu=6),
    ),
    Example(
        2, "non-preemptible step stays inside reserved", _ML, _ML_POLICY,
        _step("production_train", "team-ml-orch", gpu_count=2, preemptible=False),
        Expected("allocated", "datacenter-gpus", in_share=True),
        _asks(gpu=2),
    ),
    Example(
        3, "non-preemptible step beyond reserved", _ML, _ML_POLICY,
        _step("too_large", "team-ml-orch", gpu_count=6, preemptible=False),
        Expected("rejected", reason="reserved_exceeded", key="gpu"),
        _asks(gpu=6),
    ),
    Example(
        4, "gpu-only pool meters neither cpu nor memory", {"training": {"gpu": 4}}, _OMITS_POLICY,
        _step("hungry", "k8s-orch", gpu_count=1, cpu_count=32, memory="64GiB", preemptible=False),
        Expected("allocated", "training", in_share=True),
        _asks(gpu=1, mcpu=32000, memory_mb=68720),
    ),
    Example(
        5, "non-preemptible cpu inside policy reserved", _CPU, _CPU_POLICY,
        _step("fits_reserved_cpu", "k8s-orch", gpu_count=1, cpu_count=2, preemptible=False),
        Expected("allocated", "training", in_share=True),
        _asks(gpu=1, mcpu=2000),
    ),
    Example(
        6, "non-preemptible cpu over policy reserved", _CPU, _CPU_POLICY,
        _step("exceeds_reserved_cpu", "k8s-orch", gpu_count=1, cpu_count=8, preemptible=False),
        Expected("rejected", reason="reserved_exceeded", key="mcpu"),
        _asks(gpu=1, mcpu=8000),
    ),
    Example(
        7, "preemptible cpu burst with policy mcpu rows", _CPU, _CPU_POLICY,
        _step("preemptible_cpu_burst", "k8s-orch", gpu_count=1, cpu_count=8),
        Expected("allocated", "training", in_share=False),
        _asks(gpu=1, mcpu=8000),
    ),
    Example(
        8, "preemptible when pool lists mcpu but policy omits it", _OMITS, _OMITS_POLICY,
        _step("preemptible_with_pool_mcpu", "k8s-orch", gpu_count=1, cpu_count=4),
        Expected("allocated", "training"),
        _asks(gpu=1, mcpu=4000),
    ),
    Example(
        9, "non-preemptible when pool lists mcpu but policy omits it", _OMITS, _OMITS_POLICY,
        _step("zero_reserved", "k8s-orch", gpu_count=1, cpu_count=1, preemptible=False),
        Expected("rejected", reason="reserved_exceeded", key="mcpu"),
        _asks(gpu=1, mcpu=1000),
    ),
    Example(
        10, "step_run caps concurrent steps", {"training": {"gpu": 16, "step_run": 10}}, _SLOTS,
        _step("fifth", "k8s-orch", gpu_count=2),
        Expected("queued", reason="own_limit", key="step_run"),
        _asks(gpu=2),
        [(_step(f"train-{n}", "k8s-orch", gpu_count=2), "allocated") for n in range(1, 5)],
    ),
    Example(
        11, "custom key fully configured", {"inference": {"gpu": 8, "tensorrt_sessions": 4}},
        [_policy("inference", "gpu-step-op", 10, {"gpu": 2, "tensorrt_sessions": 2},
                 {"gpu": 8, "tensorrt_sessions": 4}, _OPERATOR)],
        _step("infer", "gpu-step-op", _OPERATOR, gpu_count=1,
              pool_resources={"tensorrt_sessions": 1}, preemptible=False),
        Expected("allocated", "inference", in_share=True),
        _asks(gpu=1, tensorrt_sessions=1),
    ),
    Example(
        12, "custom key on pool but missing from policy",
        {"inference": {"gpu": 8, "tensorrt_sessions": 2}},
        [_policy("inference", "gpu-step-op", 10, {"gpu": 2}, {"gpu": 8}, _OPERATOR)],
        _step("infer", "gpu-step-op", _OPERATOR, gpu_count=1,
              pool_resources={"tensorrt_sessions": 1}, preemptible=False),
        Expected("rejected", reason="reserved_exceeded", key="tensorrt_sessions"),
        _asks(gpu=1, tensorrt_sessions=1),
    ),
    Example(
        13, "request exceeds pool capacity", {"small": {"gpu": 8}},
        [_policy("small", "k8s-orch", 10, {"gpu": 8}, {"gpu": 8})],
        _step("too_big_for_planet", "k8s-orch", gpu_count=10),
        Expected("rejected", reason="capacity_exceeded", key="gpu"),
        _asks(gpu=10),
    ),
    Example(
        14, "request exceeds policy limit though the pool could fit", _SHARED,
        [_policy("shared", "team-a-orch", 10, {"gpu": 2}, {"gpu": 4})],
        _step("over_team_limit", "team-a-orch", gpu_count=6),
        Expected("rejected", reason="limit_exceeded", key="gpu"),
        _asks(gpu=6),
    ),
    Example(
        15, "two teams of one priority and not enough gpus", _SHARED, _TEAMS,
        _step("red-3", "red-orch", gpu_count=2),
        Expected("queued", reason="protected", key="gpu"),
        _asks(gpu=2),
        [
            (_step("red-1", "red-orch", gpu_count=2), "allocated"),
            (_step("red-2", "red-orch", gpu_count=2), "allocated"),
            (_step("blue-1", "blue-orch", gpu_count=2), "allocated"),
            (_step("blue-2", "blue-orch", gpu_count=2), "allocated"),
        ],
    ),
    Example(
        16, "higher priority wins and lower may be preempted", _SHARED, _PROD,
        _step("prod_train", "prod-orch", gpu_count=4),
        Expected("preempts", "shared", ("sandbox_experiment",), in_share=False),
        _asks(gpu=4),
        [(_step("sandbox_experiment", "sandbox-orch", gpu_count=6), "allocated")],
    ),
    Example(
        17, "production non-preemptible waits on reserved only", _SHARED, _PROD,
        _step("prod_sla_job", "prod-orch", gpu_count=2, preemptible=False),
        Expected("queued", reason="own_reserved", key="gpu"),
        _asks(gpu=2),
        [
            (_step("prod_other", "prod-orch", gpu_count=2, preemptible=False), "allocated"),
            (_step("sandbox_experiment", "sandbox-orch", gpu_count=6), "allocated"),
        ],
    ),
    Example(
        18, "two pools on one orchestrator and the primary wins",
        {"eu-west-gpu": {"gpu": 16}, "eu-north-gpu": {"gpu": 16}},
        [
            _policy("eu-west-gpu", "regional-orch", 20, {"gpu": 8}, {"gpu": 16}),
            _policy("eu-north-gpu", "regional-orch", 10, {"gpu": 8}, {"gpu": 16}),
        ],
        _step("train", "regional-orch", gpu_count=1),
        Expected("allocated", "eu-west-gpu", in_share=True),
        _asks(gpu=1),
    ),
    # Document 001 attaches each of the two pools in turn: 19 with the poor one, 119 with the rich.
    Example(
        19, "one step must satisfy every key on the pool that lacks one", _TRT,
        [_policy("gpu-only", "k8s-orch", 10, {"gpu": 4}, {"gpu": 8})],
        _step("infer", "k8s-orch", gpu_count=1, pool_resources={"tensorrt_sessions": 1}),
        Expected("rejected", reason="capacity_exceeded", key="tensorrt_sessions"),
        _asks(gpu=1, tensorrt_sessions=1),
    ),
    Example(
        119, "one step must satisfy every key on the pool that has them", _TRT,
        [_policy("gpu-and-trt", "k8s-orch", 10, {"gpu": 4}, {"gpu": 8})],
        _step("infer", "k8s-orch", gpu_count=1, pool_resources={"tensorrt_sessions": 1}),
        Expected("allocated", "gpu-and-trt"),
        _asks(gpu=1, tensorrt_sessions=1),
    ),
    Example(
        20, "the metered pool is preferred and the gpu-only one still wins",
        {
            "gpu-only-fallback": {"gpu": 8},
            "metered-cpu-mem": {"gpu": 8, "mcpu": 128000, "memory_mb": 524288},
        },
        [
            _policy("metered-cpu-mem", "k8s-orch", 100,
                    {"gpu": 4, "mcpu": 4000, "memory_mb": 8192},
                    {"gpu": 8, "mcpu": 64000, "memory_mb": 131072}),
            _policy("gpu-only-fallback", "k8s-orch", 50, {"gpu": 4}, {"gpu": 8}),
        ],
        _step("train", "k8s-orch", gpu_count=1, cpu_count=8, memory="32GiB", preemptible=False),
        Expected("allocated", "gpu-only-fallback", in_share=True),
        _asks(gpu=1, mcpu=8000, memory_mb=34360),
    ),
]  # fmt: skip
