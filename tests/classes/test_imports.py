"""Prices, scores and the broker know the model and nothing else, so each can be judged alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fair.test_imports import strangers

ENGINE = Path(__file__).parents[2] / "src" / "cede" / "engine"


@pytest.mark.parametrize("module", ["rights/price", "queue/score", "queue/budget", "state/saving"])
def test_the_module_imports_the_model_only(module: str) -> None:
    source = (ENGINE / f"{module}.py").read_text()
    assert "cede.engine" not in source
    assert strangers(source) == []
