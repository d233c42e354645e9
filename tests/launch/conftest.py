"""Each means of containment that this machine has, probed once."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cede.launch.probe import KINDS, Containment, probe
from cede.model.errors import Invalid
from tests.launch.support import Attempt

NAME = f"cede-test-{os.getpid()}"


def _probed(only: str | None) -> Containment | str:
    try:
        return probe(NAME, only)
    except Invalid as error:
        return str(error)


@pytest.fixture(scope="session")
def means_here() -> Iterator[dict[str, Containment | str]]:
    """Every kind, with its containment or with the reason why it is not to be had."""
    found = {kind: _probed(kind) for kind in KINDS}
    yield found
    for each in found.values():
        if isinstance(each, Containment):
            for place in (each.at, *(at for _, at in each.limits.values())):
                # Two kinds share the directories of the limits.
                with contextlib.suppress(FileNotFoundError):
                    Path(place or "/nowhere").rmdir()


@pytest.fixture(params=KINDS)
def each_means(
    request: pytest.FixtureRequest, means_here: dict[str, Containment | str]
) -> Containment:
    found = means_here[request.param]
    if isinstance(found, str):
        pytest.skip(f"NOT TESTED: no {request.param} here: {found}")
    return found


@pytest.fixture(scope="session")
def containment(means_here: dict[str, Containment | str]) -> Containment:
    """The best one."""
    return next(each for each in means_here.values() if isinstance(each, Containment))


Make = Callable[..., Attempt]


@pytest.fixture
def make(tmp_path: Path, containment: Containment) -> Iterator[Make]:
    """Makes attempts, and cleans up after them."""
    made: list[Attempt] = []

    def one(*argv: str, **more: Any) -> Attempt:
        means = more.pop("containment", containment)
        made.append(Attempt(tmp_path, means, list(argv), **more))
        return made[-1]

    yield one
    for each in made:
        each.clean_up()
