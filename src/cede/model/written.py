"""JSON and YAML that people write, in an option or a file.

Both standard readers silently keep the last of two equal keys. Here a repeated key is an error that
names its line, as it is in the API.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from cede.model import bounds
from cede.model.errors import CedeError


class Unreadable(CedeError, ValueError):
    """A text that is neither JSON nor YAML, or that has a key twice."""

    def __init__(self, line: int, problem: str) -> None:
        super().__init__(f"line {line}: {problem}")
        self.line = line
        self.problem = problem


def read(text: str) -> Any:
    """The value of a JSON or YAML text; `Unreadable` names the line of the error."""
    try:
        return json.loads(text, object_pairs_hook=_unique_pairs)
    except (ValueError, RecursionError):
        pass  # YAML reads JSON too, and knows the line of the error
    import yaml

    try:
        _check_depth(text)
        return yaml.load(text, Loader=_loader())
    except Unreadable:
        raise
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise Unreadable(mark.line + 1 if mark else 1, _one_line(error.problem)) from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise Unreadable(1, _one_line(error)) from None


def _check_depth(text: str) -> None:
    """Refuse deeply nested texts: the fast loader recurses in C and would crash."""
    import yaml

    depth = 0
    for event in yaml.parse(text, Loader=_loader()):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > bounds.JSON_DEPTH_MAX:
                mark = event.start_mark
                raise Unreadable(
                    mark.line + 1 if mark else 1,
                    f"nested deeper than {bounds.JSON_DEPTH_MAX} levels",
                )
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


@cache
def _loader() -> Any:
    """The fastest safe loader available, with maps that refuse repeated keys."""
    import yaml

    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    class UniqueKeys(base):  # type: ignore[misc]
        pass

    def unique_map(loader: Any, node: Any) -> dict[Any, Any]:
        seen: set[tuple[str, str]] = set()
        for key, _ in node.value:
            name = (key.tag, str(key.value))
            if name in seen:
                line = key.start_mark.line + 1
                raise Unreadable(line, f"the key {key.value!r:.80} is there twice")
            seen.add(name)
        result: dict[Any, Any] = loader.construct_mapping(node, deep=True)
        return result

    UniqueKeys.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, unique_map)
    return UniqueKeys


def _unique_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError
    return result


def _one_line(problem: object) -> str:
    return " ".join(str(problem or "cannot be read").split())[:200]
