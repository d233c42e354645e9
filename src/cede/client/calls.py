"""A Python function as work for a child process: its result or exception comes back in a file.

A file and not a pipe: it needs no reader while it is written, so a large result cannot block.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import pickle
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import cede.checkpoint as checkpoint
from cede.checkpoint.line import conversation_of, survive_signal
from cede.client.errors import Failed
from cede.client.supervisor import parent_ends

# A code that no function returns by accident, for results that cannot be pickled.
UNPICKLABLE = 113


class Call:
    """One run of one function: `work` is for the child, `result` for the parent afterwards."""

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]):
        self._function = function
        self._args = args
        self._kwargs = kwargs
        self._answer = tempfile.TemporaryFile()  # noqa: SIM115  see `close`

    def work(self, environment: dict[str, str]) -> Callable[[], NoReturn]:
        def run() -> NoReturn:
            for each in parent_ends:
                with contextlib.suppress(OSError):
                    os.close(each)
            for name in conversation_of(os.environ):
                del os.environ[name]
            os.environ.update(environment)
            checkpoint.begin(os.environ)
            survive_signal(os.environ)
            _stop_politely()
            code = self._run()
            _flush()
            os._exit(code)

        return run

    def _run(self) -> int:
        try:
            value, code = (True, called(self._function, self._args, self._kwargs)), 0
        except SystemExit as exit_:
            return exit_.code if isinstance(exit_.code, int) else int(exit_.code is not None)
        except BaseException as error:
            traceback.print_exc()
            value, code = (False, (error, traceback.format_exc())), 1
        return self._write(value, code)

    def _write(self, value: tuple[bool, Any], code: int) -> int:
        try:
            data = pickle.dumps(value)
            pickle.loads(data)
        except Exception as error:
            what = "return value" if value[0] else "exception"
            text = f"its {what} cannot be sent between processes: {error}"
            data = pickle.dumps((None, text if value[0] else f"{text}\n{value[1][1]}"))
            code = UNPICKLABLE
        self._answer.write(data)
        self._answer.flush()
        return code

    def close(self) -> None:
        """Close the file of the answer; the answer of an attempt that another follows is never
        read."""
        self._answer.close()

    def result(self, name: str, exit_code: int) -> Any:
        """Return the function's result, or raise its exception here."""
        self._answer.seek(0)
        data = self._answer.read()
        if not data:
            how = f"signal {-exit_code}" if exit_code < 0 else f"exit code {exit_code}"
            if exit_code == 0:
                return None
            raise Failed(f"step {name} ended with {how} and no result")
        # The bytes were written by our own child, to a file without a name.
        worked, value = pickle.loads(data)
        if worked:
            return value
        if worked is None:
            raise Failed(f"step {name}: {value}", fix="return plain values, or write a file")
        error, text = value
        error.add_note(f"in the child process of step {name}:\n{text}")
        raise error


def called(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Call a function; one that is `async def` gets an event loop of its own."""
    value = function(*args, **kwargs)
    if not inspect.iscoroutine(value):
        return value
    import asyncio

    return asyncio.run(value)


def _stop_politely() -> None:
    """Let SIGTERM and SIGHUP raise SystemExit, so that `finally` blocks run inside the grace."""

    def leave(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, leave)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
