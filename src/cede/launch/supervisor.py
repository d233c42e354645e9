"""The supervisor: one small process that contains one attempt; a fork of the template
(`cede.launch.template`).

It depends on no other process: the one that launched it may die. It kills the work when told, when
the lease is over and when the walltime is; and when the work's first process ends, it kills what
that left behind. The exit record is written when nothing runs any more, and before any cleaning up.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
from typing import Any

from cede.launch import crash, places, processes
from cede.launch.child import Child
from cede.launch.clock import boottime, time_of_day
from cede.launch.contain import Group, open_group
from cede.launch.course import ASK, KILL, NOTHING_WANTED, WAIT, Control, Course
from cede.launch.logs import STREAMS, Log
from cede.launch.order import Order
from cede.launch.places import Place
from cede.launch.turns import CHUNK, Turns

# control.json is read at least this often, with or without a wake-up.
LOOK = 0.2
# How often to check whether what the work left behind is gone: units wait for it.
LOOK_AT_LEFTOVERS = 0.02
# Reads from one stream before the next look, so that a flood does not delay a kill.
READS_PER_LOOK = 16
# Reads of what may still be in a pipe when all its writers are dead; more is another process's.
READS_AT_END = 64

# Its answers to the launching process. That it has started, or could not, follows TOOK_OVER.
TOOK_OVER, KEPT_ALREADY, FAILED, STARTED = 0, 2, 1, 3


class Supervisor:
    """The supervisor of one attempt. `tell` is the pipe to the process that launched it; `child`
    waits to be told what to become.
    """

    def __init__(self, place: Place, tell: int, child: Child) -> None:
        self.place = place
        self.tell = tell
        self.child = child
        self.spec, self.means, wanted = place.read_spec()
        fence = self.spec["fence"]
        name = places.attempt_name(fence["allocation"], fence["task"])
        self.group: Group = open_group(
            self.means, name, lambda: processes.descendants(os.getpid()), self._childless
        )
        self.status: int | None = None
        self.noted: dict[str, Any] | None = None  # the content of ended.json
        self.failure: tuple[str, str] | None = None
        self.started_at: float | None = None
        self.course = Course(None, 0.0)
        self.control: Control = wanted or NOTHING_WANTED
        self.looked_at = 0.0
        self.asking = False
        self.wake = place.open(places.WAKE, os.O_RDWR | os.O_NONBLOCK)
        self.order = Order(place, self.spec["log_bytes"])
        self.logs = {stream: Log(place, stream, self.spec["log_bytes"]) for stream in STREAMS}

    def run(self) -> None:
        try:
            try:
                turns = self._start()
            finally:
                self._say(STARTED)
                os.close(self.tell)
            if turns is not None:
                self._watch(turns)
        except Exception as error:
            # An error here or of the machine: nothing may stay behind, and the agent must know.
            self.failure = ("infrastructure", f"the supervisor failed: {error!r}")
            self._kill()
        self._record()
        self.group.remove()

    def _say(self, answer: int) -> None:
        with contextlib.suppress(BrokenPipeError):  # the agent is gone, or did not wait for it
            os.write(self.tell, bytes([answer]))

    def _start(self) -> Turns | None:
        """Let the work begin, unless this machine cannot contain it."""
        child = self.child
        try:
            crash.at("group_before")
            self.group.make(self.spec["limits"])
            crash.at("group_after")
        except OSError as error:
            child.discard()
            self.failure = ("infrastructure", str(error))
            return None
        child.prepare(self.spec, self.group.directories())
        turns = Turns(child.output)  # before it can print
        self.started_at = boottime()
        crash.at("started_before")
        self.place.write(
            places.STARTED,
            {
                "keeper": os.getpid(),
                "pid": child.pid,
                "pid_start": child.start,
                "group": self.group.directories(),
                "contained_by": self.means["kill"],
                "started_at": self.started_at,
            },
            durable=True,
        )
        crash.at("started_after")
        walltime = self.spec["walltime"]
        ends = None if walltime is None else self.started_at + walltime
        self.course = Course(ends, self.spec["walltime_grace"])
        self._look()
        order = self._act()
        if order == WAIT:
            child.go()
        elif order == ASK:
            # Told to stop before it began, so it does not begin.
            os.kill(child.pid, signal.SIGKILL)
        return turns

    def _watch(self, turns: Turns) -> None:
        """Run turn after turn until the work has ended and the group is empty."""
        child = self.child
        pidfd = os.pidfd_open(child.pid)
        poll = select.poll()
        for each in (self.wake, pidfd, child.failure, *child.output.values()):
            poll.register(each, select.POLLIN)
        while True:
            self._reap()
            if self.status is not None and self.group.empty():
                break
            self._look()
            killing = self._act() == KILL
            ready = dict(poll.poll(1 if killing else self._pause()))
            if self.wake in ready:
                os.read(self.wake, CHUNK)
                self.looked_at = 0.0
            if child.failure in ready:
                poll.unregister(child.failure)
                self.failure = self.failure or child.why_not()
            if pidfd in ready:
                poll.unregister(pidfd)
            before = set(turns.open.values())
            if before & ready.keys():
                self._pump(turns, READS_PER_LOOK)
                for descriptor in before - set(turns.open.values()):
                    poll.unregister(descriptor)
        self._pump(turns, READS_AT_END)

    def _pause(self) -> int:
        """Milliseconds until the next decision; rounded up, because the last pause would spin
        otherwise.
        """
        now = boottime()
        at_least = LOOK if self.status is None else LOOK_AT_LEFTOVERS
        return int((self.course.wakes_at(now, self.control, at_least) - now) * 1000) + 1

    def _look(self) -> None:
        """Read the agent's wishes; an unreadable file changes nothing."""
        now = boottime()
        if now < self.looked_at + LOOK:
            return
        self.looked_at = now
        with contextlib.suppress(OSError, ValueError):
            self.control = self.place.read(places.CONTROL) or self.control

    def _act(self) -> str:
        order = self.course.next(boottime(), self.control, self.status is None)
        self.asking = self.asking or order == ASK
        if order == KILL:
            crash.at("kill_before")
            self._kill(timeout=LOOK)
            crash.at("kill_after")
        elif self.asking and self.child.became_work:
            # Not before: the child that becomes the work ignores what its supervisor ignores.
            self.asking = False
            self.group.signal(signal.SIGTERM)
            # A stopped process obeys only when it goes on.
            self.group.signal(signal.SIGCONT)
        return order

    def _kill(self, timeout: float | None = None) -> None:
        if self.status is None:
            # Also where it has not entered the group yet.
            os.kill(self.child.pid, signal.SIGKILL)
        self.group.kill(timeout=timeout)

    def _pump(self, turns: Turns, most: int) -> None:
        """Move output to the logs, and record its order."""
        for _ in range(most):
            pieces = list(turns.read())
            if not pieces:
                return
            self.order.begin()
            for stream in dict(pieces):
                self.logs[stream].write(b"".join(data for each, data in pieces if each == stream))
            positions = {stream: log.position for stream, log in self.logs.items()}
            # Afterwards: a record never covers missing bytes.
            lengths = [(stream, len(data)) for stream, data in pieces]
            self.order.note(lengths, positions, time_of_day())

    def _reap(self) -> None:
        """Collect every child that ended: the work, and adopted orphans."""
        while True:
            try:
                found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if found is None:
                return
            if found.si_pid == self.child.pid:
                # K11: written before the kernel forgets it, so that no death of the supervisor
                # loses it.
                self._note(found)
            os.waitpid(found.si_pid, 0)

    def _note(self, found: os.waitid_result) -> None:
        if not self.child.became_work:
            self.failure = self.failure or self.child.why_not()
        exited = found.si_code == os.CLD_EXITED
        self.status = found.si_status if exited else -found.si_status
        record = self._exit_record()
        # The disk may be full; exit.json is tried all the same.
        with contextlib.suppress(OSError):
            self.place.write(places.ENDED, record)
            self.noted = record

    def _childless(self) -> bool:
        """Whether no process is below this one: orphans become its children, so without children it
        is certain.
        """
        self._reap()
        try:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return True
        return False

    def _exit_record(self) -> dict[str, Any]:
        failed, error = self.failure or (None, None)
        status = None if failed else self.status
        return {
            "cause": failed or self.course.cause,
            "code": status if status is not None and status >= 0 else None,
            "signal": -status if status is not None and status < 0 else None,
            "oom": self.group.oom_kills() > 0,
            "error": error,
            "started_at": self.started_at,
            "ended_at": boottime(),
        }

    def _record(self) -> None:
        crash.at("exit_before")
        record, noted = self._exit_record(), self.noted
        if noted is not None and noted == {**record, "ended_at": noted["ended_at"]}:
            self.place.create_from(places.ENDED, places.EXIT, lambda: crash.at("exit_written"))
        else:
            self.place.create(places.EXIT, record, lambda: crash.at("exit_written"))
        crash.at("exit_after")


def supervise(directory: str, tell: int) -> None:
    """Become the supervisor of an attempt, report on the pipe `tell` whether it took over, and stay
    until the attempt is over. The caller has forked, leads a session of its own and ignores polite
    signals.
    """
    child = Child()  # before anything else: what was touched before a fork is copied again after it
    processes.prctl(processes.PR_SET_CHILD_SUBREAPER, 1)
    processes.close_to_account()
    place = Place(directory)
    if not place.lock() or place.exists(places.STARTED) or place.exists(places.EXIT):
        place.close()
        child.discard()
        os.write(tell, bytes([KEPT_ALREADY]))
        return
    supervisor = Supervisor(place, tell, child)
    os.write(tell, bytes([TOOK_OVER]))
    supervisor.run()


def main(arguments: list[str]) -> int:
    """The entry point for agents that were started before the template existed, also those that
    still run when their package is replaced by this one.
    """
    for each in os.listdir("/proc/self/fd"):
        # One of them belongs to this very listing.
        with contextlib.suppress(OSError):
            if int(each) > 2:
                os.close(int(each))
    told, tell = os.pipe()
    if os.fork():
        # The caller waits for this process only, and has no child left that it must reap.
        os.close(tell)
        answer = os.read(told, 1)
        os._exit(answer[0] if answer else FAILED)
    os.close(told)
    os.setsid()
    processes.keep_signals_out()
    supervise(arguments[0], tell)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
