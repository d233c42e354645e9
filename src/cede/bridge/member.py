"""The process that a bridge's job runs on each of its nodes: the agent's own code for the tasks
there.

`python -m cede.bridge.member DATA ALLOCATION`. It claims its tasks, starts their supervisors,
carries out the bridge's commands and writes down what happens. Supervisors live on a lease that it
renews, so that no work outlives it, whatever kills it.
"""

from __future__ import annotations

import os
import pwd
import signal
import sys
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from cede.agent.attempts import Attempts
from cede.agent.journal import order_from
from cede.agent.settings import Settings
from cede.agent.values import Ended, Event, Heard, Key, LaunchFailed, Order, Started
from cede.bridge import folder
from cede.bridge.folder import Saying
from cede.launch import processes
from cede.launch.clock import boottime
from cede.launch.probe import Containment

# How long work outlives its member, and how often the member polls.
LEASE = 15.0
LOOK_STARTING, LOOK = 0.02, 0.2
# The cluster contains the job; within it supervisors adopt what their work leaves.
CONTAINMENT = Containment("subreaper", "", {}, {})
POLITE = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


@dataclass(frozen=True, slots=True)
class Here:
    """The node and the job of this process, and its devices, as the cluster numbers them and as
    programs see them.
    """

    node: str
    job: str
    devices: tuple[str, ...] = ()
    visible: tuple[str, ...] = ()


def here(environment: Mapping[str, str]) -> Here:
    """Read Slurm's variables; another cluster has others."""
    leader = environment.get("SLURM_HET_JOB_ID") or environment.get("SLURM_JOB_ID", "")
    visible = _listed(environment.get("CUDA_VISIBLE_DEVICES", ""))
    given = environment.get("SLURM_STEP_GPUS") or environment.get("SLURM_JOB_GPUS") or ""
    devices = _listed(given)
    if len(devices) != len(visible):
        devices = visible
    return Here(environment.get("SLURMD_NODENAME", ""), leader, devices, visible)


def _listed(text: str) -> tuple[str, ...]:
    return tuple(each for each in text.split(",") if each and each != "NoDevFiles")


class Member:
    def __init__(self, data: Path, allocation: str, at: Here) -> None:
        self._jobs = folder.job_folder(data, allocation)
        self._at = at
        written = folder.get(self._jobs / folder.ORDER)
        orders = [order_from(each) for each in written["orders"]]
        mine = [each for each in orders if each.body["nodes"][each.key.task] == at.node]
        self._given = dict(_shared_out(mine, at))
        self._orders = {each.key.task: _localized(each, self._given) for each in mine}
        self._settings = Settings(
            server="",
            data=data,
            checkpoints=Path(written["checkpoints"]),
            name=at.node,
            amounts={},
            devices={"gpu": at.visible} if at.visible else {},
            users={"*": (pwd.getpwuid(os.geteuid()).pw_name,)},
            allow_root_jobs=True,
            log_bytes=written["log_bytes"],
        )
        self._wake = threading.Event()
        self._done = 0
        self._stamp = -1

    def run(self) -> None:
        homes = {
            task: self._settings.data / "attempts" / o.key.directory
            for task, o in self._orders.items()
        }
        ours = {"job": self._at.job, "node": self._at.node}
        mine = {t: o for t, o in self._orders.items() if _claim(homes[t], ours)}
        if not mine:
            return  # another job of this name runs them, or they were forbidden
        saying = {task: Saying(homes[task]) for task in mine}
        attempts = Attempts(self._settings, CONTAINMENT, boottime)
        for order in mine.values():
            attempts.launch(order, boottime() + LEASE, self._wake.set)
        unstarted, alive = set(mine), set(mine)
        while alive:
            self._wake.wait(LOOK_STARTING if unstarted else LOOK)
            self._wake.clear()
            self._pass_on(attempts)
            for event in attempts.poll(boottime()):
                task = _key(event).task
                saying[task].say(self._told(event))
                if isinstance(event, Started):
                    unstarted.discard(task)
                elif not isinstance(event, Heard):
                    unstarted.discard(task)
                    alive.discard(task)
            for task in alive - unstarted:
                attempts.set_deadline(mine[task].key, boottime() + LEASE)
        attempts.close()

    def _told(self, event: Event) -> folder.Json:
        match event:
            case Started(key):
                devices = self._given[key.task][0]
                return {"event": "started", "devices": {"gpu": list(devices)} if devices else {}}
            case Heard(report):
                return {"event": "heard", "report": {**asdict(report), "key": None}}
            case Ended(_, code, cause, text, unread):
                told = {"exit_code": code, "cause": cause, "text": text, "unread": unread}
                return {"event": "ended", **told}
            case LaunchFailed(_, why, _):
                told = {"exit_code": None, "cause": "infrastructure", "text": why}
                return {"event": "ended", **told}
        raise AssertionError(event)

    def _pass_on(self, attempts: Attempts) -> None:
        """Carry out commands of the bridge that are new."""
        path = self._jobs / folder.WANTED
        try:
            stamp = path.stat().st_mtime_ns
        except OSError:
            return
        if stamp == self._stamp:
            return
        for number, task, what, given in folder.get(path) or ():
            if number <= self._done:
                continue
            self._done = number
            order = self._orders.get(task)
            if order is None:
                continue
            if what == "hint":
                attempts.hint(order.key, given[0], given[1], goes_on=given[2])
            elif what == "agree":
                attempts.agree(order.key, given[0], given[1])
            elif what == "go_on":
                attempts.go_on(order.key)
            elif what == "stop":
                attempts.stop(order.key, given[0])
        self._stamp = stamp


def _claim(home: Path, ours: folder.Json) -> bool:
    if folder.claimed(home) is not None:
        return False  # also by an earlier start of this very job
    return folder.claim(home, ours) == ours


def _shared_out(
    orders: list[Order], at: Here
) -> list[tuple[int, tuple[tuple[str, ...], tuple[str, ...]]]]:
    """Assign devices to each task on this node: as many as it asked for, in their order."""
    found, begin = [], 0
    for order in sorted(orders, key=lambda each: each.key.task):
        end = begin + int(order.body["amounts"].get("gpu", 0))
        found.append((order.key.task, (at.devices[begin:end], at.visible[begin:end])))
        begin = end
    return found


def _localized(order: Order, given: Mapping[int, tuple[tuple[str, ...], tuple[str, ...]]]) -> Order:
    """Return the order as an agent on this node would get it."""
    visible = given[order.key.task][1]
    work = {**order.body["work"], "user": ""}
    devices = {"gpu": list(visible)} if visible else {}
    body = {**order.body, "work": work, "devices": devices}
    return replace(order, body=body, devices=frozenset())


def _key(event: Event) -> Key:
    if isinstance(event, Heard):
        return event.report.key
    assert isinstance(event, Started | Ended | LaunchFailed), event
    return event.key


def main(arguments: list[str]) -> int:
    for number in POLITE:
        # The supervisors end the work; this process writes down how it ended.
        signal.signal(number, signal.SIG_IGN)
    processes.prctl(processes.PR_SET_CHILD_SUBREAPER, 1)
    Member(Path(arguments[0]), arguments[1], here(os.environ)).run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
