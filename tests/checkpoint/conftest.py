from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.checkpoint.hosting import Host

with suppress(ImportError):  # other tests of this process fork beside it
    from cede.talk import unforked  # noqa: F401


@pytest.fixture(params=["signal", "shm", "grpc"])
def host(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Host]:
    """A host of each protocol, in a place whose path is too long for the address of a socket."""
    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    host = Host(folder, request.param)
    yield host
    host.close()
