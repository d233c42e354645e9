"""How work is kept from the agent's own files, and teams from each other, on this machine.

The answer is the node's label `isolation`, so that people see it and requests can ask for it.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

from cede.launch.starting import supervisor_environment

LABEL = "isolation"
TIMEOUT = 20.0


class Isolation(StrEnum):
    ACCOUNT = "account"  # each team has an account of its own
    SHARED_ACCOUNT = "shared-account"  # accounts that are not the agent's; teams share some
    NAMESPACE = "namespace"  # the agent's account, in namespaces that hide what is cede's
    NONE = "none"  # work can read what the agent can


def isolation_here(users: Mapping[str, tuple[str, ...]], *, allow_root: bool) -> Isolation:
    """Return the isolation that an agent in this process offers, under this map of accounts."""
    if os.geteuid() != 0:
        return Isolation.NONE if why_no_namespace() else Isolation.NAMESPACE
    if allow_root and (not users or any("root" in accounts for accounts in users.values())):
        return Isolation.NONE
    return Isolation.SHARED_ACCOUNT if shared(users) else Isolation.ACCOUNT


def shared(users: Mapping[str, tuple[str, ...]]) -> dict[str, list[str]]:
    """Return the accounts that several submitters are mapped to, with those submitters."""
    found: dict[str, list[str]] = {}
    for who, accounts in users.items():
        for account in accounts:
            found.setdefault(account, []).append("everybody else" if who == "*" else who)
    return {
        account: who for account, who in found.items() if len(who) > 1 or "everybody else" in who
    }


@functools.cache
def why_no_namespace() -> str:
    """Return why work cannot have namespaces of its own here; empty when it can. Tried once."""
    if not sys.platform.startswith("linux"):
        return f"needs Linux, and this is {sys.platform}"
    try:
        tried = subprocess.run(
            [sys.executable, "-S", "-m", "cede.launch.namespace"],
            env=supervisor_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    said = tried.stdout or tried.stderr or f"exit code {tried.returncode}"
    return "" if tried.returncode == 0 else said.strip().splitlines()[-1]


def own_folders(environ: Mapping[str, str]) -> tuple[Path, ...]:
    """Return an account's folders of cede beside the agent's data, and that of its session,
    which would start programs for it outside of any namespace.
    """
    base = environ.get("XDG_DATA_HOME")
    found = [(Path(base) if base else Path.home() / ".local" / "share") / "cede"]
    if given := environ.get("CEDE_CONFIG"):
        found.append(Path(given).absolute())
    found.append(Path(environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}"))
    return tuple(found)


def warnings(isolation: Isolation, users: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Return sentences of what an operator must know."""
    if isolation is Isolation.NONE and os.geteuid() == 0:
        return ["work may be root here: it can read and change all files of cede"]
    if isolation is Isolation.NONE:
        return [
            "work runs as this agent's own account and can read its token and all files of cede: "
            f"this system gives no user namespace ({why_no_namespace()}). Run the agent as root, "
            "or allow user namespaces"
        ]
    return [
        f"account {account} runs work of {' and '.join(who)}: they can read each other's "
        "environment, files and checkpoints. Map each team to an account of its own"
        for account, who in shared(users).items()
    ]
