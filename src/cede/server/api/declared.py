"""Declared fields of the model in bodies and answers: the pydantic type of each kind."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    Field,
    PlainValidator,
    StringConstraints,
    WithJsonSchema,
    create_model,
)

from cede.model import bounds
from cede.model.durations import parse_duration
from cede.model.errors import Invalid
from cede.model.fields import (
    Count,
    Declared,
    Duration,
    Flag,
    Kind,
    Labels,
    Name,
    Numbers,
    Quantities,
    Ratio,
    References,
    Text,
    Word,
    fields_of,
)

Extends = Callable[[type[BaseModel]], Any]

Key = Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9_.\-/]{0,62}$")]
Amount = Annotated[int, Field(ge=0, le=bounds.AMOUNT_MAX)]
AmountsIn = Annotated[dict[Key, Amount], Field(max_length=bounds.KEYS_MAX)]
LabelText = Annotated[str, StringConstraints(max_length=bounds.LABEL_LENGTH_MAX)]
LabelsIn = Annotated[dict[LabelText, LabelText], Field(max_length=bounds.LABELS_MAX)]
# Ranges and how many at once; the model reports errors inside.
_ARRAY = r"^[0-9,: %\-]*$"


def seconds(most: int, *, least: int = 0, word: str | None = None) -> Any:
    """Make a type of seconds within bounds, or one word; one check, so one error."""

    def check(value: Any) -> Any:
        if word is not None and value == word:
            return value
        if isinstance(value, str):  # programs send numbers; only options and files take texts
            raise Invalid("value", f"must be a number of seconds, not {value!r:.80}")
        if parse_duration(value, "value", most=most) < least:
            raise Invalid("value", f"must be at least {least / 1000:g} seconds, not {value}")
        return value

    number: dict[str, Any] = {"type": "number", "minimum": least / 1000, "maximum": most // 1000}
    schema = number if word is None else {"anyOf": [number, {"const": word}]}
    return Annotated[int | float | str, PlainValidator(check), WithJsonSchema(schema)]


def count(kind: Count) -> Any:
    """Make a type of integers; where other values are malformed, pydantic leaves the check to
    the kind."""
    if not kind.malformed:
        return Annotated[int, Field(ge=kind.least, le=kind.most)]

    def check(value: Any) -> Any:
        return kind.parse(value, "value")

    schema = {"type": "integer", "minimum": kind.least, "maximum": kind.most}
    return Annotated[int, PlainValidator(check), WithJsonSchema(schema)]


# The type of each kind in bodies, and below in answers.
_SENT: dict[type[Kind], Callable[[Any], Any]] = {
    Flag: lambda kind: bool,
    Text: lambda kind: Annotated[str, StringConstraints(max_length=kind.most)],
    Name: lambda kind: Annotated[
        str, StringConstraints(min_length=1, max_length=bounds.NAME_LENGTH_MAX)
    ],
    Word: lambda kind: Literal[tuple(map(str, kind.words))],
    Duration: lambda kind: seconds(kind.most),
    Count: count,
    Ratio: lambda kind: Annotated[float, Field(ge=kind.least, le=kind.most)],
    Quantities: lambda kind: AmountsIn,
    Labels: lambda kind: LabelsIn,
    Numbers: lambda kind: Annotated[
        str, StringConstraints(max_length=bounds.ARRAY_LENGTH_MAX, pattern=_ARRAY)
    ],
    References: lambda kind: Annotated[
        list[Annotated[str, StringConstraints(min_length=1, max_length=bounds.NAME_LENGTH_MAX)]],
        Field(max_length=kind.most),
    ],
}
_SHOWN: dict[type[Kind], Any] = {
    Flag: bool,
    Text: str,
    Name: str | None,
    Word: str,
    Duration: int | float,
    Count: int,
    Ratio: float,
    Quantities: dict[str, int],
    Labels: dict[str, str],
    Numbers: str,
    References: list[str],
}


def sends(*parts: type, edits: bool = False) -> Extends:
    """Extend a body with the declared fields of these dataclasses, each of which may be absent:
    then it has its default, or stays as it is in a body that `edits`.
    """

    def field(each: Declared) -> Any:
        default = None if edits else each.shown_default
        more: Any = None if default is None else {"default": default}
        return (
            _SENT[type(each.kind)](each.kind) | None,
            Field(None, alias=each.name, description=each.sentence, json_schema_extra=more),
        )

    return _extended(parts, field)


def shows(*parts: type) -> Extends:
    """Extend an answer with the declared fields of these dataclasses, all of which are present."""

    def field(each: Declared) -> Any:
        kind = _SHOWN[type(each.kind)]
        shown = kind | None if each.default is None else kind
        return shown, Field(alias=each.name, description=each.sentence)

    return _extended(parts, field)


def _extended(parts: tuple[type, ...], field: Callable[[Declared], Any]) -> Extends:
    def extend(model: type[BaseModel]) -> Any:
        added = {
            each.keyword: field(each)
            for part in parts
            for each in fields_of(part)
            if each.keyword not in model.model_fields  # a field that the model defines itself stays
        }
        about: Any = {"__module__": model.__module__, "__doc__": model.__doc__}
        return create_model(model.__name__, __base__=model, **about, **added)

    return extend


def given(body: BaseModel, part: type) -> dict[str, Any]:
    """Return the values that a body has for the declared fields of a dataclass, by their names."""
    names = _names_of(part)
    present = names.keys() & body.__pydantic_fields_set__
    return {names[each]: getattr(body, each) for each in present} if present else {}


@cache
def _names_of(part: type) -> dict[str, str]:
    return {each.keyword: each.name for each in fields_of(part)}


def example_of(*parts: type) -> dict[str, Any]:
    """Return the declared fields of these dataclasses as the document shows them."""
    return {
        each.name: each.shown_default if each.example is None else each.example
        for part in parts
        for each in fields_of(part)
    }
