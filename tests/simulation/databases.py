"""Where servers keep their state: a file that one server locks, or a database that two share.

The file is on a simulated disk, which may lose, tear or change what was written. The shared one is
also a SQLite file here; its terms are those of PostgreSQL, on a clock of its own.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

from sqlalchemy import select, update

from cede.store import Store, schema, term
from cede.store.errors import Deposed
from cede.store.sealed import epoch_sum
from cede.store.values import Batch
from tests.support import databases

_DATABASE = ("cede.db", "cede.db-wal")


def _lasts(name: str, anchors: bool) -> bool:
    return name in _DATABASE or (anchors and name.startswith("anchor"))


class Disk:
    """The files of one server."""

    def __init__(self, folder: Path, dice: random.Random) -> None:
        self.folder = folder
        self._dice = dice
        folder.mkdir(parents=True)
        databases.give_tables(self.url)

    @property
    def url(self) -> str:
        return f"sqlite:///{self.folder / 'cede.db'}"

    def image(self, *, anchors: bool = True) -> dict[str, bytes]:
        paths = sorted(self.folder.iterdir())
        return {path.name: path.read_bytes() for path in paths if _lasts(path.name, anchors)}

    def put(self, image: dict[str, bytes], *, anchors: bool = True) -> None:
        for path in sorted(self.folder.iterdir()):
            if _lasts(path.name, anchors) or path.name == "cede.db-shm":
                path.unlink()
        for name, content in image.items():
            (self.folder / name).write_bytes(content)
            (self.folder / name).chmod(0o600)

    def torn(self, before: dict[str, bytes], after: dict[str, bytes]) -> dict[str, bytes]:
        """What may be on the disk when the power goes during a write: nothing of it, all of it, or
        a part, in pieces that were never written whole.
        """
        fate = self._dice.randrange(4)
        if fate == 0:
            return before
        name = "cede.db-wal"
        old, new = before.get(name, b""), after.get(name, b"")
        if fate == 1 or len(new) <= len(old) or not new.startswith(old[:32]):
            return after | {"anchor": before.get("anchor", b"")}
        cut = self._dice.randint(len(old), len(new))
        kept = new[:cut]
        if fate == 3:
            kept += self._dice.randbytes(min(len(new) - cut, 4096))
        return after | {name: kept, "anchor": before.get("anchor", b"")}

    def flipped(self, image: dict[str, bytes]) -> dict[str, bytes]:
        """One bit of the database or its log is another."""
        name = self._dice.choice([each for each in _DATABASE if image.get(each)])
        content = bytearray(image[name])
        at = self._dice.randrange(len(content))
        content[at] ^= 1 << self._dice.randrange(8)
        return image | {name: bytes(content)}

    def remove(self) -> None:
        shutil.rmtree(self.folder)


class Terms:
    """Whose term it is, as the shared database sees it."""

    def __init__(self, time: Callable[[], float]) -> None:
        self.time = time
        self.until = 0.0
        self.let_go = True
        self.holder: Store | None = None  # whose session is open

    @property
    def is_over(self) -> bool:
        return self.holder is None or self.time() >= self.until

    def renewed(self) -> None:
        self.until = self.time() + term.LEASE_MILLISECONDS / 1000
        self.let_go = False


class SharedStore(Store):
    """The store of one of two servers, with PostgreSQL's terms."""

    def __init__(self, url: str, anchor: Path, terms: Terms) -> None:
        super().__init__(url, anchor=anchor)
        self.sqlite, self.file, self._lock, self._reserve = False, None, None, None
        self._terms = terms

    def try_take_over(self) -> bool:
        """Become the writer if the last one's term is over; otherwise follow it."""
        self._writing = self._writing or self._engine.connect()
        meta = schema.meta
        with self._writing.begin():
            self._follow(self._writing)
            if not self._terms.is_over:
                return False
            epoch = int(self._writing.execute(select(meta.c.epoch)).scalar_one()) + 1
            values = {"epoch": epoch, "epoch_sum": epoch_sum(epoch)}
            self._writing.execute(update(meta).values(**values))
        self.epoch = epoch
        self.former_term = 0 if self._terms.let_go else term.former_term()
        self._terms.renewed()
        self._terms.holder = self
        return True

    def commit(self, batch: Batch) -> None:
        super().commit(batch)
        self._terms.renewed()

    def close(self) -> None:
        if self._terms.holder is self:
            self._terms.holder = None  # the session ends with the process
        super().close()

    def renew_lease(self) -> None:
        with self._connection().begin():
            found = term.current_epoch(self._connection())
        if found != self.epoch:
            raise Deposed(self.epoch, found)
        self._terms.renewed()
