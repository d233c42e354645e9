"""Makes an order into the spec of a supervisor: account, environment, directories, bounds.

Work gets a cleaned environment: nothing of the agent's own but the path to programs and the
language, the variables of its request, and cede's.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path

from cede.agent.accounts import Account, NotAllowed, account_for, own_home
from cede.agent.isolation import Isolation
from cede.agent.settings import Settings
from cede.agent.values import Order
from cede.launch.places import component
from cede.launch.spec import Fence, Limits, Spec

PATH = "/usr/local/bin:/usr/bin:/bin"
LANGUAGE = "C.UTF-8"
# Directories of cede's inside an attempt's directory, given to the work's account.
TMP, TALK = "tmp", "talk"
# In the agent's data: the homes of accounts that it made.
HOMES = "homes"


@dataclass(frozen=True, slots=True)
class Surroundings:
    spec: Spec
    account: Account
    tmp: Path
    talk: Path
    checkpoints: Path
    protocol: str


def surroundings(order: Order, settings: Settings, can_limit: Collection[str]) -> Surroundings:
    """Return what is needed to start an order; or raise `Refused`, `NotAllowed`, `Invalid`.

    `can_limit` has the limits that this machine can enforce.
    """
    body = order.body
    work = body["work"]
    account = account_for(
        [each for each in (body.get("owner"), body.get("subject")) if each],
        work.get("user") or "",
        settings.users,
        allow_root=settings.allow_root_jobs,
    )
    if account.made_for:
        account = replace(account, home=str(own_home(settings.data / HOMES, account)))
    home = settings.data / "attempts" / order.key.directory
    tmp, talk = home / TMP, home / TALK
    checkpoints = checkpoint_directory(order, settings)
    protocol = protocol_of(order)
    env = {
        **_base(account, tmp),
        **(work.get("env") or {}),
        **_told(order, settings),
        **_devices(order, settings),
    }
    if protocol:
        env |= _conversation(order, talk, checkpoints, protocol)
    spec = Spec(
        fence=Fence(order.key.allocation, order.attempt, order.key.task),
        argv=tuple(work["argv"]),
        env=env,
        directory=work.get("directory") or str(tmp),
        user=account.user,
        limits=_limits(order, settings, can_limit),
        log_bytes=settings.log_bytes,
        walltime=body.get("walltime"),
        walltime_grace=order.grace,
        **_view(settings, account, [tmp, *([talk, checkpoints] if protocol else [])]),
    )
    _refuse_hidden(spec)
    return Surroundings(spec, account, tmp, talk, checkpoints, protocol)


def _view(settings: Settings, account: Account, own: list[Path]) -> dict[str, tuple[str, ...]]:
    """Return the paths hidden from work that runs as the agent's account, and those of them that
    are its own."""
    if account.user is not None or settings.isolation is not Isolation.NAMESPACE:
        return {}
    hidden = (settings.data, settings.checkpoints, *settings.hidden)
    return {"hide": tuple(map(str, hidden)), "show": tuple(map(str, own))}


def _refuse_hidden(spec: Spec) -> None:
    """Refuse a directory that is hidden from the work, with the reason."""
    if not spec.hide:
        return
    wanted = Path(spec.directory).resolve()
    if any(wanted.is_relative_to(Path(each).resolve()) for each in spec.show):
        return
    for each in spec.hide:
        if wanted.is_relative_to(Path(each).resolve()):
            raise NotAllowed(
                f"its directory {spec.directory} is in {each}, which is hidden from work: submit "
                "it from another directory"
            )


def _limits(order: Order, settings: Settings, can_limit: Collection[str]) -> Limits:
    wanted = {"pids": settings.pids_max, "memory_mb": order.body["amounts"].get("memory_mb")}
    return Limits(**{name: value for name, value in wanted.items() if name in can_limit})


def checkpoint_directory(order: Order, settings: Settings) -> Path:
    """Return the checkpoint folder of a task, the same for all its attempts."""
    return settings.checkpoints / component("request", order.request) / str(order.key.task)


def protocol_of(order: Order) -> str:
    """Return the protocol by which work is asked to save itself; empty when it is not asked."""
    body = order.body
    return "" if body["checkpoint"] == "none" else str(body["checkpoint_protocol"])


def make_directories(found: Surroundings) -> None:
    """Make the work's directories for its account; the directories around them are not its own."""
    if found.account.made_for:
        give(Path(found.account.home), found.account)
    give(found.tmp, found.account)
    if found.protocol:
        give(found.talk, found.account)
        found.checkpoints.parent.mkdir(mode=0o711, parents=True, exist_ok=True)
        give(found.checkpoints, found.account)


def give(path: Path, account: Account, mode: int = 0o700) -> None:
    """Make a folder, if there is none, that belongs to an account."""
    path.mkdir(mode=mode, exist_ok=True)
    if account.user is not None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.fchown(descriptor, account.user.uid, account.user.gid)
        finally:
            os.close(descriptor)


def _base(account: Account, tmp: Path) -> dict[str, str]:
    return {
        "PATH": os.environ.get("PATH", PATH) if account.user is None else PATH,
        "HOME": account.home,
        "USER": account.name,
        "LOGNAME": account.name,
        "LANG": os.environ.get("LANG", LANGUAGE),
        "TMPDIR": str(tmp),
    }


def _told(order: Order, settings: Settings) -> dict[str, str]:
    nodes = order.body.get("nodes") or [settings.name]
    return {
        "CEDE_REQUEST_ID": order.request,
        "CEDE_ALLOCATION": order.key.allocation,
        "CEDE_ATTEMPT": str(order.attempt),
        **_number(order, len(nodes)),
        "CEDE_NODE": settings.name,
        "CEDE_NODES": ",".join(nodes),
        "CEDE_POOL": str(order.body.get("pool") or ""),
    }


def _number(order: Order, tasks: int) -> dict[str, str]:
    """Return the task's number and the number of tasks: of its array, or of its gang."""
    if array := order.body.get("array"):
        return {
            "CEDE_ARRAY": str(array["array_id"]),
            "CEDE_TASK": str(array["task"]),
            "CEDE_TASKS": str(array["tasks"]),
        }
    return {"CEDE_TASK": str(order.key.task), "CEDE_TASKS": str(tasks)}


def _devices(order: Order, settings: Settings) -> dict[str, str]:
    """Return the assigned GPUs: empty, and not absent, where there are GPUs of which it has
    none."""
    if not settings.devices.get("gpu"):
        return {}
    given = (order.body.get("devices") or {}).get("gpu") or ()
    return {"CUDA_VISIBLE_DEVICES": ",".join(given)}


def _conversation(order: Order, talk: Path, checkpoints: Path, protocol: str) -> dict[str, str]:
    told = {
        "CEDE_CHECKPOINT_DIR": str(checkpoints),
        "CEDE_CHECKPOINT_PROTOCOL": protocol,
        "CEDE_TALK_DIR": str(talk),
    }
    if resume := order.body.get("resume"):
        told["CEDE_RESUME_FROM"] = str(checkpoints / component("resume", resume))
    return told
