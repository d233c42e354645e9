"""A small world around the agent's machine: a server, a network, a disk and supervisors, all of
which may fail at any step; and what must be true of it at every step and once it is healed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from cede.agent.machine import Machine
from cede.agent.values import (
    Do,
    Ended,
    Entry,
    Event,
    Forget,
    Found,
    GoOn,
    Hint,
    Instruction,
    Journal,
    JournalFailed,
    Journalled,
    KeepCheckpoint,
    Key,
    Kind,
    Launch,
    LaunchFailed,
    Look,
    Looked,
    Order,
    Orders,
    Over,
    Remember,
    Removed,
    Report,
    Restarted,
    Send,
    SetDeadline,
    Started,
    Stop,
    Taken,
    Tick,
    key_of,
)

LEASE = 6.0
RETAINED = 3


@dataclass
class Supervisor:
    order: Order
    deadline: float | None
    state: str = "new"  # new, running, ended
    stopping: bool = False
    exit_code: int = 0
    hint: int = 0  # the conversation, which outlives the agent: what was asked last
    goes_on: bool = False
    withdrawn: bool = False

    @property
    def alive(self) -> bool:
        return self.state != "ended"


class Crash(Exception):
    """The agent died here."""


class World:
    def __init__(self, kind: type[Machine] = Machine) -> None:
        self.kind = kind
        self.now = 1.0
        self.machine: Machine | None = kind(retained=RETAINED)
        # The server
        self.epoch, self.version = 1, 1
        self.desired: dict[Key, Order] = {}
        self.heard: dict[Key, set[Kind]] = {}
        self.count = self.hints = 0
        self.on_the_way: list[Orders] = []
        self.late: list[Report] = []
        self.undecided: set[Key] = set()  # nobody has said where it goes on
        self.refused: set[Key] = set()  # as the agent said, whether or not it was heard
        # The node
        self.disk: list[Entry] = []
        self.epoch_on_disk = 0
        self.disk_is_full = False
        self.unrecorded: set[Key] = set()  # what could not be written down
        self.supervisors: dict[Key, Supervisor] = {}
        self.removed: set[Key] = set()
        self.launch_fails = ""
        self.crash_in: int | None = None
        # What the agent was told, to judge it by
        self.epoch_delivered = 0
        self.lease_end = 0.0

    # The server

    def assign(self, device: str, *, keeps: bool = False, looks: bool = False) -> None:
        if any(device in order.devices for order in self.desired.values()):
            return  # as far as the server knows; on the node an older task may still have it
        self.count += 1
        key = Key(f"r{self.count}.1", 0)
        self.desired[key] = Order(
            *(key, 1, f"r{self.count}", Do.RUN, frozenset({device})),
            keeps_in_silence=keeps,
            looks=looks,
        )
        if looks:
            self.undecided.add(key)
        self.version += 1

    def change(self, key: Key, do: Do, *, asks: bool = False) -> None:
        """`asks`: to save itself and go on, if it may run."""
        self.hints += 1
        hint = self.hints if do is Do.HINT or (asks and do is Do.RUN) else 0
        self.desired[key] = replace(self.desired[key], do=do, hint=hint, seconds_left=60.0)
        self.version += 1

    def drop(self, key: Key) -> None:
        del self.desired[key]
        self.version += 1

    def heartbeat(self, *, request_lost: bool = False) -> None:
        """The agent calls; the answer is on its way, whether or not it ever arrives."""
        assert self.machine is not None
        sent_at, reports = self.now, dict(self.machine.outbox)
        self.refused |= {each.key for each in reports.values() if each.never_started}
        if request_lost:
            self.late += reports.values()  # or only late: it may arrive after its sender died
            return
        for report in reports.values():
            self._take(report)
        self.on_the_way.append(
            Orders(
                self.epoch,
                self.version,
                tuple(self.desired.values()),
                sent_at,
                LEASE,
                frozenset(reports),
            )
        )

    def late_arrives(self) -> None:
        for report in self.late:
            self._take(report)
        self.late.clear()

    def _take(self, report: Report) -> None:
        heard = self.heard.setdefault(report.key, set())
        heard.add(Kind.REFUSED if report.never_started else report.kind)
        assert not {Kind.REFUSED, Kind.STARTED} <= heard, f"{report.key}: started and refused"
        if report.never_started:
            assert report.key not in self.supervisors, (
                f"{report.key} was refused and has a supervisor"
            )
        if report.kind in (Kind.ENDED, Kind.REFUSED) and report.key in self.desired:
            self.drop(report.key)
        if report.kind is Kind.FOUND and report.key in self.desired:
            # The server decides the resume point, and says so with the next order.
            self.desired[report.key] = replace(self.desired[report.key], looks=False)
            self.undecided.discard(report.key)
            self.version += 1

    # The network

    def deliver(self, at: int, *, again: bool = False) -> None:
        answer = self.on_the_way[at] if again else self.on_the_way.pop(at)
        if answer.epoch >= self.epoch_delivered:
            self.epoch_delivered = answer.epoch
            self.lease_end = max(self.lease_end, answer.sent_at + answer.lease)
        self.tell(answer)

    # The agent

    def tell(self, event: Event) -> None:
        """One event, and all that follows from it, unless the agent dies on the way."""
        events = [event]
        try:
            while events:
                assert self.machine is not None
                for instruction in self.machine.handle(events.pop(0), self.now):
                    self._maybe_die()
                    if (result := self._do(instruction)) is not None:
                        events.append(result)
                self._maybe_die()
        except Crash:
            self.die()

    def die(self) -> None:
        self.machine = None
        self.on_the_way.clear()  # nobody reads the answers of a dead process
        # The one gap: a refusal for want of space that arrives after its sender died.
        self.late = [each for each in self.late if each.key not in self.unrecorded]

    def _maybe_die(self) -> None:
        if self.crash_in is not None:
            self.crash_in -= 1
            if self.crash_in < 0:
                self.crash_in = None
                raise Crash

    def _do(self, instruction: Instruction) -> Event | None:
        match instruction:
            case Journal(entry):
                if self.disk_is_full:
                    self.unrecorded.add(key_of(entry))
                    return JournalFailed(entry, "no space")
                self.disk.append(entry)
                return Journalled(entry)
            case Look(order):
                assert order.looks and order.key not in self.supervisors, "looks for what it has"
                return Looked(order.key, ("c1",))
            case Launch():
                return self._launch(instruction)
            case Remember(epoch):
                self.epoch_on_disk = epoch
            case SetDeadline(key, deadline):
                assert deadline is None or deadline <= self.lease_end
                self.supervisors[key].deadline = deadline
            case Stop(key):
                self.supervisors[key].stopping = True
            case Forget(key):
                assert key not in self.supervisors or not self.supervisors[key].alive, (
                    f"{key} forgotten"
                )
                self.removed.add(key)
            case Hint() | GoOn():
                self._ask(instruction)
            case KeepCheckpoint() | Send():
                pass
        return None

    def _ask(self, instruction: Hint | GoOn) -> None:
        supervisor = self.supervisors[instruction.key]
        assert supervisor.state != "new"
        if isinstance(instruction, GoOn):
            supervisor.withdrawn = True
            return
        assert instruction.number >= supervisor.hint, "asks for what was asked before"
        if instruction.number > supervisor.hint:  # withdrawn is for good
            supervisor.withdrawn = False
        supervisor.hint, supervisor.goes_on = instruction.number, instruction.goes_on

    def _launch(self, launch: Launch) -> Event | None:
        key, devices = launch.order.key, launch.order.devices
        assert any(isinstance(e, Taken) and e.order.key == key for e in self.disk), "not on disk"
        assert not any(isinstance(e, Over) and e.report.key == key for e in self.disk), "was over"
        assert key not in self.supervisors, f"{key} started twice"
        assert key not in self.refused - self.unrecorded, f"{key} was refused"
        assert self.now < self.lease_end, "launched without a lease"
        assert key not in self.undecided, f"{key} started before anybody said where it goes on"
        for other in self.supervisors.values():
            assert not (other.alive and other.order.devices & devices), "one device, two tasks"
        if self.launch_fails:
            refused, self.launch_fails = self.launch_fails == "refused", ""
            return LaunchFailed(key, "no memory", refused)
        self.supervisors[key] = Supervisor(launch.order, launch.deadline)
        return None

    def restart(self) -> None:
        """A new agent on the same disk; it looks at the directories before it says a word."""
        found: dict[Key, Found | Ended] = {}
        for entry in self.disk:
            if isinstance(entry, Taken):
                found[entry.order.key] = self._look(entry.order.key)
        self.machine = self.kind(retained=RETAINED)
        self.tell(Restarted(tuple(self.disk), found, self.epoch_on_disk))
        for key, supervisor in list(self.supervisors.items()):
            if supervisor.state == "running" and self.machine is not None:
                self.tell(Started(key))

    def _look(self, key: Key) -> Found | Ended:
        supervisor = self.supervisors.get(key)
        if supervisor is None:
            return Found.NEVER
        return Found.ALIVE if supervisor.alive else Ended(key, supervisor.exit_code)

    def compact(self) -> None:
        assert self.machine is not None
        self.disk = list(self.machine.entries())

    # The node

    def supervisor_starts(self, key: Key) -> None:
        self.supervisors[key].state = "running"
        self.tell_if_alive(Started(key))

    def supervisor_ends(self, key: Key) -> None:
        self.supervisors[key].state = "ended"
        self.tell_if_alive(Ended(key, self.supervisors[key].exit_code))

    def tell_if_alive(self, event: Event) -> None:
        if self.machine is not None:
            self.tell(event)

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        for key, supervisor in list(self.supervisors.items()):
            if (
                supervisor.alive
                and supervisor.deadline is not None
                and self.now >= supervisor.deadline
            ):
                self.supervisor_ends(key)
        self.tell_if_alive(Tick())

    # What must be true

    def check(self) -> None:
        for key, supervisor in self.supervisors.items():
            if supervisor.alive and not supervisor.order.keeps_in_silence:
                assert supervisor.deadline is not None and self.now < self.lease_end, (
                    f"{key} runs on without a lease"
                )
        if self.machine is not None:
            assert self.machine.epoch >= self.epoch_on_disk, "obeys an older writer"

    def heal_and_check(self) -> None:
        """With nothing failing any more everything comes to what the server wants."""
        self.disk_is_full, self.launch_fails, self.crash_in = False, "", None
        self.on_the_way.clear()
        if self.machine is None:
            self.restart()
        for _ in range(8):
            for key, supervisor in list(self.supervisors.items()):
                if supervisor.state == "new":
                    self.supervisor_starts(key)
                elif supervisor.alive and supervisor.stopping:
                    self.supervisor_ends(key)
            self.heartbeat()
            self.deliver(0)
            self.pass_time(0.1)
        assert self.machine is not None
        assert not self.machine.outbox, self.machine.outbox
        running = {key for key, supervisor in self.supervisors.items() if supervisor.alive}
        assert running == set(self.desired), f"runs {running}, wanted {set(self.desired)}"
        assert set(self.machine.jobs) == running, self.machine.jobs
        self._check_hints()
        self.compact()
        retained = {key_of(e) for e in self.disk} - {
            key_of(e) for e in self.disk if isinstance(e, Removed)
        }
        assert len(retained - running) <= RETAINED, "remembers without end"

    def _check_hints(self) -> None:
        """What is asked of the work is what the server asks."""
        for key, order in self.desired.items():
            supervisor = self.supervisors[key]
            stands = (
                (supervisor.hint, supervisor.goes_on)
                if supervisor.hint and not supervisor.withdrawn
                else None
            )
            wanted = (order.hint, order.do is Do.RUN) if order.hint else None
            assert stands == wanted, f"{key} is asked {stands}, not {wanted}"
