"""The protocol `grpc`, the host's side: a thread for each hint calls the application and listens.

Needs the extra `cede[grpc]`. The application may not serve yet, may be restarted, or may flood the
host: the thread tries again, and reads no faster than a person could follow.
"""

from __future__ import annotations

import os
import stat
import threading
from contextlib import suppress
from dataclasses import replace
from typing import Any

from cede.checkpoint import clock
from cede.checkpoint.generated import checkpoint_pb2 as pb
from cede.checkpoint.words import NUMBER_MAX, SERVICE, SOCKET, Answer, Hint, Status
from cede.talk.unforked import grpc

_AGAIN_SECONDS = 0.2
_REPLY_SECONDS = 0.01
_WITHDRAWAL_SECONDS = 5.0
_OPTIONS = [
    ("grpc.max_receive_message_length", 64 * 1024),
    ("grpc.use_local_subchannel_pool", 1),  # the same address is another socket the next time
    ("grpc.enable_http_proxy", 0),
]


class GrpcLine:
    def __init__(self, talk: int) -> None:
        self._talk = talk
        self._lock = threading.Lock()
        self._answer: Answer | None = None
        self._stop = threading.Event()

    def ask(self, hint: Hint, *, first: bool) -> None:
        if not first:
            return  # only the host counts the time, and a running call need not know
        self._stop.set()
        self._stop = threading.Event()
        arguments = (hint, os.dup(self._talk), self._stop)
        threading.Thread(target=self._talk_about, args=arguments, daemon=True).start()

    def answer(self) -> Answer | None:
        with self._lock:
            return self._answer

    def close(self) -> None:
        self._stop.set()

    def _talk_about(self, hint: Hint, talk: int, stop: threading.Event) -> None:
        """Call until the application has heard everything, and has saved or been told to go on."""
        until = clock.now() + _WITHDRAWAL_SECONDS if hint.withdrawn else float("inf")
        try:
            while not stop.is_set() and clock.now() < until:
                with suppress(grpc.RpcError, OSError):
                    if self._call(hint, talk, stop):
                        return
                stop.wait(_AGAIN_SECONDS)
        finally:
            os.close(talk)

    def _call(self, hint: Hint, talk: int, stop: threading.Event) -> bool:
        """Make one call; whether no other is needed."""
        # Through a descriptor of the socket itself: no link leads to another account's socket, and
        # the path may be longer than the 107 bytes of an address.
        socket = os.open(SOCKET, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=talk)
        try:
            if not stat.S_ISSOCK(os.fstat(socket).st_mode):
                raise OSError("not a socket")
            with grpc.insecure_channel(f"unix:/proc/self/fd/{socket}", _OPTIONS) as channel:
                call = channel.unary_stream(
                    f"/{SERVICE}/Hint",
                    request_serializer=pb.HintRequest.SerializeToString,
                    response_deserializer=pb.HintReply.FromString,
                )
                left = max(hint.deadline - clock.now(), 0.0)
                request = pb.HintRequest(
                    number=hint.number,
                    seconds_left=left,
                    withdrawn=hint.withdrawn,
                    goes_on=hint.goes_on,
                )
                return self._listen(call(request), hint, stop) or hint.withdrawn
        finally:
            os.close(socket)

    def _listen(self, replies: Any, hint: Hint, stop: threading.Event) -> bool:
        answer = Answer(hint.number)
        watcher = threading.Thread(target=_cancel_on, args=(stop, replies), daemon=True)
        watcher.start()
        for reply in replies:
            answer = _after(answer, reply)
            with self._lock:
                if stop.is_set():
                    return True
                self._answer = answer
            stop.wait(_REPLY_SECONDS)
        return answer.status is Status.SAVED


def _cancel_on(stop: threading.Event, call: Any) -> None:
    """Cancel a call when it is to stop: a call that waits for its next reply does not notice."""
    while not stop.wait(_AGAIN_SECONDS):
        if not call.is_active():
            return
    call.cancel()


def _after(answer: Answer, reply: Any) -> Answer:
    """The answer after one more reply."""
    kind = reply.WhichOneof("kind")
    if kind == "estimate" and reply.estimate.HasField("seconds"):
        answer = replace(answer, estimate=reply.estimate.seconds)
    elif kind == "progress":
        said = reply.progress
        answer = replace(
            answer,
            status=Status.SAVING,
            fraction=said.fraction if said.HasField("fraction") else answer.fraction,
            estimate=said.seconds_left if said.HasField("seconds_left") else None,
        )
    elif kind == "deferral":
        asked = reply.deferral
        answer = replace(
            answer,
            status=Status.DEFERRED,
            deferrals=min(asked.count or answer.deferrals + 1, NUMBER_MAX),
            defer_seconds=asked.seconds,
            why=asked.why,
        )
    elif kind == "saved":
        answer = replace(answer, status=Status.SAVED, saved=reply.saved.id)
    elif kind == "failed":
        answer = replace(answer, status=Status.FAILED, why=reply.failed.why)
    return answer.sane()
