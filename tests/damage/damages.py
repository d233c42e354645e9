"""Ways in which files are damaged, each from a seed or all of them in order."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.damage.history import History

PAGE = 4096
Damage = tuple[str, Callable[[Path], None]]


def cuts(history: History) -> Iterator[Damage]:
    """The WAL ends after or inside each of its frames, or is gone; the database ends early."""
    wal = history.folder / "cede.db-wal"
    if wal.exists():
        frame = 24 + PAGE
        size = wal.stat().st_size
        for end in range(32, size, frame):
            yield f"WAL cut after {end // frame} frames", _cut("cede.db-wal", end)
            yield f"WAL cut inside frame {end // frame}", _cut("cede.db-wal", end + frame // 3)
        yield "WAL gone", lambda folder: (folder / "cede.db-wal").unlink()
    for end in range(0, (history.folder / "cede.db").stat().st_size, PAGE):
        yield f"database cut after {end // PAGE} pages", _cut("cede.db", end)


def pages(history: History) -> Iterator[Damage]:
    """Every page of the database is zeroed, or is another page."""
    count = (history.folder / "cede.db").stat().st_size // PAGE
    for page in range(count):
        yield f"page {page + 1} zeroed", _overwrite("cede.db", page * PAGE, bytes(PAGE))
        yield f"page {page + 1} is page {(page + 1) % count + 1}", _move(page, (page + 1) % count)


def random_damage(history: History, chance: random.Random) -> Damage:
    there = [each for each in ("cede.db", "cede.db-wal") if (history.folder / each).exists()]
    name = chance.choice(there)
    size = (history.folder / name).stat().st_size
    kind = chance.choice(["flip", "flip", "flip", "bytes", "page", "sector"])
    if kind == "flip":
        place, bit = chance.randrange(size), chance.randrange(8)
        return f"bit {bit} of byte {place} of {name} flipped", _flip(name, place, bit)
    if kind == "bytes":
        place, length = chance.randrange(size), chance.randrange(1, 16)
        return f"{length} bytes at {place} of {name}", _overwrite(
            name, place, chance.randbytes(length)
        )
    unit = PAGE if kind == "page" else 512
    place = chance.randrange(size // unit) * unit
    return f"random {kind} at {place} of {name}", _overwrite(name, place, chance.randbytes(unit))


def _cut(name: str, end: int) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        with (folder / name).open("r+b") as file:
            file.truncate(end)

    return damage


def _overwrite(name: str, place: int, content: bytes) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        with (folder / name).open("r+b") as file:
            file.seek(place)
            file.write(content)

    return damage


def _move(page: int, source: int) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        content = (folder / "cede.db").read_bytes()[source * PAGE : (source + 1) * PAGE]
        _overwrite("cede.db", page * PAGE, content)(folder)

    return damage


def _flip(name: str, place: int, bit: int) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        with (folder / name).open("r+b") as file:
            file.seek(place)
            (byte,) = struct.unpack("B", file.read(1))
            file.seek(place)
            file.write(bytes([byte ^ 1 << bit]))

    return damage
