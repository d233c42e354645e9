"""A server that is killed has the history of its pools when it is back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.client.serving import Serving

ASKED = {"component": "red", "component_type": "team", "resources": {"gpu": 3}, "lease": None}


@pytest.mark.system
def test_levels_and_usage_are_there_after_a_kill(tmp_path: Path) -> None:
    serving = Serving(tmp_path / "data")
    try:
        with serving.client() as client:
            client.pools.create("gpus", {"gpu": 4})
            client.policies.attach("gpus", "red", component_type="team", priority=1)
            client.requests.create(ASKED)
        serving.kill()
        serving.start()
        with serving.client() as client:
            (used,) = client.usage(by="team", begin="2020-01-01", days=True)["items"]
            assert used["name"] == "red" and used["gpu_hours"] > 0 and used["starts"] == 1
            points: list[Any] = []
            # A minute that was noted before the pool was there has its note: the next is awaited.
            while not points:
                points = client.pool_history("gpus", since=3600)["items"]
            assert points[-1]["keys"]["gpu"]["used"] == 3
            assert points[-1]["keys"]["gpu"]["free"] == 1
    finally:
        serving.stop()
