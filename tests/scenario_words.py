"""The words of stories: names, amounts, options."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Any

from cede.model.policy import OF_POLICY
from cede.model.settings import Settings
from cede.model.terms import OF_REQUEST, Terms, parse_terms

SETTINGS = tuple(each.name for each in fields(Settings))
_USUAL = Settings()
FLAGS = ("fixed", "keep", "free", "interruptible", "nodes", "force", "sensitive", "together")
# What an operator types: a duration in seconds, with or without its unit.
NUMBER = re.compile(r"(\d+(?:\.\d+)?)(s?)")


def names_in(word: str) -> list[str]:
    """`r1..r3` and `r1,r2` are several."""
    if ".." not in word:
        return [word]
    first, last = word.split("..")
    stem = first.rstrip("0123456789")
    low, high = int(first[len(stem) :]), int(last[len(stem) :])
    return [f"{stem}{number}" for number in range(low, high + 1)]


def options_of(words: list[str]) -> tuple[dict[str, int], dict[str, str]]:
    """Amounts first, then options with their values; those in FLAGS have none."""
    amounts, rest = amounts_of(words)
    options: dict[str, str] = {}
    at = 0
    while at < len(rest):
        if rest[at] in FLAGS:
            options[rest[at]] = ""
            at += 1
        else:
            options[rest[at]] = rest[at + 1]
            at += 2
    return amounts, options


def amounts_of(words: list[str]) -> tuple[dict[str, int], list[str]]:
    known = {"gpu", "mcpu", "memory_mb", "step_run", "licence"}
    if words and words[0].isdigit() and (len(words) == 1 or words[1] not in known):
        return {"gpu": int(words[0])}, words[1:]
    amounts: dict[str, int] = {}
    while len(words) > 1 and words[0].isdigit() and words[1] in known:
        amounts[words[1]] = int(words[0])
        words = words[2:]
    return amounts, words


_POLICY = {
    "lends": "allow_lending",
    "borrows": "allow_borrowing",
    "lending": "max_borrow_pct",
}


def home_of(word: str) -> Any:
    """`rack=a` are labels, `n1,n2` names, `none` is no home."""
    if word == "none":
        return []
    return labels_of(word) if "=" in word else word.split(",")


def policy_words(words: list[str]) -> dict[str, Any]:
    given: dict[str, Any] = {}
    while words:
        name, words = words[0], words[1:]
        if name in ("priority", "max_class"):
            given[name], words = int(words[0]), words[1:]
        elif name == "under":
            given["parent"], words = words[0], words[1:]
        elif name == "sensitive":
            given["allow_sensitive"], words = words[0] == "yes", words[1:]
        elif name in ("weight", "lending"):
            given[_POLICY.get(name, name)], words = float(words[0]), words[1:]
        elif name in ("mode", "type"):
            given[name], words = words[0], words[1:]
        elif name in ("lends", "borrows"):
            given[_POLICY[name]], words = words[0] == "yes", words[1:]
        elif name == "home":
            given[name], words = home_of(words[0]), words[1:]
        elif name == "return_grace":
            given[name], words = milliseconds(words[0]) / 1000, words[1:]
        elif name in ("burst", "relaxed"):
            given["integral"], words = _integral(name, words)
        elif name in OF_POLICY:
            given.setdefault("settings", {}).update(settings_of({name: words[0]}))
            words = words[1:]
        else:
            given[name], words = amounts_of(words)
    return given


def _integral(kind: str, words: list[str]) -> tuple[dict[str, Any], list[str]]:
    """`burst 4 flow 2`: up to 4 at once, saved at 2 a second; `relaxed flow 2`."""
    made: dict[str, Any] = {"guarantee_type": kind}
    if kind == "burst":
        made["burst_guarantee_resources"], words = amounts_of(words)
    assert words[0] == "flow", words
    made["resource_flow"], words = amounts_of(words[1:])
    return made, words


def settings_of(options: dict[str, str]) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for name, value in options.items():
        assert name in SETTINGS, f"no setting {name}"
        number = NUMBER.fullmatch(value)
        is_whole = number is not None and not number[2] and "." not in value
        settings[name] = int(value) if is_whole else float(number[1]) if number else value
        if isinstance(getattr(_USUAL, name), bool):
            settings[name] = value == "yes"
        if name == "non_preemptible_resource_usage_threshold":
            settings[name] = {"gpu": int(value)}
    return settings


def terms_of(options: dict[str, str]) -> Terms:
    """`class 7 tenant bio most 4 weight 2 sensitive`: `most` is the limit of the request itself, in
    GPUs. It may also have settings of its own.
    """
    own = settings_of({name: options[name] for name in OF_REQUEST if name in options})
    return parse_terms(
        preemption_class=int(options["class"]) if "class" in options else None,
        sensitive="sensitive" in options,
        tenant=options.get("tenant"),
        limit={"gpu": int(options["most"])} if "most" in options else None,
        settings=own or None,
        weight=float(options["weight"]) if "weight" in options else None,
    )


def milliseconds(word: str) -> int:
    match = NUMBER.fullmatch(word)
    assert match, f"{word} is no duration"
    return int(float(match[1]) * 1000)


def labels_of(word: str) -> dict[str, str]:
    """`type=a100,zone=b`."""
    return dict(each.split("=", 1) for each in word.split(",")) if word else {}
