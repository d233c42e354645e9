"""The options by which a command says what it needs; `cede run` and `cede request create` share
them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import click

from cede.cli.context import Amounts, Pairs, PoolName, component_type_option, merged
from cede.model.terms import CLASS_DEFAULT, CLASS_MAX, CLASS_MIN

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS: list[Callable[[Any], Any]] = [
    click.option("--gpu", type=click.IntRange(min=0), help="How many GPUs."),
    click.option("--cpu", help="How many processors, such as 4 or 0.5."),
    click.option("--memory", help="How much memory, such as 16GiB."),
    click.option("--resources", type=Amounts(), help="Other keys, such as '{\"tpu\": 1}'."),
    click.option("--pool", type=PoolName(), help="Only this pool."),
    click.option("--component", help="Who asks; the token's first subject unless given."),
    component_type_option(),
    click.option(
        "--preemptible/--non-preemptible",
        default=True,
        show_default=True,
        help="Whether it may be stopped for others.",
    ),
    click.option(
        "--preemptions",
        type=click.Choice(["free", "count"]),
        default=None,
        help="Whether being preempted uses up a retry; free unless given.",
    ),
    click.option("--walltime", type=float, help="Seconds after which it surely ends."),
    click.option("--lease", help="Seconds of silence after which it is given up, or none."),
    click.option("--label", multiple=True, metavar="NAME=VALUE", help="May be given often."),
]

_TERMS: list[Callable[[Any], Any]] = [
    click.option(
        "--class",
        "class_",
        type=click.IntRange(CLASS_MIN, CLASS_MAX),
        help=f"Its preemption class; {CLASS_DEFAULT} unless given.",
    ),
    click.option("--sensitive", is_flag=True, help="Never stopped for anybody, if it may."),
    click.option("--tenant", help="Whose it is, for quotas and accounts."),
    click.option(
        "--limit",
        multiple=True,
        type=Pairs(),
        help="The most that all its tasks may hold together.",
    ),
    click.option(
        "--weight", type=float, help="Its part of what its policy shares; 1 unless given."
    ),
    click.option(
        "--set",
        "own_settings",
        multiple=True,
        metavar="NAME=VALUE",
        help="Its own setting, where the pool shares fairly.",
    ),
    click.option(
        "--retries",
        type=click.IntRange(min=0),
        default=0,
        show_default=True,
        help="How often it is tried again after it failed.",
    ),
]

_FAREWELL: list[Callable[[Any], Any]] = [
    click.option(
        "--checkpoint",
        type=click.Choice(["auto", "manual", "none"]),
        default=None,
        help="Whether it is asked to save itself before it is stopped.",
    ),
    click.option(
        "--checkpoint-timeout", type=float, help="Seconds that saving may take; 600 unless given."
    ),
    click.option(
        "--max-deferral",
        type=float,
        help="Seconds that saving may be put off in all; 300 unless given.",
    ),
    click.option(
        "--protocol",
        "checkpoint_protocol",
        type=click.Choice(["signal", "shm", "grpc"]),
        default=None,
        help="How it is asked; signal unless given.",
    ),
    click.option(
        "--interruptible", is_flag=True, help="Ending with code 0 when stopped means done."
    ),
    click.option(
        "--resume",
        type=click.Choice(["preferred", "required"]),
        default=None,
        help="Whether it may start anew if its checkpoint cannot be read; preferred unless given.",
    ),
    click.option(
        "--resume-wait",
        type=float,
        help="Seconds to wait for nodes that have its checkpoint; 600 unless given.",
    ),
]


def demand_options(function: F) -> F:
    return _with(_OPTIONS + _TERMS, function)


def farewell_options(function: F) -> F:
    """How it parts from its units."""
    return _with(_FAREWELL, function)


def _with(options: list[Callable[[Any], Any]], function: F) -> F:
    for option in reversed(options):
        function = option(function)
    return function


def submission_of(
    *,
    label: tuple[str, ...] = (),
    lease: str | None = None,
    limit: tuple[dict[str, int], ...] = (),
    own_settings: tuple[str, ...] = (),
    **given: Any,
) -> dict[str, Any]:
    """The body of a request from these options."""
    from cede.client.demand import submission

    return submission(
        labels=dict(pairs("--label", label)),
        lease=_lease(lease),
        limit=merged("--limit", limit),
        settings=settings_of("--set", own_settings),
        **given,
    )


def settings_of(option: str, given: Iterable[str]) -> dict[str, Any]:
    """NAME=VALUE, a value being what YAML makes of it: a number, a word, true, a map."""
    import yaml

    found = {}
    for name, text in pairs(option, given):
        try:
            found[name] = yaml.safe_load(text)
        except yaml.YAMLError:
            raise click.UsageError(f"{option}: the value of {name} cannot be read") from None
    return found


def pairs(option: str, given: Iterable[str]) -> list[tuple[str, str]]:
    """NAME=VALUE, as often as it was given."""
    found = []
    for each in given:
        name, equals, value = each.partition("=")
        if not equals or not name:
            raise click.UsageError(f"{option} wants NAME=VALUE, not {each!r}")
        found.append((name, value))
    return found


def _lease(text: str | None) -> float | str | None:
    if text is None or text == "none":
        return text
    try:
        return float(text)
    except ValueError:
        raise click.UsageError(f"--lease wants seconds or none, not {text!r}") from None
