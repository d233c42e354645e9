"""The attempts on this node, each with its supervisor and its conversation.

Carries out the machine's instructions, and passes on the reports of supervisors and applications.
"""

from __future__ import annotations

import errno
import queue
import select
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import structlog

from cede.agent import crash, wire
from cede.agent.accounts import NotAllowed, Refused
from cede.agent.hands import Swept
from cede.agent.settings import Settings
from cede.agent.shelves import Shelves
from cede.agent.surroundings import (
    TALK,
    checkpoint_directory,
    make_directories,
    protocol_of,
    surroundings,
)
from cede.agent.values import (
    Ended,
    Event,
    Found,
    Heard,
    Key,
    Kind,
    LaunchFailed,
    Order,
    Report,
    Started,
)
from cede.checkpoint import shelf
from cede.checkpoint.manifest import SUFFIX
from cede.launch import launcher, places, processes
from cede.launch.contain import group_names, open_group
from cede.launch.launcher import Kept, State
from cede.launch.probe import Containment
from cede.launch.spec import Fence
from cede.launch.starting import Template
from cede.model.errors import CedeError, Conflict, Invalid
from cede.talk import heard, signals
from cede.talk.conversation import Conversation

# A supervisor that has not ended its work so long after the grace is stuck itself.
STUCK = 2.0
# A supervisor is told a new deadline when it is later by so many seconds, or by this part of the
# lease.
DEADLINE_STEP, DEADLINE_PART = 1.0, 0.05
# Launches at once: most of one is waiting for the disk and for its supervisor.
LAUNCHES = 16
# The last answers of stopped work are read for so long: its last checkpoint may still be verified.
REST_MOST = 2.0
# Exit codes of a shell when there is no such program, and when it must not be run.
NO_PROGRAM, NOT_EXECUTED = 127, 126
SIGNAL_BASE = 128
# Errors of a full disk.
NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
# The checkpoints that were in the folder before an attempt, which are never its own.
KNOWN = "known.json"

_log = structlog.get_logger("cede.agent")


@dataclass(slots=True)
class Live:
    """An attempt that has a supervisor."""

    order: Order
    kept: Kept
    talk: Conversation | None = None
    started: bool = False
    deadline: float | None = -1.0  # as its supervisor knows it; below 0 if its agent does not know
    overdue: float = float("inf")  # when its supervisor counts as stuck
    rest_until: float = float("inf")  # when its last checkpoint is not waited for any more


class Attempts(Shelves):
    def __init__(
        self, settings: Settings, containment: Containment, clock: Callable[[], float]
    ) -> None:
        super().__init__(settings, clock)
        self._containment = containment
        self._live: dict[Key, Live] = {}
        self._launching: dict[Key, Future[Live | Event]] = {}
        self._deadlines: dict[Key, float | None] = {}  # set while they were being launched
        self._launched: queue.SimpleQueue[Key] = queue.SimpleQueue()
        self._template = Template()
        with suppress(OSError):  # a launch starts it, should the machine be too full now
            self._template.warm()
        self._starter = ThreadPoolExecutor(LAUNCHES, "starter")

    # Instructions of the machine

    def launch(self, order: Order, deadline: float | None, done: Callable[[], None]) -> None:
        """Begin to start an attempt, and call `done` when `poll` has the result. Launches
        overlap; any other call for an attempt waits for its own.
        """
        key = order.key
        launching = self._starter.submit(self._launch, order, deadline)
        self._launching[key] = launching

        def launched(_: object) -> None:
            self._launched.put(key)
            done()

        launching.add_done_callback(launched)

    def _settled(self, key: Key) -> Live | None:
        """Return the attempt, once its launch is over; None where it has no supervisor."""
        if key in self._launching:
            found = self._launching[key].result()
            if isinstance(found, Live):
                del self._launching[key]
                self._live[key] = found
                if key in self._deadlines:
                    self.set_deadline(key, self._deadlines.pop(key))
        return self._live.get(key)

    def _launch(self, order: Order, deadline: float | None) -> Live | Event:
        """Launch an attempt, in a thread of its own; return it with its supervisor, or why there
        is none."""
        key = order.key
        try:
            found = surroundings(order, self._settings, self._containment.limits)
            directory = self._home / key.directory
            if not (directory / places.SPEC).exists():
                launcher.prepare(self._home, found.spec, self._containment, deadline)
            else:
                # The previous agent came so far: its supervisor, should it come, finds the lock.
                with Kept(directory) as kept:
                    kept.set_deadline(deadline)  # the previous agent's would be over
            make_directories(found)
            if found.protocol:
                # K9: remove what earlier attempts did not finish; no process writes there now.
                shelf.clean(found.checkpoints, None, idle=True)
            talk = self._open_talk(order, fresh=True)
            if talk is not None:
                with places.Place(directory) as place:
                    place.write(KNOWN, sorted(talk.known), sync=True)
            crash.at("launch_before")
            self._template.launch(directory)
            crash.at("launch_after")
            return Live(order, Kept(directory), talk, deadline=deadline)
        except Refused as error:
            return LaunchFailed(key, str(error), refused=True)
        except (NotAllowed, Invalid, ImportError) as error:
            # ImportError: it is to be asked by gRPC, and this node has no library for that.
            return self._must_not_start(key, str(error))
        except (OSError, CedeError) as error:
            return self._not_launched(key, error)

    def _must_not_start(self, key: Key, why: str) -> Event:
        """Write why the work must not start into its output, where its submitter finds it, and
        report an end."""
        directory = self._home / key.directory
        with suppress(OSError):
            directory.mkdir(mode=0o711, exist_ok=True)
            (directory / "order.log").touch(mode=0o600)
            (directory / "stderr.log").write_text(f"cede: {why}\n", encoding="utf-8")
        return Ended(key, NOT_EXECUTED, "start_failed", why)

    def _not_launched(self, key: Key, error: Exception) -> Event:
        """Make certain that no supervisor came of a failed launch, and report the failure."""
        directory = self._home / key.directory
        if directory.is_dir():
            with suppress(OSError, CedeError):
                launcher.sweep(directory, supervisor_too=True)
        return LaunchFailed(key, f"cannot start work: {error}")

    def set_deadline(self, key: Key, deadline: float | None) -> None:
        """Tell the supervisor until when the attempt may run. Every heartbeat moves that a
        little; a move shorter than a step is told with a later one, and until then the
        supervisor's deadline is the earlier.
        """
        if key in self._launching and not self._launching[key].done():
            self._deadlines[key] = deadline
            return
        live = self._settled(key)
        if live is None or (deadline is None and live.deadline is None):
            return
        if deadline is not None and live.deadline is not None:
            step = min(DEADLINE_STEP, DEADLINE_PART * (deadline - self._clock()))
            if 0 <= deadline - live.deadline < step:
                return
        with _logged(key):
            live.kept.set_deadline(deadline)
            live.deadline = deadline

    def stop(self, key: Key, grace: float) -> None:
        if live := self._settled(key):
            live.overdue = min(live.overdue, self._clock() + grace + STUCK)
            with _logged(key):
                live.kept.stop(grace)

    def hint(self, key: Key, number: int, seconds_left: float, *, goes_on: bool) -> None:
        if (live := self._settled(key)) and live.talk is not None:
            live.talk.hint(number, seconds_left, goes_on=goes_on)

    def agree(self, key: Key, number: int, step: int) -> None:
        if (live := self._settled(key)) and live.talk is not None:
            live.talk.agree(number, step)

    def go_on(self, key: Key) -> None:
        if (live := self._settled(key)) and live.talk is not None:
            live.talk.go_on()

    def forget(self, key: Key) -> None:
        shutil.rmtree(self._home / key.directory, ignore_errors=True)

    def fence(self, key: Key) -> Ended | None:
        """Make certain that no supervisor of the attempt can come any more; one that came is
        killed.
        """
        self._settled(key)
        directory = self._home / key.directory
        if not directory.is_dir():
            return None
        record = self._sweep(directory.name)
        return None if record is None or record["started_at"] is None else _ended(key, record)

    # Events of supervisors and applications

    def poll(self, now: float) -> Iterator[Event]:
        yield from self.looked()
        while not self._launched.empty():
            key = self._launched.get()
            if key in self._launching and self._settled(key) is None:
                self._deadlines.pop(key, None)
                failed = self._launching.pop(key).result()
                assert not isinstance(failed, Live), failed
                yield failed
        unkept = self._unkept()
        for key, live in list(self._live.items()):
            if not live.started or now >= live.overdue or key in unkept:
                yield from self._look(key, live, now)
            if live.talk is not None:
                yield from (Heard(_report(live.order, each)) for each in live.talk.poll(now))

    def _unkept(self) -> set[Key]:
        """The attempts whose supervisor has ended; one call of the system asks for all of them."""
        keys: dict[int, Key] = {}
        found = set[Key]()
        poll = select.poll()  # select itself knows no descriptor above 1023
        for key, live in self._live.items():
            try:
                poll.register(live.kept, select.POLLIN)
            except Conflict:
                found.add(key)  # it had no supervisor when it was adopted
            else:
                keys[live.kept.fileno()] = key
        return found.union(keys[descriptor] for descriptor, _ in poll.poll(0))

    def _look(self, key: Key, live: Live, now: float) -> Iterator[Event]:
        status = live.kept.status()
        if status.state in (State.RUNNING, State.STARTING) and now >= live.overdue:
            live.overdue = now + STUCK
            _log.warning("supervisor is stuck", attempt=key.directory)
            record = self._sweep(key.directory)
        elif status.state in (State.LOST, State.UNSTARTED):
            record = self._sweep(key.directory)
        else:
            record = status.exit
        if not live.started and (status.started is not None):
            live.started = True
            yield Started(key)
        if record is not None:
            unread = False
            # The application's last answer may be the manifest that it saved before it ended.
            if live.talk is not None:
                # Asked first: nothing is missed.
                is_verifying = self._is_verifying(live, record, now)
                yield from (Heard(_report(live.order, each)) for each in live.talk.poll(now))
                if is_verifying:
                    return
                unread = live.talk.is_verifying
                live.talk.close()
                live.talk = None
            live.kept.close()
            del self._live[key]
            yield replace(_ended(key, record), unread=unread)

    def _is_verifying(self, live: Live, record: Mapping[str, Any], now: float) -> bool:
        """Whether to wait for a checkpoint that failed work may have left, which may be why it
        ended.

        Work that was told to stop is waited for only briefly, since its units are needed.
        """
        if live.talk is None or record["code"] == 0:
            return False
        live.rest_until = min(live.rest_until, now + REST_MOST)
        live.talk.look()
        return live.talk.is_verifying and not (live.kept.told_to_stop and now >= live.rest_until)

    def _sweep(self, name: str) -> dict[str, Any] | None:
        """Kill what is left of an attempt and return its exit record; None if it could not be
        killed."""
        try:
            return launcher.sweep(self._home / name, supervisor_too=True)
        except (OSError, Conflict) as error:
            _log.error("cannot sweep", attempt=name, why=str(error))
            return None

    # After a restart

    def adopt(self, orders: Collection[Order]) -> Mapping[Key, Found | Ended]:
        """Take over the orders of the journal; return the state of each. Living attempts are
        held from now on."""
        return {order.key: self._adopt(order) for order in orders}

    def _adopt(self, order: Order) -> Found | Ended:
        directory = self._home / order.key.directory
        if not (directory / places.SPEC).exists():
            return Found.NEVER
        kept = Kept(directory)
        status = kept.status()
        runs = status.state in (State.RUNNING, State.STARTING)
        # An attempt that ended while no agent ran may have left a checkpoint: its end waits for
        # that.
        if runs or (protocol_of(order) and status.state is not State.UNSTARTED):
            self._live[order.key] = Live(order, kept, self._open_talk(order, fresh=False))
            return Found.ALIVE
        kept.close()
        if status.state is State.UNSTARTED:
            return Found.NEVER
        return _ended(order.key, status.exit or launcher.sweep(directory, supervisor_too=True))

    def sweep_unexplained(self, known: Collection[Key]) -> Swept:
        """S15: kill what no journal entry explains, before the agent is ready. Its spec says
        which attempt it was; that has ended here and now, and is never started again.
        """
        names = {key.directory for key in known}
        swept = Swept()
        for name in sorted({each.name for each in self._home.iterdir()} - names):
            self._sweep_stranger(name, swept)
        groups = set(group_names(self._containment.means)) - names
        for name in sorted(groups - swept.survivors.keys()):
            self._sweep_group(name, swept)
        return swept

    def _sweep_stranger(self, name: str, swept: Swept) -> None:
        _log.warning("no journal entry explains this", attempt=name)
        directory = self._home / name
        try:
            with places.Place(directory) as place:
                spec, _, _ = place.read_spec()
            record = launcher.sweep(directory, supervisor_too=True)
        except (OSError, Conflict) as error:
            if isinstance(error, OSError) and error.errno in NO_SPACE:
                # It is dead; only the record of that could not be written.
                _log.error("cannot sweep", attempt=name, why=str(error))
            else:
                swept.survivors[name] = str(error)
            return
        if spec is None:
            shutil.rmtree(directory, ignore_errors=True)
            return
        fence = Fence(**spec["fence"])
        ended = _ended(Key(fence.allocation, fence.task), record)
        swept.reports.append(
            Report(
                ended.key, fence.attempt, Kind.ENDED, ended.exit_code, ended.cause, text=ended.text
            )
        )

    def _sweep_group(self, name: str, swept: Swept) -> None:
        group = open_group(self._containment.means, name, list, lambda: True)
        try:
            if not group.kill(timeout=launcher.SWEEP_TIMEOUT):
                swept.survivors[name] = f"{group.members()} do not die"
                return
        except OSError as error:
            swept.survivors[name] = f"cannot kill its group: {error}"
            return
        try:
            group.remove()
        except OSError as error:  # it is empty: the next start finds it again
            _log.warning("cannot remove a group", group=name, why=str(error))

    def _open_talk(self, order: Order, *, fresh: bool) -> Conversation | None:
        protocol = protocol_of(order)
        if not protocol:
            return None
        home = self._home / order.key.directory
        directory = checkpoint_directory(order, self._settings)

        def send(number: int) -> bool:
            with Kept(home) as kept:
                started = kept.status().started
            # Until its supervisor has reaped it, its process group is its own.
            if started is None or processes.start_time(started["pid"]) != started["pid_start"]:
                return False
            return signals.send(signals.group(started["pid"]), number)

        talk = Conversation(home / TALK, directory, protocol, send)
        talk.open(fresh=fresh, known=() if fresh else self._known(home, directory))
        return talk

    def _known(self, home: Path, directory: Path) -> list[str]:
        """Return the checkpoints that were in the folder before an attempt started. An agent
        that wrote no list of them was older than these lists: then the files' times tell.
        """
        with places.Place(home) as place:
            known: list[str] | None = place.read(KNOWN)
        if known is not None:
            return known
        with suppress(OSError):
            before = (home / places.SPEC).stat().st_mtime_ns
            ids = shelf.newest(directory)
            return [id for id in ids if (directory / (id + SUFFIX)).stat().st_mtime_ns < before]
        return []

    def _is_live(self, key: Key) -> bool:
        return key in self._live

    has_changed = has_news = False

    def news(self) -> wire.Json:
        return {}

    def told(self, said: wire.Json) -> None:
        """Do nothing: an agent reports no more than its attempts."""

    def close(self) -> None:
        """Let go of all attempts, which go on."""
        self._starter.shutdown(wait=True, cancel_futures=True)
        self._template.close()
        for live in self._live.values():
            if live.talk is not None:
                live.talk.close()
            live.kept.close()
        self._live.clear()
        self.close_shelves()


@contextmanager
def _logged(key: Key) -> Iterator[None]:
    """Log an error of telling a supervisor, such as a full disk; then the lease decides, or the
    sweep that follows a stop.
    """
    try:
        yield
    except OSError as error:
        _log.error("cannot tell a supervisor", attempt=key.directory, why=str(error))


def _ended(key: Key, record: Mapping[str, Any]) -> Ended:
    code, signal = record["code"], record["signal"]
    if signal is not None:
        code = SIGNAL_BASE + signal
    elif record["cause"] == "start_failed":
        code = NO_PROGRAM
    text = record["error"] or ("out of memory" if record["oom"] else "")
    return Ended(key, code, record["cause"], text)


def _report(order: Order, said: heard.Heard) -> Report:
    key, attempt = order.key, order.attempt
    match said:
        case heard.Answered():
            return Report(key, attempt, Kind.ANSWERED)
        case heard.Progress(_, fraction, estimate):
            done = "" if fraction is None else f"{fraction:.0%} saved"
            left = "" if estimate is None else f"{estimate:.0f} s left"
            return Report(key, attempt, Kind.PROGRESS, text=", ".join(filter(None, (done, left))))
        case heard.Deferral(_, _, seconds, why):
            return Report(key, attempt, Kind.DEFERRAL, seconds=seconds, text=why)
        case heard.Reach(number, step):
            return Report(key, attempt, Kind.REACH, hint=number, step=step)
        case heard.Saved(number, saved):
            answers = number or 0
            return Report(
                key, attempt, Kind.SAVED, checkpoint=saved.id, size=saved.size, hint=answers
            )
        case heard.SaveFailed(_, reason):
            return Report(key, attempt, Kind.SAVE_FAILED, text=reason)
