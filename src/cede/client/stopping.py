"""The conversation with work that the client holds: hints from the server to it, answers back.

A thread does both, so that a server out of reach holds up neither signals nor the end of the work.
An answer of the work only shows that it lives; a checkpoint is reported once its manifest verifies.
"""

from __future__ import annotations

import math
import os
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

from cede.checkpoint import shelf
from cede.checkpoint.line import ATTEMPT, RESUME_FROM
from cede.client import clock, resume
from cede.client.client import Client
from cede.client.errors import CedeClientError, ServerUnreachable
from cede.client.http import Json
from cede.client.lease import Lease, goes_on, hint_of
from cede.launch.places import component
from cede.talk import heard, signals
from cede.talk.conversation import Conversation

Notify = Callable[[str, str], None]

TICK = 0.2
# After so many seconds a report to an unreachable server is sent again.
AGAIN = 1.0
# Progress only shows that the work lives; the server need not hear of every megabyte.
PROGRESS_GAP = 5.0
# The longest wait for the last checkpoint of work that was told to stop to verify.
REST_MOST = 2.0
REST_TICK = 0.02


class Stopping:
    """One attempt's conversation. Its directories exist before the work is started."""

    def __init__(
        self,
        client: Client,
        request: Json,
        home: Path | None,
        notify: Notify,
        interrupt: Callable[[], None] = lambda: None,
    ) -> None:
        """`interrupt` is called while checkpoints are verified; an exception that it raises ends
        that."""
        self.saved = False  # the server has a checkpoint that answers its hint
        self._client = client
        self._request = request
        self._notify = notify
        self._directory = (home or _default_home()).absolute() / component("id", request["id"])
        self._committed = str((request.get("saved") or {}).get("id", ""))
        self._own: list[str] = []  # checkpoints that this attempt has committed
        self._choose_start(interrupt)
        self._talk = tempfile.TemporaryDirectory(prefix="cede-talk-", ignore_cleanup_errors=True)
        protocol = request["checkpoint_protocol"]
        talk = Path(self._talk.name)
        self._conversation = Conversation(talk, self._directory, protocol, self._send_signal)
        self._conversation.open(fresh=True)
        # K9: remove what earlier attempts did not finish; no process writes there now.
        shelf.clean(self._directory, None, idle=True)
        self._hint: Json | None = None
        self._progress_at = 0.0
        self._lease: Lease | None = None
        self._members: Callable[[], list[int]] = list
        self._over = threading.Event()
        self._given_up = threading.Event()
        self._thread = threading.Thread(target=self._run, name="cede-parting", daemon=True)

    def environment(self) -> dict[str, str]:
        """Return the variables that the work needs for the conversation."""
        told = self._conversation.environment() | {ATTEMPT: str(self._request["attempt"])}
        if self._committed:
            told[RESUME_FROM] = str(self._directory / component("saved", self._committed))
        return told

    def _choose_start(self, interrupt: Callable[[], None]) -> None:
        """Find the checkpoint to go on from, and tell the server if it knows another one.

        A server that is away, or of a version that does not know this report, learns of the next
        checkpoint all the same.
        """
        found = resume.find(self._directory, self._request, self._notify, interrupt)
        point = found.ids[0] if found.ids else ""
        if point == self._committed:
            return
        self._committed = point
        with suppress(CedeClientError):
            self._client.requests.say(
                self._request["id"], "found", attempt=self._request["attempt"], ids=list(found.ids)
            )

    def start(self, lease: Lease, members: Callable[[], list[int]]) -> None:
        """Start the thread. `members` lists the processes of the work; those that listen are
        signalled."""
        self._lease = lease
        self._members = members
        self._thread.start()

    def hear_the_rest(self, interrupted: threading.Event) -> None:
        """Read the last answers once the work is over: one may be the checkpoint before its end."""
        lease = self._lease
        assert lease is not None, "start() comes first"
        self._over.set()
        self._thread.join()
        until = clock.now() + (REST_MOST if lease.preempting.is_set() else math.inf)
        self._conversation.look()
        is_verifying = True
        while is_verifying and not lease.lost and clock.now() < until:
            is_verifying = self._conversation.is_verifying  # asked first: then nothing is missed
            self._listen()
            if interrupted.wait(REST_TICK if is_verifying else 0.0):
                return

    def close(self) -> None:
        self._over.set()
        self._given_up.set()
        if self._thread.is_alive():
            self._thread.join(timeout=AGAIN)  # it may hang in a call, and does nothing after that
        self._conversation.close()
        self._talk.cleanup()

    def _run(self) -> None:
        assert self._lease is not None, "start() comes first"
        while not self._over.wait(TICK):
            self._pass_on(self._lease)
            self._listen()

    def _send_signal(self, number: int) -> bool:
        with suppress(OSError):  # a system without /proc: the hint is in its file
            return signals.send(self._members(), number)
        return False

    def _pass_on(self, lease: Lease) -> None:
        """Ask the work to save itself, or to go on. Work that is told to stop needs neither."""
        request = lease.request
        hint = hint_of(request)
        if hint is self._hint or (hint is None and request["status"] != "allocated"):
            return
        before, self._hint = self._hint, hint
        if hint is None:
            self.saved = False
            self._conversation.go_on()
            if before is not None and not goes_on(before):
                self._notify("goes on", "its units are no longer needed elsewhere")
            return
        number, left = int(hint["hint"]), float(hint["seconds_left"])
        self._conversation.hint(number, left, goes_on=goes_on(hint))
        if before is None or before["hint"] != number:
            then = "save itself and go on" if goes_on(hint) else "save itself"
            self._notify("hint", f"asked to {then}, {hint['seconds_left']:g} s left")

    def _listen(self) -> None:
        for each in self._conversation.poll(clock.now()):
            match each:
                case heard.Answered(number):
                    self._say("answered", hint=number)
                case heard.Progress(number, fraction, estimate):
                    self._tell_progress(number, fraction, estimate)
                case heard.Deferral(number, _, seconds, why):
                    self._notify("deferral", f"asks for {seconds:g} s: {why}")
                    self._say("deferral", hint=number, seconds=seconds, text=why)
                case heard.Saved(number, saved):
                    self._tell_saved(number, saved.id, saved.size)
                case heard.SaveFailed(_, reason):
                    self._notify("not saved", reason)

    def _tell_progress(self, number: int, fraction: float | None, estimate: float | None) -> None:
        if clock.now() < self._progress_at + PROGRESS_GAP:
            return
        self._progress_at = clock.now()
        done = "" if fraction is None else f"{fraction:.0%} saved"
        left = "" if estimate is None else f"{estimate:.0f} s left"
        self._say("progress", hint=number, text=", ".join(filter(None, (done, left))))

    def _tell_saved(self, number: int | None, id: str, size: int) -> None:
        """Commit a verified checkpoint. Those older than the one before it may then be removed;
        until this attempt has two of its own, the one that it started from stays.
        """
        if number is None and shelf.age(id) <= shelf.age(self._committed):
            return
        after = self._say("saved", hint=number or 0, checkpoint=id, size=size)
        if after is None:
            return
        self._committed = id
        if id not in self._own:
            self._own.append(id)
        self._notify("saved", f"checkpoint {id}")
        self.saved = bool(((after["allocation"] or {}).get("parting") or {}).get("saved"))
        if len(self._own) > 1:
            with suppress(OSError):
                shelf.clean(self._directory, self._own[-2])

    def _say(self, kind: str, **fields: object) -> Json | None:
        """Report to the server, again until it answers; None once the report is obsolete."""
        assert self._lease is not None, "start() comes first"
        key = str(uuid4())
        while not (self._given_up.is_set() or self._lease.lost):
            try:
                return self._client.requests.say(
                    self._request["id"], kind, key=key, attempt=self._request["attempt"], **fields
                )
            except ServerUnreachable:
                self._given_up.wait(AGAIN)
            except CedeClientError:
                return None
        return None


def checkpoints(request: Json) -> bool:
    """Whether a request asks for a conversation."""
    return str(request.get("checkpoint", "none")) != "none"


def _default_home() -> Path:
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "cede" / "checkpoints"
