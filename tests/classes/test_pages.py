"""What the pages say of price and score is what the code does."""

from __future__ import annotations

import json
from dataclasses import astuple, fields
from pathlib import Path
from typing import Any

import pytest

from cede.engine.admin.presets import PRESETS
from cede.engine.queue.budget import penalty
from cede.engine.queue.score import DEFAULT, PROFILES, Factors
from cede.engine.rights.price import Shield, Stopping, price_of, value_of
from cede.engine.state.saving import Running, cost_of, due_at
from cede.model.policy import Kind
from cede.model.settings import Settings
from cede.model.stopping import Checkpoint
from tests.classes.cases import NOW
from tests.docs.names import rows

EXPLANATION = Path(__file__).parents[2] / "docs" / "explanation"
PRICE = (EXPLANATION / "price.md").read_text()
SCORE = (EXPLANATION / "score.md").read_text()
MINUTE = 60_000


def table(text: str, heading: str, name: str = r"\w+") -> list[list[str]]:
    """The rows of the one table whose first line begins so."""
    (part,) = text.split(heading)[1:]
    return rows(part.split("\n\n")[0], name)


def minutes(cell: str) -> int | None:
    return int(cell) * MINUTE if cell else None


def test_the_worked_prices_come_true() -> None:
    shown = table(PRICE, "| holder | type |", r"[a-z]+")
    assert len(shown) == 7
    for _, kind, nodes, gpus, checkpoint, says, run, saved, walltime, *parts in shown:
        price = price_of(
            Stopping(
                NOW,
                Checkpoint(checkpoint),
                started_at=NOW - int(run) * MINUTE,
                last_checkpoint_at=NOW - int(saved) * MINUTE if saved else None,
                estimate=minutes(says),
                walltime=minutes(walltime),
                nodes=int(nodes),
                gpus_per_node=int(gpus),
                kind=Kind(kind),
            )
        )
        found = (price.checkpoint, price.recompute, price.remaining, price.total)
        assert found == tuple(float(part) for part in parts)


def test_the_order_that_the_page_names_is_that_of_its_prices() -> None:
    prices = {row[0]: float(row[-1]) for row in table(PRICE, "| holder | type |", r"[a-z]+")}
    assert sorted(prices, key=prices.__getitem__)[:4] == ["quick", "plain", "shell", "training"]


def test_waiters_are_worth_what_the_page_says() -> None:
    shown = table(PRICE, "| waiter | nodes |", r"[a-z]+")
    assert len(shown) == 3
    for _, nodes, gpus, walltime, rank, worth in shown:
        assert value_of(minutes(walltime), int(rank), int(nodes), int(gpus)) == float(worth)


def test_every_shield_is_on_the_page() -> None:
    shown = table(PRICE, "| shield | protected holders |", r"`\w+`")
    assert [row[0].strip("`") for row in shown] == [str(each) for each in Shield]


def test_the_worked_checkpoints_come_true() -> None:
    at_home = Running(NOW, 0, gpus_per_node=4)
    borrowed = Running(NOW, 0, gpus_per_node=4, borrowed=True)
    assert cost_of(at_home) == pytest.approx(41.6) and "= 41.6." in PRICE
    home, away = (round((due_at(each) or 0) / 1000, 1) for each in (at_home, borrowed))
    assert home == 10_400 and "after 10,400\nseconds" in PRICE
    assert away == 945.5 and "4 × 0.011, so after 945.5." in PRICE


def test_every_factor_is_on_the_page() -> None:
    shown = [row[0].strip("`") for row in table(SCORE, "| factor | value |", r"`\w+`")]
    assert shown == list(Factors.__dataclass_fields__)


def test_the_weights_are_those_of_the_page() -> None:
    shown: dict[Any, tuple[float, ...]] = {
        row[0]: tuple(float(each) for each in row[1:])
        for row in table(SCORE, "| type | priority |", r"[a-z_ ]+")
    }
    wanted = {str(kind): astuple(weights) for kind, weights in PROFILES.items()}
    assert shown == wanted | {"without a profile": astuple(DEFAULT)}


def test_the_penalties_are_those_of_the_page() -> None:
    used, left = (row[1:] for row in rows(SCORE.split("## Budgets")[1], r"used|penalty"))
    assert len(used) == 6
    for part, shown in zip(used, left, strict=True):
        assert round(penalty(float(part)), 3) == float(shown)


def test_presets_differ_as_the_page_says() -> None:
    text = (EXPLANATION.parent / "reference" / "settings.md").read_text()
    names, *shown = rows(text.split("## Presets")[1].split("\n\n## ")[0], r"setting|`\w+`")
    presets = [PRESETS[name.strip("`")] for name in names[1:]]
    assert len(presets) == len(PRESETS)
    wanted = {
        each.name: [json.dumps(preset.shown(each.name)).strip('"') for preset in presets]
        for each in fields(Settings)
        if len({str(getattr(preset, each.name)) for preset in presets}) > 1
    }
    assert {row[0].strip("`"): [cell.strip("`") for cell in row[1:]] for row in shown} == wanted
