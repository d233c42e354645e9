"""A file that people wrote, and the lines of its entries: parsed fast, and once more with line
numbers when something is wrong."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import click

from cede.cli import exit_codes
from cede.model import bounds, written

_PART = re.compile(r"([^.\[\]]+)|\[(\d+)\]")


@dataclass(frozen=True, slots=True)
class WrittenFile:
    name: str
    text: str
    data: dict[str, Any]

    @classmethod
    def read(cls, file: str, what: str = "a snapshot") -> WrittenFile:
        name = "<stdin>" if file == "-" else file
        text = _text(file, name)
        try:
            data = written.read(text)
        except written.Unreadable as error:
            raise click.ClickException(f"{name}:{error.line}: {error.problem}") from None
        if not isinstance(data, dict):
            raise click.ClickException(f"{name}:1: {what} is a map")
        return cls(name, text, data)

    def refuse(self, error: Exception) -> NoReturn:
        """Print what is wrong with the file, and where, and exit; re-raise an error without a
        place in it."""
        path, problem = getattr(error, "path", None), getattr(error, "problem", None)
        if path is None:
            raise error
        click.echo(f"{self.name}:{self.line_of(path)}: {error if path else problem}", err=True)
        sys.exit(exit_codes.ERROR)

    def line_of(self, path: str) -> int:
        """Return the line of `running[2].pool`, or of the nearest thing around it."""
        import yaml

        node: Any = yaml.compose(self.text, Loader=yaml.SafeLoader)
        line = 1
        for name, index in _PART.findall(path):
            found = _child(node, name, index)
            if found is None:
                return line
            line, node = found
        return line


def _child(node: Any, name: str, index: str) -> tuple[int, Any] | None:
    import yaml

    if index and isinstance(node, yaml.SequenceNode) and int(index) < len(node.value):
        item = node.value[int(index)]
        return item.start_mark.line + 1, item
    if name and isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == name:
                return key.start_mark.line + 1, value
    return None


def _text(file: str, name: str) -> str:
    try:
        raw = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise click.ClickException(f"{name}: {error.strerror}") from None
    if len(raw) > bounds.SNAPSHOT_BYTES_MAX:
        raise click.ClickException(f"{name}: more than {bounds.SNAPSHOT_BYTES_MAX} bytes")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise click.ClickException(f"{name}:{line}: not UTF-8") from None
