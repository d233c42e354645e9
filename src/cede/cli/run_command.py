"""`cede run … -- COMMAND`: waits, runs, renews, stops when told to, comes back, and exits as the
command did."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from cede.cli import exit_codes
from cede.cli.context import client_of
from cede.cli.demand import demand_options, stop_policy_options
from cede.cli.printing import say
from cede.cli.submission import submission_of
from cede.cli.values import Duration
from cede.cli.waiting_line import WaitingLine

if TYPE_CHECKING:
    from cede.client.client import Client
    from cede.client.runner import Runner

FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@click.command("run", context_settings={"ignore_unknown_options": False})
@demand_options
@stop_policy_options
@click.option(
    "--checkpoint-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where checkpoints go, by request; ~/.local/state/cede/checkpoints unless given.",
)
@click.option("--wait-timeout", type=Duration(), help="How long to wait for a grant, such as 2h.")
@click.option("-q", "--quiet", is_flag=True, help="Say nothing but errors.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, required=True)
@click.pass_context
def run(
    ctx: click.Context,
    /,
    command: tuple[str, ...],
    quiet: bool,
    wait_timeout: float | None,
    checkpoint_dir: Path | None,
    **given: Any,
) -> None:
    """Run COMMAND when its units are granted; write -- before it.

    The exit code is the command's own, 128 + n when signal n ended it. When the units are needed
    elsewhere the command gets SIGTERM, the pool's grace, and SIGKILL; then it waits and runs again.
    With --checkpoint it is asked to save itself first, and goes on from there.

    In a pool of nodes it runs on the node that was granted: here if that is this machine, else by
    the agent there, with what it prints shown here.
    """
    from cede.client.child import command as program
    from cede.client.interruptions import Interrupted
    from cede.client.runner import HandedOver, Runner, child_environment

    body = submission_of(**given)  # mistakes in the options need no server
    client = client_of(ctx)
    with WaitingLine(quiet=quiet) as line:
        runner = Runner(
            client,
            body,
            on_wait=line.waits,
            notify=line.happened,
            wait_timeout=wait_timeout,
            # The place in the queue is worth its cost only where a person watches.
            whole_story=sys.stderr.isatty(),
            checkpoint_dir=checkpoint_dir,
            work=lambda: _work(command),
        )
        _pass_signals_to(runner)
        try:
            ended = runner.run(lambda facts: program(command, child_environment(facts)))
        except Interrupted as error:
            sys.exit(exit_codes.SIGNAL_BASE + error.number)
    if isinstance(ended, HandedOver):
        sys.exit(_follow(client, ended.request, quiet))
    sys.exit(exit_codes.of_command(ended.exit_code))


def _work(command: tuple[str, ...]) -> dict[str, Any]:
    """Return the command for the agent of another machine, as `cede submit` would send it."""
    from cede.cli.submission import environment_of

    env = environment_of((), os.environ)
    return {"argv": list(command), "env": env, "directory": str(Path().absolute())}


def _follow(client: Client, request: dict[str, Any], quiet: bool) -> int:
    """Show what the command prints there until it has ended; return its exit code.

    A signal stops it: SIGTERM, the pool's grace, SIGKILL. A second one leaves that to its node.
    """
    import threading

    from cede.cli.work_commands import wait_for
    from cede.client.errors import CedeClientError

    asked: list[int] = []

    def stop() -> None:
        with suppress(CedeClientError):  # it has ended, or no server answers: then ask again
            client.requests.cancel(request["id"])

    def handler(number: int, _: FrameType | None) -> None:
        if asked:
            os._exit(exit_codes.SIGNAL_BASE + number)
        asked.append(number)
        threading.Thread(target=stop, daemon=True).start()

    for number in FORWARDED:
        signal.signal(number, handler)
    if not quiet and sys.stdin.isatty():
        say("cede: it runs on another machine and cannot read from this terminal", err=True)
    code = wait_for(client, [request["id"]], follow=True, quiet=quiet)
    if asked and code == exit_codes.CANCELLED:
        return exit_codes.SIGNAL_BASE + asked[0]
    return code


def _pass_signals_to(runner: Runner) -> None:
    from cede.client import clock
    from cede.client.interruptions import AGAIN_WITHIN

    given = runner.interruptions

    def handler(number: int, _: FrameType | None) -> None:
        # Cancelling may hang in a call; a later signal, not of the same key press, ends this
        # process.
        if clock.now() >= given.cancelled_at + AGAIN_WITHIN:
            os._exit(exit_codes.SIGNAL_BASE + number)
        runner.interrupt(number)

    for number in FORWARDED:
        signal.signal(number, handler)
