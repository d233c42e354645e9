"""Contexts: servers that a user has logged in to, by name, and the one in use, in a private file.

JSON, because programs write it and every command reads it: YAML takes longer to import than the
server takes to answer.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from cede.client.errors import NotConfigured, NotFound
from cede.model.errors import nearest
from cede.model.private import is_private


class Context(NamedTuple):
    """One server and the token for it. `ca` is the certificate that it is trusted by, as text."""

    server: str
    token: str
    ca: str = ""
    expires: str = ""

    def __repr__(self) -> str:
        return f"Context(server={self.server!r})"


class Contexts(NamedTuple):
    path: str
    known: dict[str, Context]
    current: str | None

    def get(self, name: str) -> Context:
        if name not in self.known:
            near = nearest(name, self.known)
            raise NotFound(
                f"no context {name!r:.80}; {near}".rstrip("; "), fix="list them: cede use"
            )
        return self.known[name]

    def with_context(self, name: str, context: Context) -> Contexts:
        return self._replace(known={**self.known, name: context}, current=name)

    def using(self, name: str) -> Contexts:
        self.get(name)
        return self._replace(current=name)

    def without(self, name: str) -> Contexts:
        self.get(name)
        known = {each: context for each, context in self.known.items() if each != name}
        return self._replace(known=known, current=None if self.current == name else self.current)

    def write(self) -> None:
        """Write the file whole or not at all, at no time readable by others."""
        folder = os.path.dirname(self.path)
        os.makedirs(folder, mode=0o700, exist_ok=True)
        data = {
            "current": self.current,
            "contexts": {name: each._asdict() for name, each in self.known.items()},
        }
        part = f"{self.path}.{os.getpid()}"
        file = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(file, "w", encoding="utf-8") as stream:
            json.dump(data, stream, indent=1)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(part, self.path)


def contexts_file(environ: Mapping[str, str] = os.environ) -> str:
    base = environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return os.path.join(base, "cede", "contexts.json")


def read_contexts(environ: Mapping[str, str] = os.environ) -> Contexts:
    """Read the file of contexts; without one there are none."""
    path = contexts_file(environ)
    try:
        with open(path, encoding="utf-8") as file:
            found = os.fstat(file.fileno())
            if not is_private(found.st_mode, found.st_uid):
                raise NotConfigured(
                    f"{path} holds tokens, and others than its owner may use it",
                    fix=f"chmod 600 {path}",
                )
            data: Any = json.load(file)
        known = {str(name): Context(**each) for name, each in data["contexts"].items()}
        return Contexts(path, known, data["current"])
    except FileNotFoundError:
        return Contexts(path, {}, None)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        fix = "log in again, once it is out of the way"
        raise NotConfigured(
            f"cannot read {path}: {type(error).__name__}: {error}", fix=fix
        ) from None
