"""Finds the means of containment that this machine really has: each is used once, on a process of
its own.

What the kernel lists and what it permits differ in containers, under a delegated service, and
without root. So only a means that was seen to kill, or to limit, is trusted.
"""

from __future__ import annotations

import contextlib
import functools
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cede.launch.contain import Group, Means, open_group, write
from cede.launch.places import component
from cede.model.errors import Invalid

KINDS = ("cgroup2", "freezer", "subreaper")
LIMITS = {"pids": "pids", "memory_mb": "memory"}  # our name, the controller's
TIMEOUT = 10.0

# Each waits for a byte, so that it is in its group before it begins.
_WAIT = "import os, sys, time\nsys.stdin.buffer.read(1)\n"
_ESCAPE = (
    _WAIT
    + "pid = os.fork()\nif not pid: os.setsid()\nelse: print()\n"
    + ("sys.stdout.flush()\ntime.sleep(600)\n")
)
_FORK = _WAIT + "try: os.fork()\nexcept BlockingIOError: sys.exit(3)\n"
_FILL = _WAIT + "x = b'x' * (96 << 20)\n"
_ADOPT = """
import ctypes, os, sys, time
if ctypes.CDLL(None).prctl(36, 1, 0, 0, 0): sys.exit(1)
us = os.getpid()
read, write = os.pipe()
if not os.fork():
    if not os.fork():
        while os.getppid() != us: time.sleep(0.001)
        os.write(write, b'1')
    os._exit(0)
os.read(read, 1)
sys.exit(3)
"""


@dataclass(frozen=True, slots=True)
class Containment:
    """The means that kill and that limit, and in words why others do not. The fields of `Means`
    come first.
    """

    kill: str
    at: str
    limits: Mapping[str, tuple[int, str]]
    why_not: Mapping[str, str]

    @property
    def means(self) -> Means:
        return {"kill": self.kill, "at": self.at, "limits": dict(self.limits)}

    def describe(self) -> list[str]:
        """Lines for people."""
        limits = [
            f"{name} limited by cgroup v{version}" for name, (version, _) in self.limits.items()
        ]
        reasons = [f"no {name}: {reason}" for name, reason in self.why_not.items()]
        return [f"killed by {self.kill}", *limits, *reasons]


def probe(name: str = "cede", only: str | None = None) -> Containment:
    """Find the best means. `name` is the directory of this agent's groups, unlike any other
    agent's. `only` asks for one means and no better one.
    """
    component("name", name)
    if not sys.platform.startswith("linux"):
        raise Invalid("containment", f"needs Linux, and this is {sys.platform}")
    if only is not None and only not in KINDS:
        raise Invalid("only", f"must be one of {', '.join(KINDS)}")
    hierarchies = _hierarchies()
    why_not: dict[str, str] = {}
    for kind in (only,) if only else KINDS:
        at = _beneath(hierarchies.get(kind, ""), name)
        if reason := _try_kind(kind, at):
            why_not[kind] = reason
            continue
        limits = _limits(hierarchies, name, why_not)
        return Containment(kind, at, limits, why_not)
    raise Invalid("containment", f"is impossible here: {why_not}")


@functools.cache
def killer(name: str) -> Means:
    """The best means of killing here, without limits, for a process that supervises work by itself;
    found out once.

    `subreaper` is taken without a trial: there is no alternative left.
    """
    component("name", name)
    hierarchies: dict[str, str] = {}
    with contextlib.suppress(OSError):  # not Linux, or a /proc with less in it
        hierarchies = _hierarchies()
    for kind in ("cgroup2", "freezer"):
        at = _beneath(hierarchies.get(kind, ""), name)
        if not _try_kind(kind, at):
            return {"kill": kind, "at": at, "limits": {}}
    return {"kill": "subreaper", "at": "", "limits": {}}


def _try_kind(kind: str, at: str) -> str:
    """Why this means does not kill here; empty if it does."""
    if kind == "subreaper":
        return _try_adopting()
    if not at:
        return "not mounted"
    means: Means = {"kill": kind, "at": at, "limits": {}}
    try:
        with _Trial(means, {}, _ESCAPE) as trial:
            trial.begin(hear=True)
            if not trial.group.members():
                return "the group stayed empty"
            if not trial.group.kill(timeout=TIMEOUT) or trial.ended() != -9:
                return "the group did not die"
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return ""


def _try_adopting() -> str:
    try:
        adopted = subprocess.run([sys.executable, "-S", "-c", _ADOPT], timeout=TIMEOUT)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return "" if adopted.returncode == 3 else "orphans are not adopted"


def _limits(
    hierarchies: Mapping[str, str], name: str, why_not: dict[str, str]
) -> dict[str, tuple[int, str]]:
    found: dict[str, tuple[int, str]] = {}
    for limit, controller in LIMITS.items():
        reasons = []
        for version, key in ((2, "cgroup2"), (1, controller)):
            at = _beneath(hierarchies.get(key, ""), name)
            reason = _try_limit(limit, version, at) if at else "not mounted"
            if not reason:
                found[limit] = (version, at)
                break
            reasons.append(f"cgroup v{version}: {reason}")
        else:
            why_not[limit] = "; ".join(reasons)
    return found


def _try_limit(limit: str, version: int, at: str) -> str:
    means: Means = {"kill": "subreaper", "at": "", "limits": {limit: (version, at)}}
    try:
        if version == 2:
            _enable(LIMITS[limit], at)
        with _Trial(means, {limit: 1 if limit == "pids" else 64}, _code(limit)) as trial:
            trial.begin(hear=False)
            code = trial.ended()
            if limit == "pids":
                return "" if code == 3 else "a process too many was started"
            return "" if code == -9 and trial.group.oom_kills() else "too much memory was given"
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)


def _code(limit: str) -> str:
    return _FORK if limit == "pids" else _FILL


def _enable(controller: str, at: str) -> None:
    """Give the groups below `at` a controller; each directory on the way must pass it on."""
    above = Path(at).parent
    if controller not in (above / "cgroup.controllers").read_text().split():
        raise OSError(f"{above} was not given the controller {controller}")
    Path(at).mkdir(exist_ok=True)
    for directory in (above, Path(at)):
        if controller not in (directory / "cgroup.subtree_control").read_text().split():
            write(f"{directory}/cgroup.subtree_control", f"+{controller}")


class _Trial:
    """A process in a group of its own, which is gone afterwards whatever happened."""

    def __init__(self, means: Means, limits: Mapping[str, int], code: str) -> None:
        name = f"probe-{os.getpid()}"
        self.group: Group = open_group(means, name, list, lambda: True)
        self._limits = limits
        self._code = code

    def __enter__(self) -> _Trial:
        self.group.make(self._limits)
        self._process = subprocess.Popen(
            [sys.executable, "-S", "-c", self._code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        return self

    def begin(self, *, hear: bool) -> None:
        """Put the process in and let it begin; with `hear` wait until it reports that it has."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self.group.enter(self._process.pid)
        self._process.stdin.write(b"1")
        self._process.stdin.close()
        if hear:
            self._process.stdout.readline()

    def ended(self) -> int:
        return self._process.wait(TIMEOUT)

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self.group.kill(timeout=TIMEOUT)
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        self.group.remove()


def _beneath(directory: str, name: str) -> str:
    return f"{directory}/{name}" if directory else ""


def _hierarchies() -> dict[str, str]:
    """The directory of this process in each hierarchy: `cgroup2`, and v1 by the name of its
    controller.

    Groups are made below it, so bounds on this process bound the work too.
    """
    ours: dict[str, str] = {}
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        ours.update(dict.fromkeys(controllers.split(",") if controllers else ["cgroup2"], path))
    found: dict[str, str] = {}
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        root, point = before.split()[3:5]
        kind, _, options = after.split(maxsplit=2)
        names = {"cgroup2": ["cgroup2"], "cgroup": options.split(",")}.get(kind, [])
        for each in names:
            if each in ours:
                inside = "" if ours[each] == root else ours[each].removeprefix(root.rstrip("/"))
                directory = Path(f"{point}{inside}")
                found.setdefault(each, str(_ours(directory if directory.is_dir() else Path(point))))
    return found


def _ours(directory: Path) -> Path:
    """The directory below which groups go: this one, unless the one above is delegated.

    systemd marks what it delegates. A service with a subgroup of its own has its processes there,
    so that the directory above is empty, and may pass controllers on.
    """
    for mark in ("user.delegate", "trusted.delegate"):
        # Not marked, not permitted to look, or not a kind of file that is ever marked.
        with contextlib.suppress(OSError):
            if os.getxattr(directory.parent, mark) == b"1":
                return directory.parent
    return directory
