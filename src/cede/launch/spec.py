"""The spec of one attempt of one task: what runs, and under which bounds. JSON both ways, every
field checked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from cede.launch.places import attempt_name
from cede.model.errors import Invalid, quoted

ID_MAX = 2**32 - 2  # the largest number is the kernel's "no such user"
TASK_MAX = 10**6
STRING_BYTES_MAX = 128 * 1024 - 1  # the kernel's bound for one argument or variable
TOTAL_BYTES_MAX = 1024 * 1024  # half of what an exec takes with the usual stack
PIDS_MAX = 4 * 1024 * 1024
MEMORY_MB_MAX = 1 << 30
LOG_BYTES_MIN, LOG_BYTES_MAX = 4096, 1 << 30
LOG_BYTES_DEFAULT = 16 * 1024 * 1024
SECONDS_MAX = 366 * 24 * 3600
WALLTIME_GRACE_DEFAULT = 30.0

# The two variables that identify an attempt's processes without a cgroup.
ALLOCATION_VARIABLE, TASK_VARIABLE = "CEDE_ALLOCATION", "CEDE_TASK"
# With it the task is one of an array, and its number is not that of a gang's member.
ARRAY_VARIABLE = "CEDE_ARRAY"


@dataclass(frozen=True, slots=True)
class Fence:
    allocation: str
    attempt: int
    task: int

    def __post_init__(self) -> None:
        _text("fence.allocation", self.allocation)
        _integer("fence.attempt", self.attempt, 1, 2**31)
        _integer("fence.task", self.task, 0, TASK_MAX)
        attempt_name(self.allocation, self.task)


@dataclass(frozen=True, slots=True)
class User:
    uid: int
    gid: int
    groups: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        _integer("user.uid", self.uid, 0, ID_MAX)
        _integer("user.gid", self.gid, 0, ID_MAX)
        object.__setattr__(self, "groups", _tuple("user.groups", self.groups))
        for each in self.groups:
            _integer("user.groups", each, 0, ID_MAX)


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of an attempt; None: not limited."""

    pids: int | None = None
    memory_mb: int | None = None

    def __post_init__(self) -> None:
        _integer("limits.pids", self.pids, 1, PIDS_MAX, none=True)
        _integer("limits.memory_mb", self.memory_mb, 1, MEMORY_MB_MAX, none=True)


@dataclass(frozen=True, slots=True)
class Spec:
    """`env` is the whole environment; `user` None is the supervisor's own; times are seconds.
    `hide` are files and folders that the work does not see, except for the folders `show` in them.
    """

    fence: Fence
    argv: tuple[str, ...]
    env: Mapping[str, str]
    directory: str
    user: User | None = None
    limits: Limits = field(default_factory=Limits)
    log_bytes: int = LOG_BYTES_DEFAULT
    walltime: float | None = None
    walltime_grace: float = WALLTIME_GRACE_DEFAULT
    hide: tuple[str, ...] = ()
    show: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "argv", _tuple("argv", self.argv))
        if not self.argv or not self.argv[0]:
            raise Invalid("argv", "must begin with the program to run")
        size = sum(_text("argv", each) for each in self.argv) + _environment(self.env, self.fence)
        if size > TOTAL_BYTES_MAX:
            raise Invalid("argv", f"and env must be at most {TOTAL_BYTES_MAX} bytes together")
        _text("directory", self.directory)
        if not self.directory.startswith("/"):
            raise Invalid("directory", "must be an absolute path")
        for name in ("hide", "show"):
            object.__setattr__(self, name, _tuple(name, getattr(self, name)))
            for each in getattr(self, name):
                _text(name, each)
                if not each.startswith("/"):
                    raise Invalid(name, "must be absolute paths")
        _integer("log_bytes", self.log_bytes, LOG_BYTES_MIN, LOG_BYTES_MAX)
        if self.walltime is not None:
            _seconds("walltime", self.walltime)
        _seconds("walltime_grace", self.walltime_grace)

    @property
    def name(self) -> str:
        return attempt_name(self.fence.allocation, self.fence.task)

    @property
    def marker(self) -> dict[str, str]:
        """The variables that tell its processes from others: a task of a gang has its own number,
        and a task of an array its own allocation.
        """
        return {name: self.env[name] for name in (ALLOCATION_VARIABLE, TASK_VARIABLE)}

    def to_json(self) -> dict[str, Any]:
        fence, limits = self.fence, self.limits
        bounds = {"pids": limits.pids, "memory_mb": limits.memory_mb}
        return {
            "fence": {
                "allocation": fence.allocation,
                "attempt": fence.attempt,
                "task": fence.task,
            },
            "argv": list(self.argv),
            "env": dict(self.env),
            "directory": self.directory,
            "user": self.user and {**asdict(self.user), "groups": list(self.user.groups)},
            "limits": {key: value for key, value in bounds.items() if value is not None},
            "log_bytes": self.log_bytes,
            "walltime": self.walltime,
            "walltime_grace": self.walltime_grace,
        } | ({"hide": list(self.hide), "show": list(self.show)} if self.hide else {})

    @classmethod
    def from_json(cls, value: object) -> Spec:
        given = dict(_object("spec", value, cls))
        parts: dict[str, Callable[..., object]] = {"fence": Fence, "user": User, "limits": Limits}
        for name, part in parts.items():
            if given.get(name) is not None:
                given[name] = part(**_object(name, given[name], part))
            elif name in given and name != "user":
                raise Invalid(name, "must be an object")
        return cls(**given)


def _object(name: str, value: object, of: Any) -> Mapping[str, Any]:
    """The value as arguments of a dataclass: every required field, and no unknown one."""
    if not isinstance(value, Mapping):
        raise Invalid(name, f"must be an object, not {quoted(value)}")
    known = {each.name for each in fields(of)}
    for each in value:
        if each not in known:
            raise Invalid(f"{name}.{each}"[:80], "is not a field")
    needed = {"spec": ("fence", "argv", "env", "directory"), "user": ("uid", "gid")}
    for each in needed.get(name, known if name == "fence" else ()):
        if each not in value:
            raise Invalid(f"{name}.{each}", "is missing")
    return value


def _environment(env: object, fence: Fence) -> int:
    if not isinstance(env, Mapping):
        raise Invalid("env", f"must be an object, not {quoted(env)}")
    size = 0
    for name, value in env.items():
        size += _text("env", name) + _text(f"env.{quoted(name)}", value)
        if not name or "=" in name:
            raise Invalid("env", f"has the name {quoted(name)}, which no variable can have")
    if env.get(ALLOCATION_VARIABLE) != fence.allocation:
        wanted = f"must be {quoted(fence.allocation)}, as the fence says"
        raise Invalid(f"env.{ALLOCATION_VARIABLE}", wanted)
    task = str(fence.task)
    if env.get(TASK_VARIABLE) != task and (fence.task or ARRAY_VARIABLE not in env):
        raise Invalid(f"env.{TASK_VARIABLE}", f"must be {quoted(task)}, as the fence says")
    if TASK_VARIABLE not in env:
        raise Invalid(f"env.{TASK_VARIABLE}", "is missing")
    return size


def _tuple(name: str, value: object) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise Invalid(name, f"must be a list, not {quoted(value)}")
    return tuple(value)


def _text(name: str, value: object) -> int:
    """The number of bytes that a text takes."""
    if not isinstance(value, str):
        raise Invalid(name, f"must be text, not {quoted(value)}")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise Invalid(name, "must be UTF-8") from None
    if "\0" in value or size > STRING_BYTES_MAX:
        raise Invalid(name, f"must be at most {STRING_BYTES_MAX} bytes, none of them 0")
    return size + 1


def _integer(name: str, value: object, least: int, most: int, *, none: bool = False) -> None:
    if none and value is None:
        return
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise Invalid(name, f"must be an integer from {least} to {most}, not {quoted(value)}")


def _seconds(name: str, value: object) -> None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= SECONDS_MAX:  # type: ignore[operator]
        raise Invalid(name, f"must be seconds from 0 to {SECONDS_MAX}, not {quoted(value)}")
