"""The agent's side of a supervisor: prepare, launch, adopt, order, ask, and sweep up after one.

Everything goes through the attempt's directory, so an agent that was restarted knows as much as the
one that launched. Whether a supervisor lives is told by its lock on that directory, which the
kernel gives back whatever it died of; its pid cannot be mistaken for somebody else's.
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
    LOST = "lost"  # its supervisor is gone and left no exit record: sweep


@dataclass(frozen=True, slots=True)
class Status:
    state: State
    started: dict[str, Any] | None
    exit: dict[str, Any] | None


def prepare(
    attempts: Path, spec: Spec, containment: Containment, deadline: float | None = None
) -> Path:
    """Write down what to run. Doing it again changes nothing. The record that it has started, which
    is written before the work's first instruction, makes all of it durable.

    `deadline` is when the lease is over, in seconds since boot.
    """
    directory = attempts / spec.name
    # The work may look up `talk/` in here, whoever it runs as; it may list nothing.
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
        # Files are what costs most here: this one has two names.
        with suppress(FileExistsError):
            os.link(places.WAKE, places.LOCK, src_dir_fd=place.fd, dst_dir_fd=place.fd)
        wanted: Control = {**NOTHING_WANTED, "deadline": deadline}
        whole = {**spec.to_json(), places.MEANS: containment.means, places.WANTED: wanted}
        # Last, because it says that the rest is there.
        place.write(places.SPEC, whole, sync=True)
    # Where the folder is not ours to read, as a bridge's is not, its owner has made the directory.
    with suppress(PermissionError), Place(attempts) as place:
        os.fsync(place.fd)
    return directory


def launch(directory: Path) -> None:
    """Launch one attempt by a template of its own; an agent keeps one for all of them."""
    with Template() as template:
        template.launch(directory)


class Kept:
    """An attempt with its supervisor, whoever launched it. Close it, or use it in a `with`."""

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
        """Becomes readable when the supervisor has ended, whatever of."""
        if self._pidfd is None:
            raise Conflict("not_kept", f"{self.directory.name} has no supervisor")
        return self._pidfd

    def status(self) -> Status:
        # In this order: a supervisor writes before it lets go.
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
        """Until when the work may run, in seconds since boot. The supervisor kills it then."""
        self._want({**self._control(), "deadline": deadline})

    def stop(self, grace: float) -> None:
        """SIGTERM to all of it, and after the grace SIGKILL. A shorter grace later counts."""
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
            return  # nobody listens: over, or not yet begun
        try:
            os.write(wake, b"1")
        except BlockingIOError:
            pass  # full of wake-ups already
        finally:
            os.close(wake)


def _hold_supervisor(place: Place) -> int | None:
    """A descriptor of the process that has the lock; the second look makes sure that it is it."""
    while (pid := place.holder()) is not None:
        held = processes.hold(pid)
        if held is not None and place.holder() == pid:
            return held
        if held is not None:
            os.close(held)
    return None


def sweep(directory: Path, *, supervisor_too: bool = False) -> dict[str, Any]:
    """Kill what a dead supervisor left, and write the exit record that it did not. Returns the
    record.

    Safe to repeat, and after a crash of its own at any point. A supervisor that lives is refused,
    or, with `supervisor_too`, killed first: that is for one which hangs.
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
    """Take the lock, if need be when a supervisor that has written its record has tidied up."""
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
        pass  # it was faster
    finally:
        os.close(held)
    over = boottime() + SWEEP_TIMEOUT
    while place.holder() is not None and boottime() < over:
        time.sleep(0.005)


def _left_group(spec: Spec, means: Any) -> Group:
    marker = [f"{name}={value}" for name, value in spec.marker.items()]

    def find() -> list[int]:
        return processes.marked(marker)

    # One look can miss what is forked while it lasts; then its parent was seen, and the next finds
    # it.
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
