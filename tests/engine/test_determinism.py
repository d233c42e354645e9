"""The same history gives the same plans and snapshot, byte for byte, under any hash seed."""

from __future__ import annotations

import hashlib
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from cede.engine.decide import decide
from cede.engine.explain.why import why
from cede.snapshot.writer import dump
from tests.engine.histories import History, world

ROOT = Path(__file__).parents[2]


def fingerprint(seed: int) -> str:
    """A digest of everything that a few long histories decided, said and left behind."""
    digest = hashlib.sha256()
    for shape in range(8):
        dice = random.Random(seed * 8 + shape)
        history = History(world(shape))
        for _ in range(60):
            history.do((dice.randint(0, 13), *(dice.randint(0, 9) for _ in range(3))))  # type: ignore[arg-type]
            digest.update(repr(decide(history.state, history.now)).encode())
        for request_id in history.state.requests:
            if not history.state.requests[request_id].ended:
                told = why(history.state, request_id, history.now)
                digest.update(json.dumps(told).encode())
        digest.update(json.dumps(dump(history.state, history.now)).encode())
        digest.update(repr(history.state.drain()).encode())
    return digest.hexdigest()


@pytest.mark.slow
def test_hash_seeds_change_nothing() -> None:
    found = set()
    for hash_seed in ("0", "1", "4242"):
        command = "from tests.engine.test_determinism import fingerprint; print(fingerprint(7))"
        done = subprocess.run(
            [sys.executable, "-c", command],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
        found.add(done.stdout.strip())
    assert len(found) == 1
