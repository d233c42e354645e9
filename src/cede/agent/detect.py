"""The resources of this machine: processors, memory, GPUs; and identifiers of it.

A machine without GPUs normally has no library and no driver for them.
"""

from __future__ import annotations

import hashlib
import os
import platform
from pathlib import Path

from cede.launch.here import Gpus, boot_id, gpus, hostname

__all__ = ["Gpus", "amounts", "boot_id", "fingerprint", "gpus", "hostname", "machine"]

GPU = "gpu"


def amounts(gpus: Gpus) -> dict[str, int]:
    """Return what this process may use, in the keys and units of pools."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    found = {"mcpu": len(os.sched_getaffinity(0)) * 1000, "memory_mb": memory // 10**6}
    return found | ({GPU: len(gpus.names)} if gpus.names else {})


def machine(data: Path) -> str:
    """Return an identifier that stays the same after a restart of the machine, and that differs
    for a copy of the data folder on this machine or elsewhere, as far as a machine can tell.
    """
    parts = [_text_of(Path("/etc/machine-id")), _text_of(Path("/sys/class/dmi/id/product_uuid"))]
    parts.append(str(data.stat().st_ino))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""  # only root may read it, or there is none


def fingerprint(found: Gpus) -> str:
    """Return a hash that is equal on machines on which a program behaves the same: kernel,
    processor, GPUs, driver."""
    parts = (platform.machine(), platform.release(), _processor(), found.driver, *found.models)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, "")
