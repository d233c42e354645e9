"""The row of `meta` after a commit: the journal's position, the bounds of retention, and the
digests of all tables, under checksums of their own.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any

from cede.store.chain import Link
from cede.store.digests import Digests, hash_of
from cede.store.errors import Damaged
from cede.store.values import Batch, Moment, Run


@dataclass(frozen=True, slots=True)
class Sealed:
    """The row of `meta`. `commits` counts every commit: not all move the journal's index."""

    head: int = 0
    commits: int = 0
    instant: int = 0
    boot_id: str = ""
    boottime: int = 0
    secret: str = ""
    audit_number: int | None = None
    audit_hash: str | None = None
    requests_before: int = 0
    events_through: int = 0
    audit_through: int = 0
    audit_cut: int = 0
    audit_through_hash: str | None = None
    digests: Digests = field(default_factory=Digests)

    @property
    def moment(self) -> Moment:
        return Moment(self.instant, self.boot_id, self.boottime)

    @classmethod
    def read(cls, row: Any) -> Sealed:
        """From a row of `meta`; refused unless its checksums hold."""
        plain = [getattr(row, each.name) for each in fields(cls)]
        if row.epoch_sum != epoch_sum(row.epoch) or row.row_sum != _sum(plain):
            raise Damaged(["table meta has a changed row"])
        return cls.unchecked(row, Digests.from_text(row.digests))

    @classmethod
    def unchecked(cls, row: Any, digests: Digests) -> Sealed:
        """From a row of `meta` whose checksums are yet to be written."""
        plain = {each.name: getattr(row, each.name) for each in fields(cls)}
        return cls(**plain | {"digests": digests})

    def after(self, batch: Batch, newest: Link | None, digests: Digests) -> Sealed:
        """The row after a batch; `newest` is its last audit entry."""
        moment = batch.moment
        return replace(
            self,
            head=batch.index,
            commits=self.commits + 1,
            instant=moment.instant,
            boot_id=moment.boot_id,
            boottime=moment.boottime,
            audit_number=self.audit_number if newest is None else newest.number,
            audit_hash=self.audit_hash if newest is None else newest.hash,
            digests=digests,
            **({} if batch.run is None or newest is None else _floors(batch.run, newest.number)),
        )

    def values(self) -> dict[str, Any]:
        """The columns, with their checksum."""
        found = {each.name: getattr(self, each.name) for each in fields(self)}
        found["digests"] = self.digests.to_text()
        return found | {"row_sum": _sum(list(found.values()))}


def _floors(run: Run, entry: int) -> dict[str, Any]:
    """The bounds of a run of retention; `entry` is the number of its audit entry."""
    found: dict[str, Any] = {}
    if run.requests_before is not None:
        found["requests_before"] = run.requests_before
    if run.events_through is not None:
        found["events_through"] = run.events_through
    if run.audit is not None:
        number, hash_ = run.audit
        found |= {"audit_through": number, "audit_through_hash": hash_, "audit_cut": entry}
    return found


def epoch_sum(epoch: int) -> str:
    return f"{hash_of([epoch]):x}"


def _sum(values: list[Any]) -> str:
    return f"{hash_of(values):x}"
