"""Two teams share 8 counted GPUs: red borrows what is blue's, and gives it back when blue asks.

Run it against any server, with an operator's token:  python examples/two_teams.py
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from cede import Client, Conflict

POOL = "two-teams"
PIECES = 60


def prepare(client: Client) -> None:
    """A pool and two policies; made once, found again later."""
    try:
        client.pools.create(POOL, {"gpu": 8}, settings={"grace": 5})
    except Conflict:
        return
    for team in ("red", "blue"):
        client.policies.attach(
            POOL,
            team,
            component_type="team",
            priority=10,
            reserved={"gpu": 4},
            limit={"gpu": 8},
        )


def red(client: Client, say: Callable[[str], None], holds: threading.Event) -> None:
    """Work in small pieces, looking up between them; comes back after a preemption."""
    held = client.allocation(
        gpu=8, pool=POOL, component="red", component_type="team", lease=6, preemptions="free"
    )
    done = 0
    while not held.ended:
        with held:
            say(f"red holds 8, attempt {held.attempt}")
            holds.set()
            while done < PIECES and not held.should_stop:
                held.preempted.wait(0.1)  # a piece of work
                done += 1
            if done < PIECES:
                say(f"red was told to stop after {done} of {PIECES} pieces, and saved them")
    say("red is done")


def blue(client: Client, say: Callable[[str], None]) -> None:
    """Blue asks for its reserve: red must go, whatever its priority."""
    with client.allocation(gpu=4, pool=POOL, component="blue", component_type="team") as held:
        say(f"blue holds 4 in {held.pool}")
        say("blue is done")


def main(say: Callable[[str], None] = print) -> None:
    with Client() as client:
        prepare(client)
        holds = threading.Event()
        work = threading.Thread(target=red, args=(client, say, holds))
        work.start()
        holds.wait()
        blue(client, say)
        work.join()


if __name__ == "__main__":
    main()
