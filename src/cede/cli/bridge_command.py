"""`cede bridge …`: makes the nodes of a foreign cluster nodes of the server. The only command
that imports bridges.
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import click

from cede.cli.agent_options import (
    connection_of,
    connection_options,
    keeping_options,
    set_up_logging,
    users_of,
)
from cede.cli.values import Duration


@click.group("bridge")
def bridge() -> None:
    """Bridges: cede decides, a cluster that exists already launches."""


@bridge.command("slurm")
@connection_options
@click.option(
    "--data",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="A folder that all nodes see under the same path: journal, logs and checkpoints.",
)
@click.option(
    "--checkpoints",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where work saves itself, if not in there; all nodes must see it as well.",
)
@click.option("--name", default="slurm", show_default=True, help="The bridge's name.")
@click.option("--partition", default="", help="Only the nodes of this partition; work goes there.")
@click.option("--account", default="", help="The account of Slurm that work is charged to.")
@click.option(
    "--sbatch",
    "options",
    multiple=True,
    metavar="OPTIONS",
    help="More for sbatch, such as --qos=cede; may be given often.",
)
@click.option(
    "--user-map",
    multiple=True,
    metavar="WHO=ACCOUNT",
    help="Whose work runs as which account, if the bridge is root: team:red=red, ann=ann.",
)
@click.option("--allow-root-jobs", is_flag=True, help="Work may run as root.")
@click.option(
    "--poll",
    type=Duration(plain="s"),
    default="5s",
    show_default=True,
    help="How often Slurm is looked at when nothing is expected of it.",
)
@keeping_options(attempts=1000)
@click.pass_context
def slurm(
    ctx: click.Context,
    /,
    server: str | None,
    join: str | None,
    join_file: Path | None,
    data: Path,
    checkpoints: Path | None,
    name: str,
    partition: str,
    account: str,
    options: tuple[str, ...],
    user_map: tuple[str, ...],
    allow_root_jobs: bool,
    poll: float,
    keep: int,
    keep_checkpoints: float,
    log_bytes: int | None,
) -> None:
    """Make the nodes of a Slurm cluster nodes of the server, and run its work there.

    When it is told to end, its work goes on; the next bridge on the same folder finds it by name.
    """
    from cede.agent.settings import Settings
    from cede.bridge.run import mark_of, run
    from cede.bridge.slurm import Slurm
    from cede.launch.spec import LOG_BYTES_DEFAULT

    server, join = connection_of(ctx, server, join, join_file)
    users = users_of(user_map)
    if os.geteuid() == 0 and not users and not allow_root_jobs:
        raise click.UsageError(
            "a bridge that is root must know whose work runs as which account of Slurm: give "
            "--user-map WHO=ACCOUNT, or --allow-root-jobs if work may be root"
        )
    set_up_logging()
    where = data.expanduser().absolute()
    settings = Settings(
        server=server,
        data=where,
        checkpoints=(checkpoints or where / "checkpoints").expanduser().absolute(),
        name=name,
        amounts={},
        devices={},
        join_token=join or "",
        users=users,
        allow_root_jobs=allow_root_jobs,
        retained=keep,
        keep_checkpoints=keep_checkpoints,
        log_bytes=log_bytes or LOG_BYTES_DEFAULT,
        kind="bridge",
    )
    more = [each for text in options for each in shlex.split(text)]
    run(settings, Slurm(mark_of(where), partition, account, more), period=poll)
