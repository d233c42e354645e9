"""`cede`: the group of all commands, and the one place where errors become one line and an exit
code.

Commands are imported when they are called. `cede --help` knows their names and summaries from the
table below and imports none of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import click

from cede import __version__
from cede.cli import exit_codes

# name: (its module and function, its line in `cede --help`)
COMMANDS: dict[str, tuple[str, str]] = {
    "up": ("server_command:up", "Start a server on this machine."),
    "server": ("server_command:up", "The same as up."),
    "backup": ("server_command:backup", "Copy a server's database while it runs."),
    "restore": ("server_command:restore", "Put a copy in the place of a server's database."),
    "bridge": ("bridge_command:bridge", "Stand for the nodes of a cluster that exists already."),
    "agent": ("agent_command:agent", "Make this machine a node and run what is put on it."),
    "login": ("login_command:login", "Log in to a server, and use it from now on."),
    "logout": ("login_command:logout", "Forget a server and the token for it."),
    "use": ("login_command:use", "Choose the server to use, or list those you are logged in to."),
    "status": (
        "status_command:status",
        "Every pool, and what each team has of it; as `cede` alone.",
    ),
    "top": ("status_command:top", "What runs, the largest use first."),
    "submit": ("submit_command:submit", "Let a node run a command when its units are granted."),
    "logs": ("work_commands:logs", "What submitted work printed; -f to follow."),
    "wait": ("work_commands:wait", "Wait until submitted work has ended."),
    "cancel": ("work_commands:cancel", "Cancel requests."),
    "limit": ("requests:limit", "Change how much a request may hold."),
    "run": ("run_command:run", "Run a command when its units are granted."),
    "why": ("look:why", "Why a request waits, or how it ended."),
    "shares": ("shares_command:shares", "What each policy and request of a pool uses and is due."),
    "plan": ("plan_command:plan", "What the engine would do from a snapshot file."),
    "snapshot": ("look:snapshot", "Print the whole living state."),
    "events": ("look:events", "What happened; -f to follow."),
    "page": ("page_command:page", "Print a link that opens the page."),
    "whoami": ("look:whoami", "Show the name, role and subjects of the token."),
    "apply": ("apply_command:apply", "Make pools, policies and tenants as files declare them."),
    "export": ("apply_command:export", "Print pools, policies and tenants as such a file."),
    "pool": ("pools:pool", "Pools: named capacity."),
    "policy": ("policies:policy", "Policies: a component's place in a pool."),
    "request": ("requests:request", "Requests: units that were asked for, over all attempts."),
    "tenant": ("tenants:tenant", "Tenants: quotas and budgets across pools."),
    "usage": ("usage_command:usage", "What was held, by whom and for how long."),
    "history": ("usage_command:history", "What has ended, what it held and what it cost."),
    "node": ("nodes:node", "Nodes: machines with an agent."),
    "token": ("tokens:token", "Tokens: who may do what."),
    "audit": ("audit_command:audit", "The audit: who changed what, and whether it holds."),
    "resource-pool": ("pools:resource_pool", "Pools and their policies."),
    "resource-request": ("requests:resource_request", "The same as request."),
    "completion": ("completion:completion", "Print a completion script for a shell."),
}


# Set by the group, read when its command has failed and no context is left.
_state: dict[str, Any] = {"debug": False, "command": ""}


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        command = getattr(import_module(f"cede.cli.{module}"), name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in COMMANDS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from difflib import get_close_matches

            close = get_close_matches(args[0], COMMANDS, 1)
            near = "".join(f"; did you mean {each}?" for each in close)
            ctx.fail(f"no such command {args[0]!r}{near}")
        return super().resolve_command(ctx, args)


@click.group(
    cls=LazyGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option(
    "--server",
    metavar="URL,…",
    help="The server, or several of one database; else CEDE_SERVER, else client.yaml.",
)
@click.option(
    "--token-file",
    type=click.Path(dir_okay=False),
    help="A file with the token; else CEDE_TOKEN, else client.yaml.",
)
@click.option("--debug", is_flag=True, help="Show tracebacks.")
@click.version_option(__version__, prog_name="cede", message="%(prog)s %(version)s")
@click.pass_context
def cli(ctx: click.Context, server: str | None, token_file: str | None, debug: bool) -> None:
    """Share GPUs between teams: who may hold what, lent while idle, taken back without losing
    work."""
    ctx.obj = {"server": server, "token_file": token_file}
    _state.update(debug=debug, command=ctx.invoked_subcommand or "")
    if ctx.invoked_subcommand is None:
        _show_status(ctx)


def _show_status(ctx: click.Context) -> None:
    """Show the pools for `cede` alone; the list of commands where no server is configured."""
    from cede.client.errors import NotConfigured

    command = cli.get_command(ctx, "status")
    assert command is not None
    try:
        with command.make_context("status", [], parent=ctx) as inner:
            command.invoke(inner)
    except NotConfigured:
        click.echo(ctx.get_help())
        raise


def run(arguments: list[str] | None) -> object:
    """Run a command, and return its exit code, or None."""
    return cli.main(args=arguments, prog_name="cede", standalone_mode=False)


def explain(error: BaseException) -> int:
    """Print an error and its fix on one line of stderr; return the documented exit code."""
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else exit_codes.ERROR
    if isinstance(error, KeyboardInterrupt) or isinstance(error.__cause__, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        return exit_codes.INTERRUPTED
    if isinstance(error, click.Abort):
        click.echo("not done", err=True)
        return exit_codes.ERROR
    if _state["debug"]:
        import traceback

        traceback.print_exception(error)
    if isinstance(error, click.ClickException):
        is_help = isinstance(error, click.exceptions.NoArgsIsHelpError)
        if is_help:
            error.show()
        elif isinstance(error, click.UsageError):
            click.echo(f"error: {_wrong_usage(error)}", err=True)
        else:
            click.echo(f"error: {error.format_message()}", err=True)
        return error.exit_code
    if isinstance(error, ModuleNotFoundError):
        from cede.cli.missing import explained

        if needed := explained(error, _state["command"]):
            click.echo(f"error: {needed}", err=True)
            return exit_codes.ERROR
    if not isinstance(error, _expected()) and not _state["debug"]:
        click.echo(f"error: {type(error).__name__}: {error} (see --debug)", err=True)
        return exit_codes.ERROR
    from cede.cli.printing import print_error

    print_error(error)
    return exit_codes.of_error(error)


def _wrong_usage(error: click.UsageError) -> str:
    """Name the mistake and the help for it, on one line."""
    problem = " ".join(error.format_message().split())
    where = error.ctx.command_path if error.ctx is not None else "cede"
    return f"{problem} (see {where} --help)"


def _expected() -> tuple[type[BaseException], ...]:
    from cede.client.errors import CedeClientError
    from cede.model.errors import CedeError

    return (CedeClientError, CedeError)
