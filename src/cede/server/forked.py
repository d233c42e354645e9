"""Costly reads of the state, each in a forked child of its own.

A read that walks every request of a pool takes seconds, and on the writer's thread, or on any
thread beside it, every renewal waits for it. A child forked between two commits has the state as of
that commit, costs the writer one fork (about 15 ms at 20,000 requests), has a processor share, a
time and a memory of its own, and gives all of it back when it ends.

The child runs the read and nothing else: no lock of another thread is taken there, every inherited
descriptor is closed first, and it ends without running any code of the parent's exit.
"""

from __future__ import annotations

import gc
import os
import pickle
import resource
import signal
import struct
import warnings
from collections.abc import Callable
from typing import Any, NoReturn

from cede.engine.state.state import State
from cede.model.errors import CedeError

CPU_SECONDS = 30
ANSWER_BYTES_MAX = 256 * 2**20
_NICE = 10
_LENGTH = struct.Struct("!?Q")

Read = Callable[[State, int], bytes]


class ReadFailed(Exception):
    """The child ended without an answer: out of time or memory."""


def fork_read(read: Read, state: State, now: int) -> tuple[int, int]:
    """Start a child with this read; return its process id, and the pipe of its answer.

    Called on the writer's thread, between two commits.
    """
    out, into = os.pipe()
    try:
        with warnings.catch_warnings():
            # Newer Pythons warn of threads at a fork; the module's docstring says what the child
            # may do.
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
    except OSError:
        os.close(out)
        os.close(into)
        raise
    if pid == 0:
        _in_child(read, state, now, into)
    os.close(into)
    return pid, out


def _in_child(read: Read, state: State, now: int, into: int) -> NoReturn:
    code = 1
    try:
        gc.disable()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        # A connection that the parent closes must end, and its locks must go with it.
        os.closerange(0, into)
        os.closerange(into + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        os.nice(_NICE)
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS + 1))
        answered, text = _outcome(read, state, now)
        _write(into, _LENGTH.pack(answered, len(text)) + text)
        code = 0
    finally:
        os._exit(code)


def _outcome(read: Read, state: State, now: int) -> tuple[bool, bytes]:
    try:
        return True, read(state, now)
    except CedeError as error:
        return False, pickle.dumps((type(error), error.args, error.__dict__))


def _write(into: int, text: bytes) -> None:
    view = memoryview(text)
    while view:
        view = view[os.write(into, view) :]


def outcome_of(text: bytes) -> bytes:
    """Return the answer that a child wrote, or raise the refusal that it raised."""
    if len(text) < _LENGTH.size:
        raise ReadFailed
    answered, length = _LENGTH.unpack_from(text)
    body = text[_LENGTH.size :]
    if len(body) != length:
        raise ReadFailed
    if answered:
        return body
    kind, arguments, fields = pickle.loads(body)  # written by our own child, into our own pipe
    error: Any = kind.__new__(kind, *arguments)
    error.__dict__.update(fields)
    raise error
