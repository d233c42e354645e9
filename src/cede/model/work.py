"""The command that an agent runs: an argument list, never a shell."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from cede.model import bounds
from cede.model.errors import Invalid
from cede.model.subject import parse_name

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
# Set by cede, or a way around the isolation of an attempt.
_RESERVED = ("CEDE_", "LD_")
_RESERVED_NAMES = frozenset({"CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"})


@dataclass(frozen=True, slots=True)
class Work:
    """The command and its surroundings. `user` is an account name on the node; without one the
    agent's own mapping decides.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    directory: str = ""
    user: str = ""


def parse_work(value: object, field: str = "work") -> Work:
    """Work from outside data; `Invalid` names the part that is wrong, and why."""
    if not isinstance(value, Mapping):
        raise Invalid(field, "must be a map with argv, and optionally env, directory and user")
    for name in value:
        if name not in ("argv", "env", "directory", "user"):
            raise Invalid(f"{field}.{name}", "unknown; known are argv, directory, env, user")
    user = value.get("user") or ""
    return Work(
        argv=_argv(value.get("argv"), f"{field}.argv"),
        env=_env(value.get("env") or {}, f"{field}.env"),
        directory=_directory(value.get("directory") or "", f"{field}.directory"),
        user=parse_name(user, f"{field}.user") if user else "",
    )


def _argv(value: object, field: str) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, list | tuple) or not value:
        raise Invalid(field, 'must be a list of arguments, such as ["python", "train.py"]')
    for at, each in enumerate(value):
        _text(each, f"{field}[{at}]")
    if not value[0]:
        raise Invalid(f"{field}[0]", "must name a program")
    if sum(len(each.encode()) + 1 for each in value) > bounds.ARGV_BYTES_MAX:
        raise Invalid(field, f"is longer than {bounds.ARGV_BYTES_MAX} bytes")
    return tuple(value)


def _env(value: object, field: str) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise Invalid(field, "must be a map from name to text")
    if len(value) > bounds.ENV_MAX:
        raise Invalid(field, f"has {len(value)} variables; at most {bounds.ENV_MAX}")
    for name, text in value.items():
        if not isinstance(name, str) or not _VARIABLE.fullmatch(name):
            raise Invalid(field, f"{str(name)[:80]!r} is not a variable's name")
        if name.startswith(_RESERVED) or name in _RESERVED_NAMES:
            raise Invalid(f"{field}.{name}", "is reserved: cede sets it, or it changes the loader")
        _text(text, f"{field}.{name}")
    if sum(len(n) + len(t.encode()) + 2 for n, t in value.items()) > bounds.ARGV_BYTES_MAX:
        raise Invalid(field, f"is longer than {bounds.ARGV_BYTES_MAX} bytes")
    return dict(value)


def _directory(value: object, field: str) -> str:
    text = _text(value, field)
    if text and (not text.startswith("/") or len(text) > bounds.PATH_LENGTH_MAX):
        raise Invalid(field, f"must be an absolute path of at most {bounds.PATH_LENGTH_MAX} bytes")
    return text


def _text(value: object, field: str) -> str:
    if not isinstance(value, str):
        raise Invalid(field, f"must be text, not {value!r:.80}")
    if "\0" in value:
        raise Invalid(field, "contains a NUL character")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Invalid(field, "contains half a character (a lone surrogate)") from None
    return value
