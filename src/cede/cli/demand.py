"""Options that state a demand; `cede run`, `cede submit` and `cede request create` share them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from cede.cli.context import PoolName, RequestId, TeamName, TenantName, component_type_option
from cede.cli.values import (
    NONE,
    Count,
    Duration,
    OneOf,
    Written,
    amounts_option,
)
from cede.model import bounds
from cede.model.amounts import parse_memory, parse_processors
from cede.model.terms import CLASS_DEFAULT, CLASS_MAX, CLASS_MIN

F = TypeVar("F", bound=Callable[..., Any])

_PROCESSORS, _SIZE = Written("N", parse_processors), Written("SIZE", parse_memory)
_OPTIONS: list[Callable[[Any], Any]] = [
    click.option("--gpu", type=Count(), help="How many GPUs."),
    click.option("--cpu", type=_PROCESSORS, help="How many processors, such as 4 or 0.5."),
    click.option("--memory", type=_SIZE, help="How much memory, such as 16GiB."),
    amounts_option("--resources", help="Other keys, such as tpu=1."),
    click.option("--pool", type=PoolName(), help="Only this pool."),
    click.option(
        "--component",
        type=TeamName(),
        metavar="NAME",
        help="The subject that asks; the token's first one unless given.",
    ),
    component_type_option(),
    click.option(
        "--preemptible/--non-preemptible",
        default=True,
        show_default=True,
        help="Whether it may be stopped for others.",
    ),
    click.option(
        "--preemptions",
        type=OneOf(["free", "count"]),
        default=None,
        help="Whether being preempted uses up a retry; free unless given.",
    ),
    click.option("--walltime", type=Duration(), help="After which it surely ends, such as 1h30m."),
    click.option(
        "--lease",
        type=Duration(word=NONE, most=bounds.LEASE_MAX),
        help="Silence after which it is given up, such as 10m, or none.",
    ),
    click.option("--label", multiple=True, metavar="NAME=VALUE", help="May be given often."),
    click.option("--comment", metavar="TEXT", help="What people should know of it."),
    click.option(
        "--after",
        multiple=True,
        type=RequestId(),
        metavar="ID[,ID]",
        help="Start when these have ended well; if one does not, this is cancelled.",
    ),
    click.option(
        "--after-any",
        multiple=True,
        type=RequestId(),
        metavar="ID[,ID]",
        help="Start when these have ended, well or not.",
    ),
]

_TERMS: list[Callable[[Any], Any]] = [
    click.option(
        "--class",
        "class_",
        type=click.IntRange(CLASS_MIN, CLASS_MAX),
        help=f"Its preemption class; {CLASS_DEFAULT} unless given.",
    ),
    click.option(
        "--sensitive", is_flag=True, help="Never stopped for others, where its policy allows that."
    ),
    click.option(
        "--tenant",
        type=TenantName(),
        metavar="NAME",
        help="The tenant it counts for, in quotas and accounts.",
    ),
    amounts_option("--limit", help="The most that all its tasks may hold together."),
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

_STOP_PROGRESS = Duration(most=bounds.CHECKPOINT_TIMEOUT_MAX)
_STOP_POLICY: list[Callable[[Any], Any]] = [
    click.option(
        "--checkpoint",
        type=OneOf(["auto", "manual", "none"]),
        default=None,
        help="Whether it is asked to save itself before it is stopped.",
    ),
    click.option(
        "--checkpoint-timeout",
        type=_STOP_PROGRESS,
        help="How long saving may take; 10m unless given.",
    ),
    click.option(
        "--max-deferral",
        type=_STOP_PROGRESS,
        help="How long saving may be put off in all; 5m unless given.",
    ),
    click.option(
        "--protocol",
        "checkpoint_protocol",
        type=OneOf(["signal", "shm", "grpc"]),
        default=None,
        help="How it is asked; signal unless given.",
    ),
    click.option(
        "--interruptible", is_flag=True, help="Ending with code 0 when stopped means done."
    ),
    click.option(
        "--resume",
        type=OneOf(["preferred", "required"]),
        default=None,
        help="Whether it may start anew if its checkpoint cannot be read; preferred unless given.",
    ),
    click.option(
        "--resume-wait",
        type=_STOP_PROGRESS,
        help="How long to wait for nodes that have its checkpoint; 10m unless given.",
    ),
]


def demand_options(function: F) -> F:
    return _with(_OPTIONS + _TERMS, function)


def stop_policy_options(function: F) -> F:
    """Add the options of a request's stop policy."""
    return _with(_STOP_POLICY, function)


def _with(options: list[Callable[[Any], Any]], function: F) -> F:
    for option in reversed(options):
        function = option(function)
    return function
