"""Fields that people write, each declared once, beside the field in its dataclass.

`declared` gives a field's outside name, its kind and its meaning. The layers that read, show or
store the field derive their part from it: the body and the answer of the API, the columns of a row,
the entry of a snapshot and the keywords of the client. So a new field of a request is one line in
the model.

A kind knows how a value is read and shown. What a layer makes of a kind (a type of pydantic, a
column) is a table in that layer: only a new kind needs a line there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from enum import StrEnum
from functools import cache
from keyword import iskeyword
from typing import Any, TypeVar

from cede.model import bounds
from cede.model.amounts import parse_amounts
from cede.model.array import parse_array
from cede.model.durations import parse_duration, seconds
from cede.model.errors import Invalid, Malformed, choices, quoted
from cede.model.node import parse_labels
from cede.model.settings import parse_flag, parse_ratio
from cede.model.subject import parse_name

T = TypeVar("T")
_DECLARED = "declared"


class Kind:
    """The values of a field: how they are read from outside data and shown to callers."""

    __slots__ = ()

    def parse(self, value: object, name: str) -> Any:
        """The value in its inner form; `Invalid` with this name says what is wrong."""
        raise NotImplementedError

    def show(self, value: Any) -> Any:
        """The value in the units that people write."""
        return value


@dataclass(frozen=True, slots=True)
class Flag(Kind):
    def parse(self, value: object, name: str) -> bool:
        return parse_flag(value, name)


@dataclass(frozen=True, slots=True)
class Text(Kind):
    """Printable text; empty means none."""

    most: int

    def parse(self, value: object, name: str) -> str:
        if not isinstance(value, str) or len(value) > self.most:
            raise Invalid(name, f"must be text of at most {self.most} characters")
        if not value.isprintable():
            raise Invalid(name, "must be printable, on one line")
        return value


@dataclass(frozen=True, slots=True)
class Name(Kind):
    """The name of another object; empty means none."""

    def parse(self, value: object, name: str) -> str:
        return "" if value == "" else parse_name(value, name)

    def show(self, value: Any) -> Any:
        return value or None


@dataclass(frozen=True, slots=True)
class Word(Kind):
    """One word of a closed set."""

    words: type[StrEnum]

    def parse(self, value: object, name: str) -> StrEnum:
        try:
            return self.words(value)  # type: ignore[arg-type]
        except ValueError:
            known = ", ".join(self.words)
            raise Invalid(name, f"must be one of {known}, not {quoted(value)}") from None

    def show(self, value: Any) -> Any:
        return value and value.value


@dataclass(frozen=True, slots=True)
class Duration(Kind):
    """A length of time: seconds outside, milliseconds inside."""

    most: int = bounds.DURATION_MAX

    def parse(self, value: object, name: str) -> int:
        return parse_duration(value, name, most=self.most)

    def show(self, value: Any) -> Any:
        return seconds(value)


@dataclass(frozen=True, slots=True)
class Count(Kind):
    """An integer, not a text, a fraction or a boolean."""

    least: int
    most: int
    malformed: bool = False  # a wrong value counts as unreadable, which is a 400

    def parse(self, value: object, name: str) -> int:
        whole = isinstance(value, int) and not isinstance(value, bool)
        if not whole or not self.least <= value <= self.most:  # type: ignore[operator]
            error = Malformed if self.malformed else Invalid
            wanted = f"must be an integer from {self.least} to {self.most}"
            raise error(name, f"{wanted}, not {quoted(value)}")
        return value  # type: ignore[return-value]


@dataclass(frozen=True, slots=True)
class Ratio(Kind):
    """A fraction or a weight."""

    least: float
    most: float

    def parse(self, value: object, name: str) -> float:
        return parse_ratio(value, name, least=self.least, most=self.most)


@dataclass(frozen=True, slots=True)
class Quantities(Kind):
    """Amounts by resource key."""

    def parse(self, value: object, name: str) -> dict[str, int]:
        return parse_amounts(value, name)

    def show(self, value: Any) -> Any:
        return dict(value)


@dataclass(frozen=True, slots=True)
class Labels(Kind):
    """Texts by name; for nodes the names are labels and the texts printable."""

    of_nodes: bool = False

    def parse(self, value: object, name: str) -> dict[str, str]:
        if self.of_nodes:
            return parse_labels(value, name)
        if not isinstance(value, Mapping) or len(value) > bounds.LABELS_MAX:
            raise Invalid(name, f"must be a map of at most {bounds.LABELS_MAX} texts")
        for each in (*value, *value.values()):
            if not isinstance(each, str) or len(each) > bounds.LABEL_LENGTH_MAX:
                most = bounds.LABEL_LENGTH_MAX
                raise Invalid(name, f"must be texts of at most {most} characters")
        return dict(value)

    def show(self, value: Any) -> Any:
        return dict(value)


@dataclass(frozen=True, slots=True)
class Numbers(Kind):
    """The tasks of an array, as a text in its normal form; empty means none."""

    def parse(self, value: object, name: str) -> str:
        if not isinstance(value, str):
            raise Invalid(name, f"must be a text such as 0-99%10, not {quoted(value)}")
        return parse_array(value, name).text if value else ""


@dataclass(frozen=True, slots=True)
class References(Kind):
    """Other requests: ids, or words that the server resolves to ids."""

    most: int

    def parse(self, value: object, name: str) -> tuple[str, ...]:
        if isinstance(value, str) or not isinstance(value, Sequence):
            raise Invalid(name, f"must be a list of ids, not {quoted(value)}")
        if len(value) > self.most:
            raise Invalid(name, f"must be at most {self.most} ids, not {len(value)}")
        for each in value:
            if not isinstance(each, str) or not 1 <= len(each) <= bounds.NAME_LENGTH_MAX:
                raise Invalid(name, f"must be ids of requests, not {quoted(each)}")
        return tuple(dict.fromkeys(value))

    def show(self, value: Any) -> Any:
        return list(value)


@dataclass(frozen=True, slots=True)
class Declared:
    """One field: `name` is what people write, `keyword` its name in Python code, and `attribute`
    its name in the dataclass. `sentence` describes it in the API's document.
    """

    name: str
    keyword: str
    attribute: str
    kind: Kind
    sentence: str
    default: Any
    example: Any  # as people write it
    decides: bool  # decisions depend on it, so that snapshots contain it

    @property
    def shown_default(self) -> Any:
        return None if self.default is None else self.kind.show(self.default)


def declared(
    kind: Kind,
    sentence: str,
    default: Any = MISSING,
    *,
    default_factory: Any = MISSING,
    name: str = "",
    example: Any = None,
    decides: bool = True,
) -> Any:
    """A field of a dataclass that people write; `name` if their name for it is another one."""
    said = {"kind": kind, "sentence": sentence, "example": example, "decides": decides}
    metadata = {_DECLARED: {"name": name, **said}}
    return field(default=default, default_factory=default_factory, metadata=metadata)


@cache
def fields_of(part: type) -> tuple[Declared, ...]:
    """The declared fields of a dataclass, in order."""
    found = []
    for each in fields(part):
        if _DECLARED not in each.metadata:
            continue
        said = each.metadata[_DECLARED]
        default = each.default if each.default_factory is MISSING else each.default_factory()
        name = said["name"] or each.name
        called = {
            "name": name,
            "keyword": f"{name}_" if iskeyword(name) else name,
            "attribute": each.name,
        }
        found.append(Declared(**(said | called), default=default))
    return tuple(found)


def deciding(part: type) -> tuple[str, ...]:
    """The names of the fields that decisions depend on."""
    return tuple(each.name for each in fields_of(part) if each.decides)


def read(part: type, given: Mapping[str, Any]) -> dict[str, Any]:
    """The given fields of a dataclass, parsed, by attribute; None counts as not given."""
    if not given:
        return {}
    return {
        each.attribute: each.kind.parse(given[each.name], each.name)
        for each in fields_of(part)
        if given.get(each.name) is not None
    }


def changed(usual: T, given: Mapping[str, Any], **more: Any) -> T:
    """The usual value with the given fields changed; `usual` itself if nothing differs, so that
    most share it.
    """
    if not given and not more:
        return usual
    said = read(type(usual), given) | more
    if not said:
        return usual
    made: T = replace(usual, **said)  # type: ignore[type-var]
    return usual if made == usual else made


def shown(value: Any) -> dict[str, Any]:
    """The declared fields of a value as callers see them."""
    found = {}
    for each in fields_of(value.__class__):
        held = getattr(value, each.attribute)
        found[each.name] = None if held is None else each.kind.show(held)
    return found


def said(value: Any) -> dict[str, Any]:
    """The fields that decisions depend on and that differ from their default, as people write
    them.
    """
    return {
        each.name: each.kind.show(held)
        for each in fields_of(value.__class__)
        if each.decides and (held := getattr(value, each.attribute)) != each.default
    }


def written(given: Mapping[str, Any], *parts: type) -> dict[str, Any]:
    """The body of a call from checked keywords; fields that are not given are left to the
    server.
    """
    known = {each.keyword: each for part in parts for each in fields_of(part)}
    for name in given:
        if name not in known:
            raise TypeError(f"unknown keyword {name!r:.80}; {choices(name, known)}")
    body = {}
    for name, value in given.items():
        each = known[name]
        not_set = value is None or (value is False and each.default is False)
        if not not_set:
            body[each.name] = each.kind.show(each.kind.parse(value, each.name))
    return body
