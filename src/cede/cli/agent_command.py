"""`cede agent`: makes this machine a node, which runs the work that the server puts on it. The
only command that imports the agent.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cede.cli.agent_options import (
    connection_of,
    connection_options,
    keeping_options,
    set_up_logging,
    users_of,
)
from cede.cli.usage import pairs
from cede.cli.values import amounts_option

if TYPE_CHECKING:
    from cede.agent.detect import Gpus
    from cede.agent.settings import Settings

AS_ROOT = Path("/var/lib/cede-agent")


@click.command("agent")
@connection_options
@click.option(
    "--data", type=click.Path(path_type=Path, file_okay=False), help="Where it keeps files."
)
@click.option(
    "--checkpoints",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where work saves itself; on a file system that the nodes share, if there are several.",
)
@click.option("--name", help="The node's name; the host's unless given.")
@amounts_option("--amount", help="Instead of what is detected, such as gpu=8.")
@click.option("--device", multiple=True, metavar="KEY=NAME,…", help="Names of devices.")
@click.option("--label", multiple=True, metavar="NAME=VALUE", help="May be given often.")
@click.option(
    "--group", default="", metavar="PATH", help="Where it is, such as spine-1/rack-3: topology."
)
@click.option("--fingerprint", help="Equal where programs behave alike; detected unless given.")
@click.option(
    "--user-map",
    multiple=True,
    metavar="WHO=ACCOUNT",
    help="Whose work runs as which account: team:red=red, ann=ann. Without any, each team "
    "has an account of its own if the agent is root.",
)
@click.option(
    "--hide",
    multiple=True,
    metavar="PATH",
    type=click.Path(path_type=Path),
    help="A file or folder with secrets that work of the agent's own account must not see.",
)
@click.option("--allow-root-jobs", is_flag=True, help="Work may run as root.")
@keeping_options(attempts=200)
@click.option("--pids", type=click.IntRange(min=1), help="The most processes of one task.")
@click.pass_context
def agent(ctx: click.Context, /, server: str | None, join_file: Path | None, **given: Any) -> None:
    """Make this machine a node and run what the server puts on it.

    When it is told to end, its work goes on: each task has a supervisor of its own, and the next
    agent on the same data adopts it.
    """
    from cede.agent.runner import run

    server, given["join"] = connection_of(ctx, server, given["join"], join_file)
    set_up_logging()
    run(settings_of(server=server, **given))


def settings_of(
    *,
    server: str,
    join: str | None,
    data: Path | None,
    checkpoints: Path | None,
    name: str | None,
    amount: dict[str, int] | None,
    device: tuple[str, ...],
    label: tuple[str, ...],
    group: str,
    fingerprint: str | None,
    user_map: tuple[str, ...],
    hide: tuple[Path, ...],
    allow_root_jobs: bool,
    keep: int,
    keep_checkpoints: float,
    log_bytes: int | None,
    pids: int | None,
) -> Settings:
    """Return the agent's settings from the options, with this machine's values where none was
    given."""
    from cede.agent import detect
    from cede.agent.isolation import LABEL, isolation_here, own_folders
    from cede.agent.settings import Settings
    from cede.launch.spec import LOG_BYTES_DEFAULT
    from cede.model.node import parse_devices, parse_group, parse_labels, parse_node_amounts

    gpus = detect.gpus()
    where = (data or _default_data()).expanduser().absolute()
    amounts, devices = _has(gpus, amount or {}, device)
    has, users = parse_node_amounts(amounts), users_of(user_map)
    isolation = isolation_here(users, allow_root=allow_root_jobs)
    return Settings(
        server=server,
        data=where,
        checkpoints=(checkpoints or where / "checkpoints").expanduser().absolute(),
        name=name or detect.hostname(),
        amounts=has,
        devices=parse_devices(devices, has, "device"),
        labels=parse_labels({**_labels(label, LABEL), LABEL: str(isolation)}, "label"),
        group=parse_group(group),
        fingerprint=detect.fingerprint(gpus) if fingerprint is None else fingerprint,
        join_token=join or "",
        users=users,
        allow_root_jobs=allow_root_jobs,
        retained=keep,
        keep_checkpoints=keep_checkpoints,
        log_bytes=log_bytes or LOG_BYTES_DEFAULT,
        pids_max=pids,
        isolation=isolation,
        hidden=(*own_folders(os.environ), *(each.expanduser().absolute() for each in hide)),
    )


def _has(
    gpus: Gpus, amount: dict[str, int], device: tuple[str, ...]
) -> tuple[dict[str, int], dict[str, tuple[str, ...]]]:
    """Return the amounts and the devices of this machine, as detected and as given."""
    from cede.agent import detect

    wanted = {**detect.amounts(gpus), **amount}
    amounts = {key: each for key, each in wanted.items() if each}
    devices = {key: tuple(each.split(",")) for key, each in pairs("--device", device)}
    for key, names in devices.items():
        amounts.setdefault(key, len(names))
    if "gpu" in amounts and "gpu" not in devices:
        # Given as a number only: the numbers are the names.
        found = gpus.names if len(gpus.names) == amounts["gpu"] else None
        devices["gpu"] = found or tuple(str(n) for n in range(amounts["gpu"]))
    return amounts, devices


def _labels(given: tuple[str, ...], detected: str) -> dict[str, str]:
    labels = dict(pairs("--label", given))
    if detected in labels:
        raise click.UsageError(f"--label: the agent finds out {detected} by itself")
    return labels


def _default_data() -> Path:
    if os.geteuid() == 0:
        return AS_ROOT
    base = os.environ.get("XDG_DATA_HOME")
    return (Path(base) if base else Path.home() / ".local" / "share") / "cede-agent"
