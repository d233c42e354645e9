"""The options of an agent, with detected values for those that were not given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cede.agent.isolation import Isolation
from cede.agent.machine import RETAINED
from cede.launch.spec import LOG_BYTES_DEFAULT
from cede.model import bounds


@dataclass(frozen=True, slots=True)
class Settings:
    """`users` maps submitters (`user:ann`, `team:red`, a token's name, or `*`) to accounts of
    this machine; the first is used unless the work asks for another of them.
    """

    server: str
    data: Path
    checkpoints: Path
    name: str
    amounts: Mapping[str, int]
    devices: Mapping[str, tuple[str, ...]]
    labels: Mapping[str, str] = field(default_factory=dict)
    group: str = ""
    fingerprint: str = ""
    join_token: str = field(default="", repr=False)
    users: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    allow_root_jobs: bool = False
    retained: int = RETAINED
    keep_checkpoints: float = bounds.CHECKPOINT_KEEP_DEFAULT / bounds.SECOND
    log_bytes: int = LOG_BYTES_DEFAULT
    pids_max: int | None = None
    isolation: Isolation = Isolation.NONE
    hidden: tuple[Path, ...] = ()  # from work that runs as the agent's own account
    kind: str = "agent"  # its name in messages
