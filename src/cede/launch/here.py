"""This machine: its name, its boot and its GPUs, the same for an agent and for a client beside it.

A machine without GPUs normally has neither library nor driver.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Gpus:
    """The GPUs of this machine. Names are NVIDIA's own ids, which stay the same when the order of
    the devices changes.
    """

    names: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    driver: str = ""


def gpus() -> Gpus:
    try:
        import pynvml
    except ImportError:
        return Gpus()
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return Gpus()
    try:
        return _ask(pynvml)
    except pynvml.NVMLError:
        return Gpus()
    finally:
        pynvml.nvmlShutdown()


def _ask(nvml: Any) -> Gpus:
    handles = [nvml.nvmlDeviceGetHandleByIndex(n) for n in range(nvml.nvmlDeviceGetCount())]
    return Gpus(
        tuple(_text(nvml.nvmlDeviceGetUUID(each)) for each in handles),
        tuple(_text(nvml.nvmlDeviceGetName(each)) for each in handles),
        _text(nvml.nvmlSystemGetDriverVersion()),
    )


def _text(value: Any) -> str:
    """Text; older versions of the library return bytes."""
    return value.decode() if isinstance(value, bytes) else str(value)


def hostname() -> str:
    return socket.gethostname().partition(".")[0]


def boot_id() -> str:
    """The id of this boot: another one after every start of the machine."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
