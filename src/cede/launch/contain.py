"""Containment: a group is every process of one attempt, wherever it forks, setsids or re-parents
to.

Three means, best first. *cgroup2*: the kernel kills the group at once (`cgroup.kill`). *freezer*:
the group of the first hierarchy is frozen, each member killed, and thawed. *subreaper*: orphans
below the supervisor become its children; each is stopped, then killed, until none is left. Limits
may be enforced by other hierarchies than the one that kills, of either version.

`cede.launch.probe` finds out which of these a machine has; here they are used.
"""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TypedDict

from cede.launch import processes
from cede.launch.clock import boottime
from cede.launch.places import read_all

# How long a removal waits for the kernel to release a group that is already empty.
REMOVE_TIMEOUT = 1.0
# How long members may take to freeze before they are killed unfrozen.
FREEZE_TIMEOUT = 0.1
LEFT_BEHIND_TIMEOUT = 5.0
MEBIBYTE = 1 << 20


class Means(TypedDict):
    """The means of containment here: what kills, in which directory, and which hierarchies
    limit.
    """

    kill: str  # cgroup2 | freezer | subreaper
    at: str  # the directory of the groups that kill; empty with subreaper
    limits: Mapping[str, tuple[int, str]]  # pids, memory_mb: version of the hierarchy, directory


class Group:
    """One attempt's processes. Subclasses kill; limits and places are here."""

    def __init__(self, means: Means, name: str) -> None:
        self.home = f"{means['at']}/{name}" if means["at"] else ""
        self.limiting = {
            limit: (version, f"{at}/{name}") for limit, (version, at) in means["limits"].items()
        }

    def make(self, limits: Mapping[str, int]) -> None:
        """Make the group, empty, with these limits. OSError if this machine cannot."""
        for limit in limits:
            if limit not in self.limiting:
                raise OSError(errno.EOPNOTSUPP, f"this machine cannot limit {limit}")
        self.limiting = {each: self.limiting[each] for each in limits}
        for directory in self.directories():
            _make(directory)
        # An earlier supervisor that died here may have left processes in it.
        if self.home and not self.kill(timeout=LEFT_BEHIND_TIMEOUT):
            raise OSError(errno.EBUSY, "what an earlier supervisor left in the group does not die")
        for limit, value in limits.items():
            _set_limit(limit, value, *self.limiting[limit])

    def directories(self) -> list[str]:
        homes = [self.home] if self.home else []
        return [*dict.fromkeys([*homes, *(at for _, at in self.limiting.values())])]

    def enter(self, pid: int) -> None:
        """Put a process in; its later forks are in the group too."""
        enter(self.directories(), pid)

    def members(self) -> list[int]:
        return [
            int(pid)
            for directory, _, _ in os.walk(self.home)
            for pid in read(f"{directory}/cgroup.procs").split()
        ]

    def signal(self, number: int) -> None:
        """Send a signal to every process of the group."""
        processes.send(number, self.members)

    def empty(self) -> bool:
        return not self.members()

    def strike(self) -> None:
        """Kill the present members."""
        raise NotImplementedError

    def kill(self, timeout: float | None = None) -> bool:
        """Kill until the group is empty; False if it was not within the timeout."""
        over = None if timeout is None else boottime() + timeout
        pause = 0.001
        while not self.empty():
            self.strike()
            if self.empty():
                return True
            if over is not None and boottime() >= over:
                return False
            time.sleep(pause)
            pause = min(2 * pause, 0.02)
        return True

    def oom_kills(self) -> int:
        """The number of processes that the memory limit has killed."""
        version, directory = self.limiting.get("memory_mb", (0, ""))
        name = {1: "memory.oom_control", 2: "memory.events"}.get(version)
        for line in read(f"{directory}/{name}").splitlines() if name else []:
            key, _, value = line.partition(" ")
            if key == "oom_kill":
                return int(value)
        return 0

    def remove(self) -> None:
        """Remove the empty group. A repeated call does nothing."""
        for top in self.directories():
            try:
                os.rmdir(top)
            except FileNotFoundError:
                continue
            except OSError:  # the work made groups of its own in it, or a process is still there
                for directory, _, _ in os.walk(top, topdown=False):
                    _remove(directory, self.strike)


class Unified(Group):
    """cgroup2: one write kills everything, and no fork escapes."""

    def empty(self) -> bool:
        events = read(f"{self.home}/cgroup.events")
        return "populated 1" not in events

    def strike(self) -> None:
        try:
            write(f"{self.home}/cgroup.kill", "1")
        except FileNotFoundError:
            return  # removed: then it was empty


class Freezer(Group):
    """The freezer of cgroup v1: frozen processes neither fork nor end, so the list is complete."""

    def strike(self) -> None:
        state = f"{self.home}/freezer.state"
        try:
            write(state, "FROZEN")
            over = boottime() + FREEZE_TIMEOUT
            while read(state).strip() == "FREEZING" and boottime() < over:
                time.sleep(0.001)
            self.signal(signal.SIGKILL)
        except FileNotFoundError:
            return  # removed: then it was empty
        finally:
            # They die when they thaw; a group left frozen would keep them for ever.
            if os.path.exists(state):
                write(state, "THAWED")


class Tree(Group):
    """No cgroup: `find` lists the members, `none` tells for certain that there are none."""

    def __init__(
        self, means: Means, name: str, find: Callable[[], list[int]], none: Callable[[], bool]
    ) -> None:
        super().__init__(means, name)
        self._find = find
        self._none = none

    def members(self) -> list[int]:
        return self._find()

    def empty(self) -> bool:
        return self._none()

    def strike(self) -> None:
        # A stopped process cannot fork, so the list of new ones runs out.
        seen: set[int] = set()
        while more := set(self._find()) - seen:
            self.signal(signal.SIGSTOP)
            seen |= more
        self.signal(signal.SIGKILL)


def open_group(
    means: Means, name: str, find: Callable[[], list[int]], none: Callable[[], bool]
) -> Group:
    """The group of this name; `find` and `none` are used where there is no cgroup."""
    if means["kill"] == "cgroup2":
        return Unified(means, name)
    if means["kill"] == "freezer":
        return Freezer(means, name)
    return Tree(means, name, find, none)


def group_names(means: Means) -> list[str]:
    """The names of all existing groups, with or without a known attempt (K6)."""
    places = {means["at"], *(at for _, at in means["limits"].values())} - {""}
    found: set[str] = set()
    for place in places:
        if os.path.isdir(place):
            found.update(each.name for each in os.scandir(place) if each.is_dir())
    return sorted(found)


def enter(directories: Iterable[str], pid: int) -> None:
    """Put a process into the groups of these directories."""
    for directory in directories:
        write(f"{directory}/cgroup.procs", str(pid))


def read(path: str) -> str:
    """The content of a cgroup's file; empty if the group is gone."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return read_all(file).decode()
        finally:
            os.close(file)
    except OSError as error:
        # A threaded group inside answers EOPNOTSUPP: its processes are listed above it.
        if error.errno in (errno.ENOENT, errno.ENODEV, errno.EOPNOTSUPP):
            return ""
        raise


def write(path: str, text: str) -> None:
    # One write call: the kernel takes each call as one command.
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def _make(directory: str) -> None:
    try:
        os.mkdir(directory)
    except FileExistsError:
        return  # made by a supervisor that died
    except FileNotFoundError:
        os.makedirs(directory, exist_ok=True)


def _set_limit(limit: str, value: int, version: int, directory: str) -> None:
    if limit == "pids":
        write(f"{directory}/pids.max", str(value))
        return
    amount = str(value * MEBIBYTE)
    names = {1: ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes"), 2: ("memory.max",)}
    for name in names[version]:
        # Swap is counted only by kernels that are configured for it.
        if name != "memory.memsw.limit_in_bytes" or os.path.exists(f"{directory}/{name}"):
            write(f"{directory}/{name}", amount)
    if version == 2 and os.path.exists(f"{directory}/memory.swap.max"):
        write(f"{directory}/memory.swap.max", "0")


def _remove(directory: str, strike: Callable[[], None]) -> None:
    """Remove a group's directory; processes that were forked or entered after the last look are
    killed too.
    """
    over = boottime() + REMOVE_TIMEOUT
    while True:
        try:
            return os.rmdir(directory)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno != errno.EBUSY or boottime() >= over:
                raise
        strike()
        time.sleep(0.005)
