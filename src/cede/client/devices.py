"""The GPUs of this machine that a command may use, where its pool only counts them.

A device is taken by a socket with an abstract name, which the supervisor of the work holds. So no
two commands on this machine have the same device, whatever started them, and the kernel gives it
back with the supervisor, however that ends.
"""

from __future__ import annotations

import errno
import hashlib
import os
import socket
import sys
from collections.abc import Mapping

from cede.client.errors import Conflict
from cede.launch.here import gpus

VISIBLE = "CUDA_VISIBLE_DEVICES"
UNKNOWN = (
    "none are assigned: neither a driver nor CUDA_VISIBLE_DEVICES says which GPUs this machine has"
)


def known(environ: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Return the GPUs of this machine that the environment lets this process see."""
    found = gpus().names
    given = environ.get(VISIBLE)
    if given is None:
        return found
    names = (each.strip() for each in given.split(","))
    return tuple(dict.fromkeys(_name(each, found) for each in names if each))


def _name(given: str, found: tuple[str, ...]) -> str:
    """Return the device's name; a number is a place in the driver's list."""
    is_place = given.isdecimal() and int(given) < len(found)
    return found[int(given)] if is_place else given


class Taken:
    """Devices of one attempt: taken until `close`, and as long as a process lives that inherited
    them."""

    def __init__(self, held: Mapping[str, socket.socket]) -> None:
        self._held = held

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._held)

    @property
    def descriptors(self) -> tuple[int, ...]:
        return tuple(each.fileno() for each in self._held.values())

    def close(self) -> None:
        for each in self._held.values():
            each.close()


def take(count: int, names: tuple[str, ...]) -> Taken:
    """Take so many of these that are free on this machine, or raise an error that says how many
    are."""
    held: dict[str, socket.socket] = {}
    for name in names:
        if len(held) == count:
            break
        if (sign := _sign(name)) is not None:
            held[name] = sign
    if len(held) == count:
        return Taken(held)
    Taken(held).close()
    raise Conflict(
        f"{count} GPUs were granted, and {len(held)} of the {len(names)} of this machine are free",
        fix="other commands of cede use them; let the pool count what the machine has",
        code="devices_in_use",
    )


def _sign(device: str) -> socket.socket | None:
    sign = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        sign.bind("\0cede-gpu-" + hashlib.sha256(device.encode()).hexdigest()[:32])
    except OSError as error:
        sign.close()
        if error.errno == errno.EADDRINUSE:
            return None
        raise
    return sign


def can_take() -> bool:
    """Whether this system has abstract names of sockets."""
    return sys.platform.startswith("linux")
