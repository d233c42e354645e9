"""The agent's side of a supervisor: prepare, launch, adopt, order, ask, and clean up after one.

Everything goes through the attempt's directory, so a restarted agent knows as much as the one that
launched. A supervisor lives as long as its lock on that directory is held, which the kernel
releases however it died; its pid cannot be mistaken for another process's.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

from cede.launch import places, processes
from cede.launch.clock import boottime
from cede.launch.contain import Group, open_group
from cede.launch.course import NOTHING_WANTED, Control
from cede.launch.places import Place
from cede.launch.probe import Containment
from cede.launch.spec import Spec
from cede.launch.starting import Template
from cede.model.errors import Conflict, Invalid

SWEEP_TIMEOUT = 10.0


class State(StrEnum):
    UNSTARTED = "unstarted"  # prepared, and never ran: launching is safe
    STARTING = "starting"
    RUNNING = "running"
    ENDED = "ended"
    LOST = "lost"  # its supervisor died and left no exit record: sweep


@dataclass(frozen=True, slots=True)
class Status:
    state: State
    started: dict[str, Any] | None
    exit: dict[str, Any] | None


def prepare(
    attempts: Path, spec: Spec, containment: Containment, deadline: float | None = None
) -> Path:
    """Write the spec. A repeated call changes nothing. The record of the start, which is written
    before the work's first instruction, makes it durable.

    `deadline` is the end of the lease, in seconds since boot.
    """
    directory = attempts / spec.name
    # The work may use `talk/` in here, whatever its account; it may list nothing.
    directory.mkdir(parents=True, exist_ok=True)
    with Place(directory) as place:
        os.fchmod(place.fd, 0o711)
        written, _, _ = place.read_spec()
        if written is not None:
            if written != spec.to_json():
                raise Conflict("prepared", f"{spec.name} was prepared with another spec")
            return directory
        with suppress(FileExistsError):
            os.mkfifo(places.WAKE, 0o600, dir_fd=place.fd)
        # Creating files is the main cost here: this one has two names.
        with suppress(FileExistsError):
            os.link(places.WAKE, places.LOCK, src_dir_fd=place.fd, dst_dir_fd=place.fd)
        wanted: Control = {**NOTHING_WANTED, "deadline": deadline}
        whole = {**spec.to_json(), places.MEANS: containment.means, places.WANTED: wanted}
        # Last, because it marks the rest as complete.
        place.write(places.SPEC, whole, sync=True)
    # Where the folder is not readable here, as a bridge's is not, its owner has made the directory.
    with suppress(PermissionError), Place(attempts) as place:
        os.fsync(place.fd)
    return directory


def launch(directory: Path) -> None:
    """Launch one attempt by a template of its own; an agent keeps one for all of them."""
    with Template() as template:
        template.launch(directory)


class Kept:
    """An attempt with its supervisor, launched here or adopted. Close it, or use it in a `with`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._place = Place(directory)
        self._pidfd = _hold_supervisor(self._place)

    @classmethod
    def adopt(cls, directory: Path) -> Self:
        return cls(directory)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._pidfd is not None:
            os.close(self._pidfd)
            self._pidfd = None
        self._place.close()

    def fileno(self) -> int:
        """A descriptor that becomes readable when the supervisor has ended, for whatever reason."""
        if self._pidfd is None:
            raise Conflict("not_kept", f"{self.directory.name} has no supervisor")
        return self._pidfd

    def status(self) -> Status:
        # In this order: a supervisor writes before it releases the lock.
        holder = self._place.holder()
        started = self._place.read(places.STARTED)
        ending = self._place.read(places.EXIT)
        if ending is not None:
            return Status(State.ENDED, started, ending)
        if holder is not None:
            return Status(State.RUNNING if started else State.STARTING, started, None)
        return Status(State.LOST if started else State.UNSTARTED, started, None)

    @property
    def told_to_stop(self) -> bool:
        return self._control()["stop"] is not None

    def set_deadline(self, deadline: float | None) -> None:
        """Set the end of the lease, in seconds since boot, at which the supervisor kills the
        work.
        """
        self._want({**self._control(), "deadline": deadline})

    def stop(self, grace: float) -> None:
        """Send SIGTERM to all of it, and after the grace SIGKILL. A later, shorter grace counts."""
        if not 0 <= grace < float("inf"):
            raise Invalid("grace", "must be seconds, 0 or more")
        self._want({**self._control(), "stop": {"grace": grace}})

    def kill(self) -> None:
        self.stop(0.0)

    def _control(self) -> Control:
        control: Control | None = self._place.read(places.CONTROL)
        if control is None:
            _, _, control = self._place.read_spec()
        return control or NOTHING_WANTED

    def _want(self, control: Control) -> None:
        self._place.write(places.CONTROL, control)
        try:
            wake = self._place.open(places.WAKE, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            return  # no reader: over, or not yet begun
        try:
            os.write(wake, b"1")
        except BlockingIOError:
            pass  # full of wake-ups already
        finally:
            os.close(wake)


def _hold_supervisor(place: Place) -> int | None:
    """A descriptor of the process that holds the lock; the second look makes sure that it is that
    process.
    """
    while (pid := place.holder()) is not None:
        held = processes.hold(pid)
        if held is not None and place.holder() == pid:
            return held
        if held is not None:
            os.close(held)
    return None


def sweep(directory: Path, *, supervisor_too: bool = False) -> dict[str, Any]:
    """Kill what a dead supervisor left, write the missing exit record and return it.

    Safe to repeat, and after a crash of its own at any point. A live supervisor is refused, or,
    with `supervisor_too`, killed first: that is for one that hangs.
    """
    with Place(directory) as place:
        if supervisor_too:
            _kill_supervisor(place)
        _take_over(place, directory.name)
        spec, means, _ = place.read_spec()
        group = _left_group(Spec.from_json(spec), means) if spec and means else None
        if group is not None and not group.kill(timeout=SWEEP_TIMEOUT):
            raise Conflict("survivors", f"{directory.name}: {group.members()} do not die")
        oom = group is not None and group.oom_kills() > 0
        record = place.read(places.ENDED) or _lost_record(place, oom)
        place.create(places.EXIT, record)
        if group is not None:
            group.remove()
        ending: dict[str, Any] = place.read(places.EXIT)
        return ending


def _take_over(place: Place, name: str) -> None:
    """Take the lock, if need be once a supervisor that has written its record has cleaned up."""
    over = boottime() + SWEEP_TIMEOUT
    while not place.lock():
        if not place.exists(places.EXIT) or boottime() >= over:
            raise Conflict("kept", f"{name} has a supervisor that lives")
        time.sleep(0.005)


def _kill_supervisor(place: Place) -> None:
    held = _hold_supervisor(place)
    if held is None:
        return
    try:
        signal.pidfd_send_signal(held, signal.SIGKILL)
    except ProcessLookupError:
        pass  # it has ended already
    finally:
        os.close(held)
    over = boottime() + SWEEP_TIMEOUT
    while place.holder() is not None and boottime() < over:
        time.sleep(0.005)


def _left_group(spec: Spec, means: Any) -> Group:
    marker = [f"{name}={value}" for name, value in spec.marker.items()]

    def find() -> list[int]:
        return processes.marked(marker)

    # One look can miss a process that is forked meanwhile; then its parent was seen, and the next
    # look finds it.
    return open_group(means, spec.name, find, lambda: not find() and not find())


def _lost_record(place: Place, oom: bool) -> dict[str, Any]:
    started = place.read(places.STARTED)
    return {
        "cause": "keeper_lost",
        "code": None,
        "signal": None,
        "oom": oom,
        "error": "the supervisor died and left no exit record",
        "started_at": started["started_at"] if started else None,
        "ended_at": boottime(),
    }
