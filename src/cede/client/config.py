"""Finds the configured server and its token.

A token is only ever sent to the server it was configured with: a file in the current folder may
name a server, and must not send a token of the environment there.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from cede.client.errors import NotConfigured
from cede.model import written
from cede.model.private import is_private

if TYPE_CHECKING:
    from pathlib import Path

# The file as `cede up` writes it. Importing YAML takes longer than a call to the server.
_PLAIN = re.compile(
    r"server: (?P<server>https?://[\w.:/-]+)\ntoken: (?P<token>cede_\w+)\n"
    r"(?:ca: (?P<ca>/[\w./-]+)\n)?"
)


class Connection(NamedTuple):
    """`server` is one address, or several of one database with commas between them. `ca` has the
    certificates to trust: a file, or the text of one; without it the system's are trusted.
    """

    server: str
    token: str
    source: str = ""
    ca: str = ""
    expires: str = ""  # when the token ends, if that is known

    def __repr__(self) -> str:
        return f"Connection(server={self.server!r}, source={self.source!r})"

    @property
    def servers(self) -> tuple[str, ...]:
        return tuple(self.server.split(","))


def resolve(
    server: str | None = None,
    token: str | None = None,
    *,
    environ: Mapping[str, str] = os.environ,
) -> Connection:
    """Return the connection from arguments, else the environment, else the first configuration file
    that exists, where the context in use stands before what `cede up` left on this machine.
    """
    server = server or environ.get("CEDE_SERVER") or None
    token = token or environ.get("CEDE_TOKEN") or None
    if server and token:
        return Connection(clean(server), token.strip(), "arguments or environment")
    connection = _configured(environ)
    if connection is not None:
        if token is None and (server is None or clean(server) == connection.server):
            return connection
        if token is not None and server is None:
            raise NotConfigured(
                "a token is given but no server, and the one in "
                f"{connection.source} has a token of its own",
                fix="set CEDE_SERVER next to CEDE_TOKEN",
            )
    if server:
        raise NotConfigured(f"no token for {server}", fix="set CEDE_TOKEN, or pass --token-file")
    raise NotConfigured(
        "no server is configured",
        fix="start one with `cede up`, log in with `cede login URL`, or set CEDE_SERVER and "
        "CEDE_TOKEN",
    )


def _configured(environ: Mapping[str, str]) -> Connection | None:
    from cede.client.contexts import read_contexts

    own, *left = _files(environ)
    for path in own:
        if os.path.isfile(path):
            return _read(path)
    contexts = read_contexts(environ)
    if contexts.current is not None:
        server, token, ca, expires = contexts.get(contexts.current)
        return Connection(server, token, f"context {contexts.current}", ca, expires)
    return next((_read(path) for path in left if os.path.isfile(path)), None)


def read_token(path: str | Path) -> str:
    """Read a token from a file. `-` is not offered, because argv and logs are not for secrets."""
    try:
        with open(path, encoding="utf-8") as file:
            _refuse_exposed(path, os.fstat(file.fileno()))
            token = file.read().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise NotConfigured(f"cannot read the token file {path}: {error}") from None
    if not token or len(token.split()) != 1:
        raise NotConfigured(f"{path} must hold one token and nothing else")
    return token


def shadowing(environ: Mapping[str, str] = os.environ) -> str | None:
    """Return the setting or file that takes precedence over any context, or None."""
    if environ.get("CEDE_SERVER") and environ.get("CEDE_TOKEN"):
        return "CEDE_SERVER and CEDE_TOKEN"
    return next(filter(os.path.isfile, _files(environ)[0]), None)


def _files(environ: Mapping[str, str]) -> tuple[list[str], str]:
    """Return the files of this shell and this folder, and the one that `cede up` leaves on this
    machine."""
    own = []
    if given := environ.get("CEDE_CONFIG"):
        if not os.path.isfile(given):
            raise NotConfigured(f"CEDE_CONFIG names {given}, which is not a file")
        own.append(given)
    own.append(os.path.join(".cede", "client.yaml"))
    base = environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")
    return own, os.path.join(base, "cede", "client.yaml")


def _read(path: str) -> Connection:
    try:
        with open(path, encoding="utf-8") as file:
            _refuse_exposed(path, os.fstat(file.fileno()))
            text = file.read()
        if plain := _PLAIN.fullmatch(text):
            return Connection(clean(plain["server"]), plain["token"], path, plain["ca"] or "")
        data: Any = written.read(text)
    except (OSError, UnicodeDecodeError, written.Unreadable) as error:
        first_line = str(error).splitlines()[0]
        raise NotConfigured(f"cannot read {path}: {first_line}") from None
    given = data if isinstance(data, dict) else {}
    server, token = given.get("server"), given.get("token")
    if isinstance(server, list) and all(isinstance(each, str) for each in server):
        server = ",".join(server)
    if not isinstance(server, str) or not isinstance(token, str):
        raise NotConfigured(
            f"{path} must be a map with the texts server and token; server may be a list"
        )
    ca = given.get("ca") or ""
    if not isinstance(ca, str):
        raise NotConfigured(f"{path}: ca must be the path of a file with certificates")
    return Connection(clean(server), token.strip(), path, ca)


def _refuse_exposed(path: str | Path, found: os.stat_result) -> None:
    """Refuse a file with a token that other users can read. A pipe or a terminal keeps none."""
    if stat.S_ISREG(found.st_mode) and not is_private(found.st_mode, found.st_uid):
        import shlex

        raise NotConfigured(
            f"{path} holds a token, and others than its owner may use it",
            fix=f"chmod 600 {shlex.quote(str(path))}",
        )


def clean(server: str) -> str:
    """Normalise one address, or several with commas between them."""
    return ",".join(_clean(each) for each in server.split(","))


def _clean(server: str) -> str:
    server = server.strip().rstrip("/")
    if not server.startswith(("http://", "https://")):
        raise NotConfigured(
            f"the server {server!r} is not an address such as http://127.0.0.1:8080",
            fix="write it with http:// or https://",
        )
    return server
