"""The committed code of checkpoint.proto is what scripts/protocol writes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GENERATED = ROOT / "src" / "cede" / "checkpoint" / "generated"


@pytest.mark.parametrize("name", ["checkpoint_pb2.py", "checkpoint_pb2.pyi"])
def test_it_is_fresh(name: str, tmp_path: Path) -> None:
    pytest.importorskip("grpc_tools")
    subprocess.run([ROOT / "scripts" / "protocol", tmp_path], check=True)
    assert (GENERATED / name).read_text() == (tmp_path / name).read_text()
