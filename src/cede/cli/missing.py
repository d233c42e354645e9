"""A package that is not installed: names the extra of cede that brings it.

`pip install cede` is the library and the command line. A server or an agent that is started without
its extra prints the command that adds it.
"""

from __future__ import annotations

# The extra that a command needs beside the command line itself.
COMMANDS = {
    "up": "server",
    "server": "server",
    "backup": "server",
    "restore": "server",
    "plan": "server",
    "audit": "server",
    "agent": "agent",
}
# Packages that only some features need, whatever the command.
PACKAGES = {
    "psycopg": "postgres",
    "pynvml": "gpu",
    "grpc": "grpc",
    "google": "grpc",
    "zenml": "zenml",
}


def explained(error: ModuleNotFoundError, command: str) -> str | None:
    """Name the extra to install, on one line; None if the module is part of cede or of no extra."""
    package = (error.name or "").partition(".")[0]
    extra = PACKAGES.get(package) or COMMANDS.get(command)
    if extra is None or package in ("", "cede"):
        return None
    return (
        f"cede {command} needs {package}, which is not installed; "
        f"to add it: pip install 'cede[{extra}]'"
    )
