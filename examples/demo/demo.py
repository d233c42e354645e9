"""Three nodes, two teams: a gang over two nodes, and training that is preempted and goes on.

    make demo

Starts a server and three agents on this machine, with GPUs that are only pretended, types the
commands that a user would type, and says what happens while it happens. Afterwards nothing is left.

A number says how many seconds a training rests after each step: more than 0.05 on a machine that is
so busy that the trainings are done before somebody comes to preempt them.
"""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

from machines import CEDE, GPUS, Machines

from cede import CedeClientError, Client

NODES = ("north", "east", "south")
POOL = "farm"
TRAIN = Path(__file__).parents[1] / "training" / "train.py"
PAUSE = sys.argv[1] if len(sys.argv) > 1 else "0.05"
TRAINING = (sys.executable, str(TRAIN), "--steps", "160", "--every", "80", "--pause", PAUSE)
GANG = "echo task $CEDE_TASK of $CEDE_TASKS is on $CEDE_NODE and has the GPUs $CUDA_VISIBLE_DEVICES"

# What an event means, in plain words.
WORDS = {
    "granted": "{name} gets its GPUs, attempt {attempt}",
    "started": "{name} runs",
    "preempting": "{name} must make room ({reason[code]}) and is asked to save itself",
    "earmarked": "{name} waits for what it was promised; nobody else can have it",
    "checkpoint_saved": "{name} has saved itself: checkpoint {checkpoint}, verified",
    "suspended": "{name} is suspended, and will go on from there",
    "released": "{name} is done",
    "failed": "{name} failed",
}


def say(text: str) -> None:
    print(text, flush=True)


def type_in(*arguments: str) -> str:
    """Type one command, as a user would; its output."""
    shown = [Path(each).name if each == sys.executable else each for each in arguments]
    say(f"\n$ cede {shlex.join(shown)}")
    done = subprocess.run([CEDE, *arguments], check=True, capture_output=True, text=True)
    return done.stdout.strip()


class Narrator:
    """Says what happens to requests, while it happens."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._seen = 0
        self._names: dict[str, str] = {}
        self._telling = threading.Lock()
        threading.Thread(target=self._watch, daemon=True).start()

    def catch_up(self) -> None:
        """Say everything that has happened until now."""
        with self._telling:
            for event in self._client.events(after=self._seen):
                self._seen = event["index"]
                if event["kind"] in WORDS and event["request_id"]:
                    words = {**event["data"], "name": self._name(event["request_id"])}
                    say("  " + WORDS[event["kind"]].format(**words))

    def _watch(self) -> None:
        with suppress(CedeClientError):  # the server ends before we do
            while True:
                self.catch_up()
                time.sleep(0.1)

    def _name(self, request: str) -> str:
        if request not in self._names:
            self._names[request] = self._client.requests.get(request)["labels"]["name"]
        return self._names[request]


def begin(machines: Machines) -> None:
    say(f"A server, and three agents on loopback. Each pretends to have {GPUS} GPUs.")
    type_in("pool", "create", POOL, "--nodes", "site=demo", "--settings", "grace: 5")
    join = type_in("token", "create", "nodes", "--role", "join", "--uses", str(len(NODES)))
    for name in NODES:
        say(f"\n$ CEDE_JOIN=… cede agent --name {name} --amount gpu={GPUS} --label site=demo …")
        machines.start_agent(name, join)
    machines.until_ready(len(NODES))
    say(type_in("node", "list"))
    say("\nBlue is entitled to 8 of the 12 GPUs. Red is not, but may borrow all of them.")
    team = ("--component-type", "team", "--priority", "10", "--limit", "gpu: 12")
    type_in("policy", "attach", POOL, "red", *team)
    type_in("policy", "attach", POOL, "blue", *team, "--reserved", "gpu: 8")


def submit(team: str, name: str, *rest: str) -> str:
    who = ("--pool", POOL, "--component", team, "-t", "team", "--name", name)
    return type_in("submit", *who, *rest)


def until_allocated(client: Client, requests: list[str]) -> None:
    def runs(request: str) -> bool:
        found = client.requests.get(request)["allocation"]
        return bool(found and found["started_at"] is not None)

    while not all(map(runs, requests)):
        time.sleep(0.05)


def wait(*requests: str) -> None:
    subprocess.run([CEDE, "wait", "--quiet", *requests], check=True)


def gang(narrator: Narrator) -> None:
    say("\n--- A gang: two tasks, each with a whole node, both or none ---")
    request = submit("red", "the gang", "--nodes", "2", "--gpu", "4", "--", "sh", "-c", GANG)
    wait(request)
    narrator.catch_up()
    for task in ("0", "1"):
        say(type_in("logs", request, "--task", task))


def preemption(narrator: Narrator, client: Client) -> None:
    say("\n--- Red trains the same network on each node; then blue wants its 8 GPUs back ---")
    own = ("--gpu", "4", "--checkpoint", "auto", "--")
    red = [submit("red", f"training {n}", *own, *TRAINING) for n in (1, 2, 3)]
    until_allocated(client, red)
    blue = submit("blue", "the blue gang", "--nodes", "2", "--gpu", "4", "--", "sleep", "1")
    wait(blue, *red)
    narrator.catch_up()
    results = [type_in("logs", each).splitlines() for each in red]
    for n, (each, printed) in enumerate(zip(red, results, strict=True), 1):
        times = client.requests.get(each)["preempted_count"]
        say(f"  training {n}: preempted {times} times; {printed[0]}; {printed[-2][:20]}…")
    same = len({tuple(printed[-2:]) for printed in results}) == 1
    say("\nAll three have the same weights to the last bit." if same else "\nThe results differ!")
    if not same:
        raise SystemExit(1)


def main() -> None:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with Machines() as machines:
            say(f"(what the machines say is in {machines.home} as long as this runs)")
            client = machines.client
            begin(machines)
            narrator = Narrator(client)
            gang(narrator)
            preemption(narrator, client)
    except KeyboardInterrupt:
        say("\nInterrupted. Everything that was started is gone.")
        raise SystemExit(130) from None
    say("Everything that was started is gone.")


if __name__ == "__main__":
    main()
