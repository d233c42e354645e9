"""The bridge's process: the agent's runner, with the jobs of a cluster as its hands."""

from __future__ import annotations

import secrets
from pathlib import Path

import structlog

from cede import __version__
from cede.agent import folder as checkpoint_folder
from cede.agent import identity, runner, wire
from cede.agent.identity import Identity, Unusable
from cede.agent.journal import JournalDamaged
from cede.agent.link import Introduction
from cede.agent.runner import CannotRun, Runner
from cede.agent.settings import Settings
from cede.bridge.cluster import Cluster, Unreachable
from cede.bridge.jobs import Jobs
from cede.launch import processes
from cede.launch.clock import boottime

MARK = "mark"

_log = structlog.get_logger("cede.bridge")


def mark_of(data: Path) -> str:
    """Return the mark of this bridge and of the jobs that it submits. It is a file in the data
    folder, so it stays the same wherever that is used.
    """
    data.mkdir(mode=0o711, parents=True, exist_ok=True)
    path = data / MARK
    if not path.exists():
        path.write_text(secrets.token_hex(8), encoding="ascii")
    return path.read_text(encoding="ascii").strip()


def run(settings: Settings, cluster: Cluster, *, period: float) -> None:
    """Stand for the nodes of a cluster until told to end. Raises errors that are meant for
    people."""
    processes.close_to_account()
    try:
        identity.take(settings.data)  # held until this process ends
        hands = Jobs(settings, cluster, boottime, period=period)
        _look_once(hands, cluster)
        served = Runner(settings, hands, _introduction(settings, hands, cluster))
    except (Unusable, JournalDamaged) as error:
        raise CannotRun(str(error)) from None
    with runner.signals(served.end):
        served.serve()


def _look_once(hands: Jobs, cluster: Cluster) -> None:
    """Look at the cluster before the first registration; nodes of an earlier look also do."""
    try:
        seen = cluster.look()
    except Unreachable as error:
        if not hands.others.is_known:
            raise CannotRun(f"cannot see the nodes of {cluster.kind}: {error}") from None
        _log.warning("the cluster does not answer", why=str(error))
        for _ in range(2):
            hands.others.is_away(str(error))
        return
    if not seen.machines:
        raise CannotRun(f"{cluster.kind} shows no nodes here; is the partition right?")
    hands.others.remember(seen)


def _introduction(settings: Settings, hands: Jobs, cluster: Cluster) -> Introduction:
    """Return the registration, which has no boot of its own: work in a cluster outlives the
    bridge's machine."""

    def body(known: Identity) -> wire.Json:
        return {
            "protocol": wire.PROTOCOL,
            "version": __version__,
            "name": settings.name,
            "boot": cluster.mark,
            "machine": cluster.mark,
            "folder": checkpoint_folder.identity(settings.checkpoints),
            "session": known.next_session or known.session,
            "previous": known.session,
            "nodes": hands.others.introduction(),
        }

    return Introduction("/bridge/register", cluster.mark, body)
