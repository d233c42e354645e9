"""Types of options for the grammars of `cede.model`.

A wrong value is wrong usage: one line that names the option and shows how to write it. Nothing is
parsed twice; the types here call the model's parsers and put its messages behind the option's name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import click

from cede.cli.usage import pairs
from cede.model import bounds
from cede.model.errors import Invalid, nearest

F = TypeVar("F", bound=Callable[..., Any])
NONE = "none"


class OneOf(click.Choice[str]):
    """One of some words; a wrong word's error names the nearest of them."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            known = [str(each) for each in self.choices]
            told = f"{value!r:.80} is not one of {', '.join(known)}"
            self.fail(f"{told}; {nearest(value, known)}".rstrip("; "), param, ctx)


class Duration(click.ParamType[Any]):
    """A time such as 1h30m, as seconds; or a fixed word, if one is given.

    `plain` is the unit of a number without one.
    """

    name = "TIME"

    def __init__(
        self, *, word: str | None = None, plain: str = "s", most: int = bounds.DURATION_MAX
    ) -> None:
        self._word = word
        self._plain = plain
        self._most = most
        if word is not None:
            self.name = f"TIME|{word}"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from cede.model.durations import parse_duration, seconds

        if not isinstance(value, str) or value == self._word:
            return value
        text = f"{value}{self._plain}" if value[-1:] in [*"0123456789"] else value
        try:
            return seconds(parse_duration(text, "", most=self._most))
        except Invalid as error:
            problem = error.problem.replace(repr(text), repr(value))
            other = f" (or {self._word})" if self._word else ""
            self.fail(f"{problem}{other}", param, ctx)


class Written(click.ParamType[str]):
    """A text that one of the model's parsers accepts; it is passed on as it was written."""

    def __init__(self, name: str, parser: Callable[[object, str], object]) -> None:
        self.name = name
        self._parser = parser

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            self._parser(value, "")
        except Invalid as error:
            self.fail(error.problem, param, ctx)
        return str(value)


class Count(click.ParamType[int]):
    """A whole number of units."""

    name = "N"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        text = str(value)
        if not (text.isascii() and text.isdecimal()) or int(text[:40]) > bounds.AMOUNT_MAX:
            most = bounds.AMOUNT_MAX
            self.fail(f"must be a whole number from 0 to {most}, such as 2, not {value!r:.80}")
        return int(text)


class Map(click.ParamType[dict[str, Any]]):
    """A map as JSON or YAML: '{"gpu": 8}' or 'gpu: 8'; each key once."""

    name = "JSON|YAML"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> dict[str, Any]:
        if isinstance(value, dict):
            return value
        from cede.model import written

        try:
            data = written.read(value)
        except written.Unreadable as error:
            self.fail(f"{value!r:.80}: {error.problem}; write JSON or YAML, such as 'gpu: 8'")
        if not isinstance(data, dict):
            self.fail(f"{value!r:.80} is not a map, such as '{{\"gpu\": 8}}' or 'gpu: 8'")
        return data


class Amounts(Map):
    """Integers by resource key, as KEY=N with commas between them or as a map."""

    name = "KEY=N|MAP"

    def __init__(self, least: int = 0) -> None:
        self._least = least

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> dict[str, Any]:
        from cede.model.amounts import EXAMPLE, parse_amounts

        is_map = not isinstance(value, str) or "{" in value or ":" in value.partition("=")[0]
        try:
            given = super().convert(value, param, ctx) if is_map else value
            return dict(parse_amounts(given, "", least=self._least))
        except Invalid as error:
            key = error.field.removeprefix(".")
            problem = f"{key}: {error.problem}" if key else error.problem
            shown = "" if EXAMPLE in problem else f"; write {EXAMPLE}"
            self.fail(f"{problem}{shown}", param, ctx)


def amounts_option(*names: str, least: int = 0, help: str) -> Callable[[F], F]:
    """Make an option for amounts; given several times, its keys add up."""
    return _adding_up(*names, kind=Amounts(least), help=help)


def map_option(
    *names: str, help: str, check: Callable[[Any], dict[str, Any]] = dict
) -> Callable[[F], F]:
    """Make an option for a map; given several times, its keys add up and are checked as one."""
    return _adding_up(*names, kind=Map(), help=help, check=check)


def _adding_up(
    *names: str, kind: Map, help: str, check: Callable[[Any], dict[str, Any]] = dict
) -> Callable[[F], F]:
    def together(ctx: click.Context, param: click.Parameter, given: Any) -> Any:
        if not given:
            return None
        try:
            return check(merged(param.opts[-1], given))
        except Invalid as error:
            raise click.BadParameter(str(error), ctx, param) from None

    return click.option(*names, type=kind, multiple=True, callback=together, help=help)


def merged(option: str, given: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Merge maps that were given one after the other; no key may be in two of them."""
    whole: dict[str, Any] = {}
    for each in given:
        for key in each:
            if key in whole:
                raise click.UsageError(f"{option}: {key} is there twice")
        whole |= each
    return whole


def settings_of(
    option: str, given: Iterable[str], allowed: tuple[str, ...], whose: str
) -> dict[str, Any]:
    """Parse settings from NAME=VALUE, checked and in the units of the API; NAME= is None."""
    from cede.model import written
    from cede.model.settings import parse_own, shown_own

    found: dict[str, Any] = {}
    for name, text in pairs(option, given):
        if name in found:
            raise click.UsageError(f"{option}: {name} is there twice")
        try:
            value = written.read(text)
            if value is None and name in allowed:
                found[name] = None
            else:
                found |= shown_own(parse_own({name: value}, allowed, whose))
        except (written.Unreadable, Invalid) as error:
            raise click.UsageError(f"{option} {name}: {error.problem}") from None
    return found
