"""The protocol `grpc`, the application's side: it serves `Application.Hint` on `talk/app.sock`.

Needs the extra `cede[grpc]`. The server's threads only pass on the working thread's answers: a
thread that answered by itself would vouch for a loop that hangs.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

try:
    import grpc
except ImportError as error:
    raise ImportError('the protocol grpc needs: pip install "cede[grpc]"') from error

from cede.checkpoint import clock
from cede.checkpoint.generated import checkpoint_pb2 as pb
from cede.checkpoint.words import SERVICE, SOCKET, Answer, Hint, Status

# How soon a stream notices that its caller is gone.
_LOOK_SECONDS = 0.5
# One host, and its successor before the first was noticed to be gone.
_CALLS_MAX = 4


class _DaemonThreads(Executor):
    """Threads that do not keep a finished program from ending, as the library's own would."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()

        def run() -> None:
            try:
                future.set_result(fn(*args, **kwargs))
            except BaseException as error:
                future.set_exception(error)

        threading.Thread(target=run, name="cede-checkpoint", daemon=True).start()
        return future


class GrpcLine:
    def __init__(self, talk: Path) -> None:
        self._changed = threading.Condition()
        self._hint: Hint | None = None
        self._answer: Answer | None = None
        # Through a descriptor: the address of a socket holds 107 bytes, and a path may be longer.
        self._talk = os.open(talk, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        with suppress(FileNotFoundError):
            os.unlink(SOCKET, dir_fd=self._talk)
        self._server = grpc.server(
            _DaemonThreads(),
            maximum_concurrent_rpcs=_CALLS_MAX,
            options=[("grpc.max_receive_message_length", 64 * 1024)],
        )
        handler = grpc.unary_stream_rpc_method_handler(
            self._serve,
            request_deserializer=pb.HintRequest.FromString,
            response_serializer=pb.HintReply.SerializeToString,
        )
        service = grpc.method_handlers_generic_handler(SERVICE, {"Hint": handler})
        self._server.add_generic_rpc_handlers((service,))
        self._server.add_insecure_port(f"unix:/proc/self/fd/{self._talk}/{SOCKET}")
        self._server.start()

    def hint(self) -> Hint | None:
        return self._hint

    def tell(self, answer: Answer) -> None:
        with self._changed:
            self._answer = answer
            self._changed.notify_all()

    def _serve(self, request: Any, context: Any) -> Iterator[Any]:
        deadline = clock.now() + request.seconds_left
        hint = Hint(request.number, deadline, request.withdrawn, request.goes_on)
        with self._changed:
            if self._is_stale(hint):
                return
            self._hint = hint
            self._changed.notify_all()
        told: Answer | None = None
        while not hint.withdrawn and context.is_active():
            with self._changed:
                self._changed.wait_for(partial(self._is_news, hint, told), _LOOK_SECONDS)
                if self._hint is not hint:  # withdrawn, or replaced by a successor's
                    return
                answer = self._answer
            if answer is None or answer.number != hint.number or answer == told:
                continue
            yield from _replies(told, answer)
            told = answer
            if answer.status is Status.SAVED:
                return

    def _is_stale(self, hint: Hint) -> bool:
        """Whether a later hint has overtaken this one."""
        last = self._hint
        return last is not None and (hint.number, True) <= (last.number, last.withdrawn)

    def _is_news(self, hint: Hint, told: Answer | None) -> bool:
        is_ours = self._answer is not None and self._answer.number == hint.number
        return self._hint is not hint or (is_ours and self._answer != told)


def _replies(before: Answer | None, answer: Answer) -> Iterator[Any]:
    """The new parts of an answer, as messages."""
    if before is None:
        yield pb.HintReply(estimate=pb.Estimate(seconds=answer.estimate))
    if answer.deferrals > (before.deferrals if before else 0):
        deferral = pb.Deferral(seconds=answer.defer_seconds, why=answer.why, count=answer.deferrals)
        yield pb.HintReply(deferral=deferral)
    was = (before.fraction, before.estimate) if before else (None, None)
    if (answer.fraction, answer.estimate) != was:
        progress = pb.Progress(fraction=answer.fraction, seconds_left=answer.estimate)
        yield pb.HintReply(progress=progress)
    if answer.status is Status.SAVED:
        yield pb.HintReply(saved=pb.Saved(id=answer.saved))
    if answer.status is Status.FAILED:
        yield pb.HintReply(failed=pb.Failed(why=answer.why))
