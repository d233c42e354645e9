"""Hides folders from work that runs as the same account as its supervisor.

The work gets a user namespace and a mount namespace of its own, in which each hidden folder is
empty and read-only except for the shown folders in it. The kernel closes
/proc/PID/{environ,mem,fd,root} of every process outside a user namespace to the processes inside,
and lets a nested namespace remove none of these mounts. The account is mapped to itself, so that
owners of files, checkpoints and devices stay as they are.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Sequence

from cede.launch.processes import libc

CLONE_NEWNS, CLONE_NEWUSER = 0x0002_0000, 0x1000_0000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_REMOUNT, MS_BIND, MS_REC, MS_SLAVE = 1 << 5, 1 << 12, 1 << 14, 1 << 19
_BARE = MS_NOSUID | MS_NODEV | MS_NOEXEC

# The numbers are the same on every architecture.
SYS_LANDLOCK_CREATE_RULESET, SYS_LANDLOCK_RESTRICT_SELF = 444, 446
LANDLOCK_VERSION = 1 << 0
LANDLOCK_ABI_WITH_SCOPES = 6
LANDLOCK_SCOPE_SIGNAL = 1 << 1


def hide(hidden: Sequence[str], shown: Sequence[str]) -> None:
    """Enter namespaces without the hidden files and folders. OSError if that is impossible.

    `shown` are folders below hidden ones. A missing path needs no hiding.
    """
    uid, gid = os.geteuid(), os.getegid()
    _check(libc.unshare(CLONE_NEWUSER | CLONE_NEWNS), "unshare")
    # Groups stay as they are, and cannot be dropped to circumvent a file that is closed to a group.
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{uid} {uid} 1")
    _write("/proc/self/gid_map", f"{gid} {gid} 1")
    # Later mounts outside propagate in; mounts made here do not propagate out.
    _mount(None, "/", None, MS_REC | MS_SLAVE)
    # Descriptors reach the folders that are about to be covered. Not opened before: a mount of the
    # namespace outside cannot be bound in here.
    kept = {each: os.open(each, os.O_PATH | os.O_CLOEXEC) for each in map(os.path.realpath, shown)}
    covered: list[str] = []
    for path in sorted(filter(os.path.exists, set(map(os.path.realpath, hidden)))):
        if any(_is_within(path, each) for each in covered):
            continue
        if not os.path.isdir(path):
            _mount("/dev/null", path, None, MS_BIND)
            continue
        covered.append(path)
        _mount("cede", path, "tmpfs", _BARE, "size=64k,mode=0755")
        for each, descriptor in kept.items():
            if _is_within(each, path):
                os.makedirs(each)
                _mount(f"/proc/self/fd/{descriptor}", each, None, MS_BIND | MS_REC)
        _mount(None, path, None, MS_REMOUNT | MS_BIND | MS_RDONLY | _BARE)
    for descriptor in kept.values():
        os.close(descriptor)


def keep_signals_inside() -> None:
    """Let this process and its children signal only each other from here on, if the kernel has
    Landlock with scopes (6.12); needs `no_new_privs`. On other kernels nothing changes.
    """
    if libc.syscall(SYS_LANDLOCK_CREATE_RULESET, None, 0, LANDLOCK_VERSION) < (
        LANDLOCK_ABI_WITH_SCOPES
    ):
        return
    rules = (ctypes.c_uint64 * 3)(0, 0, LANDLOCK_SCOPE_SIGNAL)  # files, network, scopes
    ruleset = libc.syscall(
        SYS_LANDLOCK_CREATE_RULESET, rules, ctypes.c_size_t(ctypes.sizeof(rules)), 0
    )
    _check(min(ruleset, 0), "landlock_create_ruleset")
    try:
        _check(libc.syscall(SYS_LANDLOCK_RESTRICT_SELF, ruleset, 0), "landlock_restrict_self")
    finally:
        os.close(ruleset)


def _is_within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _mount(source: str | None, target: str, kind: str | None, flags: int, data: str = "") -> None:
    done = libc.mount(
        None if source is None else source.encode(),
        os.fsencode(target),
        None if kind is None else kind.encode(),
        ctypes.c_ulong(flags),
        data.encode() or None,
    )
    _check(done, f"mount {target}")


def _check(result: int, call: str) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")


def _write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def main() -> int:
    """Try it on a folder of its own; what prevents it goes to standard output."""
    import tempfile  # a supervisor does not need it, and starts sooner without

    with tempfile.TemporaryDirectory(prefix="cede-probe-") as folder:
        shown = os.path.join(folder, "shown")
        os.mkdir(shown)
        with open(os.path.join(folder, "secret"), "w"):
            pass
        child = os.fork()
        if child:
            return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        try:
            hide([folder], [shown])
            if os.listdir(folder) != ["shown"]:
                raise OSError("a hidden file is still there")
            os._exit(0)
        except OSError as error:
            os.write(1, str(error.strerror or error).encode())
        finally:
            os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
