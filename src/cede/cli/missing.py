"""A part that is not installed: which extra of cede brings it.

`pip install cede` is the library and the command line. Whoever starts a server or an agent without
its extra is told the command that adds it.
"""

from __future__ import annotations

# What commands need beside the command line itself.
COMMANDS = {
    "up": "server",
    "server": "server",
    "backup": "server",
    "restore": "server",
    "plan": "server",
    "audit": "server",
    "agent": "agent",
}
# Packages that only some need, whatever they run.
PACKAGES = {
    "psycopg": "postgres",
    "pynvml": "gpu",
    "grpc": "grpc",
    "google": "grpc",
    "zenml": "zenml",
}


def explained(error: ModuleNotFoundError, command: str) -> str | None:
    """What to install, on one line; None if the module is a part of cede itself, or nobody's."""
    package = (error.name or "").partition(".")[0]
    extra = PACKAGES.get(package) or COMMANDS.get(command)
    if extra is None or package in ("", "cede"):
        return None
    return (
        f"cede {command} needs {package}, which is not installed; "
        f"to add it: pip install 'cede[{extra}]'"
    )
