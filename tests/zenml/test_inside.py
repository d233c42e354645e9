"""Checks that ZenML's own Python runs; one process for all of them, because it starts slowly."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.zenml.world import PROJECT, PYTHON, START_SECONDS, clean_environment

pytestmark = [pytest.mark.zenml, pytest.mark.system, pytest.mark.timeout(START_SECONDS + 60)]


def test_what_needs_zenmls_classes_and_no_server(zenml_is_here: None, tmp_path: Path) -> None:
    done = subprocess.run(
        [PYTHON, PROJECT / "inside.py"],
        env={**clean_environment(), "ZENML_CONFIG_PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=START_SECONDS,
    )
    assert done.returncode == 0, done.stderr
