"""How a list is shown: its columns, rows, order and form.

`--filter` and `--sort` look at all columns that a table could show, also at those that it does not
show. JSON and YAML hold everything the API answers; the other forms hold the chosen columns.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from cede.cli.printing import cell, print_json, print_separated, print_yaml
from cede.cli.usage import wrong
from cede.model.errors import choices

Row = Mapping[str, Any]

OUTPUTS = ("table", "wide", "json", "yaml", "csv", "tsv")
_OPERATORS: dict[str, Callable[[str, str], bool]] = {
    "!=": lambda seen, wanted: seen != wanted,
    "=": lambda seen, wanted: seen == wanted,
    "~": lambda seen, wanted: wanted in seen,
}


class Columns(NamedTuple):
    """The columns of a list: the usual ones, those that `-o wide` adds, and all others that it
    can show. `declared` names those that the model declares, which is imported only where
    columns are chosen.
    """

    usual: Sequence[str]
    wide: Sequence[str] = ()
    others: Sequence[str] = ()
    declared: Callable[[], Iterable[str]] = tuple

    @property
    def known(self) -> set[str]:
        return {*self.usual, *self.wide, *self.others, *self.declared()}


class Listing(NamedTuple):
    """The choices by which one list is shown."""

    columns: tuple[str, ...]
    output: str
    chosen: bool = False
    sort: tuple[tuple[str, bool], ...] = ()
    filters: tuple[Callable[[Row], bool], ...] = ()

    @property
    def for_people(self) -> bool:
        return self.output in ("table", "wide")

    def passes(self, row: Row) -> bool:
        return all(passes(row) for passes in self.filters)

    def with_first(self, column: str) -> Listing:
        """The same with this column before the others, unless the columns were chosen."""
        return self if self.chosen else self._replace(columns=(column, *self.columns))

    def print(
        self,
        found: Iterable[Row],
        *,
        view: Callable[[Row], Row] = lambda row: row,
        empty: str = "nothing",
    ) -> None:
        """Print the rows; `view` makes of each the row that the table shows."""
        pairs = [(row, view(row)) for row in found]
        pairs = [(row, seen) for row, seen in pairs if self.passes(seen)]
        for column, backwards in reversed(self.sort):
            pairs.sort(key=lambda pair: _sort_key(pair[1].get(column)), reverse=backwards)
        rows, seen = [row for row, _ in pairs], [shown for _, shown in pairs]
        if self.output == "json":
            print_json(rows)
        elif self.output == "yaml":
            print_yaml(rows)
        elif self.output in ("csv", "tsv"):
            print_separated(seen, self.columns, "," if self.output == "csv" else "\t")
        elif not rows:
            print(empty, file=sys.stderr)
        else:
            from cede.cli.tables import print_table

            print_table(seen, self.columns, wide=self.output == "wide")


def listing_of(columns: Columns, given: dict[str, Any]) -> Listing:
    """Take the options of a list out of those given, and return the listing that they mean."""
    output = given.pop("output", None) or "table"
    if given.pop("as_json", False):
        output = "json"
    usual = (*columns.usual, *columns.wide) if output == "wide" else columns.usual
    wanted, sort = given.pop("columns", None), given.pop("sort", None)
    filters = given.pop("filters", ())
    known = columns.known if wanted or sort or filters else set()
    return Listing(
        _chosen(wanted, usual, known),
        output,
        wanted is not None,
        tuple(_sorts(sort, known)),
        tuple(_filter(each, known) for each in filters),
    )


def _sorts(text: str | None, known: set[str]) -> Iterator[tuple[str, bool]]:
    for each in (text or "").split(",") if text else ():
        column = each.strip().removeprefix("-")
        yield _known("--sort", column, known), each.strip().startswith("-")


def _filter(text: str, known: set[str]) -> Callable[[Row], bool]:
    for sign, matches in _OPERATORS.items():
        column, found, wanted = text.partition(sign)
        if found:
            return partial(_matches, _known("--filter", column.strip(), known), wanted, matches)
    raise wrong(f"--filter wants COLUMN=VALUE, COLUMN!=VALUE or COLUMN~TEXT, not {text!r:.80}")


def _matches(column: str, wanted: str, matches: Callable[[str, str], bool], row: Row) -> bool:
    """Whether a row passes: a value is compared as it is shown, and an id also whole."""
    value = row.get(column)
    seen = {cell(value)} | ({value} if isinstance(value, str) else set())
    results = [matches(each, wanted) for each in sorted(seen)]
    return all(results) if matches is _OPERATORS["!="] else any(results)


def _known(option: str, column: str, known: set[str]) -> str:
    if column not in known:
        raise wrong(f"{option}: no column {column!r:.80}; {choices(column, known)}")
    return column


def _sort_key(value: Any) -> tuple[int, float, str]:
    """Sort numbers first, then texts, then empty values."""
    if value is None or value == "":
        return (2, 0.0, "")
    if isinstance(value, int | float):
        return (0, float(value), "")
    return (1, 0.0, cell(value))


def _chosen(
    columns: str | None, usual: Sequence[str], others: Iterable[str] = ()
) -> tuple[str, ...]:
    """Return the columns that were asked for, or the usual ones; `others` can be asked for, too."""
    if columns is None:
        return tuple(usual)
    wanted = tuple(each.strip() for each in columns.split(","))
    several = {*usual, *others}
    for each in wanted:
        if each not in several:
            raise wrong(f"--columns: no column {each!r:.80}; {choices(each, several)}")
    return wanted
