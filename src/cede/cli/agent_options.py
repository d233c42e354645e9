"""Options that `cede agent` and every `cede bridge` share: the way to the server, accounts, and
how long files are kept.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from cede.cli.usage import pairs
from cede.cli.values import Duration
from cede.model import bounds

_DAY = 24 * bounds.HOUR

_Command = Callable[..., Any]


def connection_options(command: _Command) -> _Command:
    """Add `--server`, `--join` and `--join-file`; see `connection_of`."""
    return _with(
        command,
        click.option(
            "--server",
            metavar="URL",
            envvar="CEDE_SERVER",
            help="The server to serve; several with commas.",
        ),
        click.option(
            "--join",
            metavar="TOKEN",
            envvar="CEDE_JOIN",
            help="A join token, the first time; or CEDE_JOIN.",
        ),
        click.option(
            "--join-file",
            type=click.Path(path_type=Path, dir_okay=False),
            help="A file with the join token, which nobody else may read.",
        ),
    )


def keeping_options(*, attempts: int) -> Callable[[_Command], _Command]:
    """Add `--keep`, by default that many attempts, `--keep-checkpoints` and `--log-bytes`."""

    def add(command: _Command) -> _Command:
        return _with(
            command,
            click.option(
                "--keep",
                type=click.IntRange(min=1),
                default=attempts,
                show_default=True,
                help="How many ended attempts keep their logs.",
            ),
            click.option(
                "--keep-checkpoints",
                type=Duration(plain="d"),
                default=f"{bounds.CHECKPOINT_KEEP_DEFAULT // _DAY}d",
                show_default=True,
                help="How long checkpoints of requests that have ended stay; a number is days.",
            ),
            click.option(
                "--log-bytes", type=click.IntRange(min=4096), help="Of one log, before it rotates."
            ),
        )

    return add


def _with(command: _Command, *options: Callable[[_Command], _Command]) -> _Command:
    """Add options; `--help` shows them in this order."""
    for each in reversed(options):
        command = each(command)
    return command


def connection_of(
    ctx: click.Context, server: str | None, join: str | None, join_file: Path | None
) -> tuple[str, str | None]:
    """Return the server and the join token from the options, the environment or a file."""
    from cede.client.config import clean, read_token

    options = ctx.find_root().obj or {}
    if join is not None and not join.strip():
        raise click.UsageError("the join token is empty: make one with cede token create")
    if join_file is not None:
        if join is not None:
            raise click.UsageError("give --join-file or --join (CEDE_JOIN), not both")
        join = read_token(join_file)
    server = server or options.get("server")
    if not server:
        raise click.UsageError("give --server URL")
    return clean(server), join


def users_of(given: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    users: dict[str, tuple[str, ...]] = {}
    for who, account in pairs("--user-map", given):
        users[who] = (*users.get(who, ()), account)
    return users


def set_up_logging() -> None:
    import logging
    import sys

    import structlog

    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.format_exc_info,
            structlog.processors.KeyValueRenderer(key_order=["timestamp", "level", "event"]),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
