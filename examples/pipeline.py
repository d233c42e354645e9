"""A pipeline whose steps wait for their units: load, then train with 2 GPUs, retried if preempted.

Run it against any server:  CEDE_ORCHESTRATOR=my-orch python examples/pipeline.py
Without a policy for the orchestrator the steps run untracked, which is logged.
"""

from __future__ import annotations

from cede import ResourceSettings, StepRetryConfig, pipeline, step


@step
def load() -> list[int]:
    """Asks for one step slot only."""
    return list(range(10))


@step(
    settings={"resources": ResourceSettings(gpu_count=2)},
    retry=StepRetryConfig(max_retries=3, delay=1, backoff=2),
)
def train(rows: list[int]) -> int:
    """Runs in a process of its own, once 2 GPUs are granted."""
    return sum(rows)


@pipeline(dynamic=True)
def training() -> int:
    rows = load()
    return train(rows)


if __name__ == "__main__":
    print("trained:", training())
