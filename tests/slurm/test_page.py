"""The page about Slurm comes out as it says; its commands are the reader's, its Slurm is ours."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from tests.client.serving import Serving
from tests.docs.blocks import missing
from tests.docs.test_typed_pages import PATIENCE, typed
from tests.slurm.cluster import Cluster
from tests.slurm.world import World

PAGE = "docs/how-to/slurm.md"


@pytest.mark.system
@pytest.mark.timeout(PATIENCE + 100)
def test_the_page_comes_out_as_it_says(
    slurm: Cluster, standing: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside the bridge of another server on this machine, which has the same name."""
    monkeypatch.setenv("SLURM_CONF", slurm.env["SLURM_CONF"])
    with tempfile.TemporaryDirectory(prefix="cede-page-", ignore_cleanup_errors=True) as name:
        home = Path(name)
        home.chmod(0o755)
        (home / "here").mkdir()
        # Its nodes stay ready also where nobody has time to call for half a minute.
        server = Serving(home / "data", options=("--no-agent", "--heartbeat", "10"))
        try:
            found, done = typed(PAGE, server, home / "here")
        finally:
            server.stop()
            slurm.settle()
        bridge = (home / "here" / "bridge.log").read_text()
    for block, (printed, code) in zip(found, done, strict=False):
        assert code == 0, f"{block.commands}\nended with {code}:\n{printed}\n{bridge}"
        absent = missing(block.shows, printed)
        assert not absent, f"{block.commands}\ndid not print {absent}, but:\n{printed}"
    assert len(done) == len(found), f"the shell ended early, after\n{done[-1:]}"
