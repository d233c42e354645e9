"""The import contracts of pyproject.toml hold what they say, shown on a package that breaks them.

That the real package keeps them is `make check`. This shows that each contract can fail: contracts
whose packages are optional would be silent about a name that was misspelt in them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.tidy.tree import ROOT

FORBIDDEN = {
    "cede.model.pool": "cede.engine.ledger.account",
    "cede.engine.ledger.account": "cede.store.journal",
    "cede.engine.rights.cover": "cede.launch.local",
    "cede.engine.rights.standing": "cede.engine.nodes.inventory",
    "cede.engine.lifecycle.endings": "cede.engine.steps.grant",
    "cede.engine.steps.preempt": "cede.engine.explain.why",
    "cede.engine.explain.why": "cede.snapshot.reader",
    "cede.snapshot.writer": "cede.server.app",
    "cede.checkpoint.loop": "cede.model.pool",
    "cede.talk.hint": "cede.engine.ledger.account",
    "cede.store.journal": "cede.server.app",
    "cede.server.app": "cede.client.api",
    "cede.client.api": "cede.engine.ledger.account",
    "cede.client.step": "cede.server.app",
    "cede.launch.supervisor": "cede.client.api",
    "cede.launch.spec": "cede.server.app",
    "cede.integrations.plug": "cede.engine.ledger.account",
    "cede.integrations.socket": "cede.server.app",
    "cede.client.plugged": "cede.integrations.plug",
    "cede.sim.run": "cede.store.journal",
    "cede.sim.trace": "cede.client.api",
    "cede.cli.main": "cede.engine.ledger.account",
    "cede.cli.status": "cede.server.app",
    "cede.cli.top": "cede.store.journal",
    "cede.cli.node": "cede.agent.runner",
    "cede.agent.link": "cede.server.app",
    "cede.client.node": "cede.agent.runner",
}

ALLOWED = {
    "cede.talk.poll": "cede.checkpoint.verify",
    "cede.engine.explain.why": "cede.model.pool",
    "cede.store.schema": "cede.engine.explain.why",
    "cede.server.routes": "cede.store.schema",
    "cede.server.version": "cede",
    "cede.server.plan": "cede.sim.report",
    "cede.client.wait": "cede.model.pool",
    "cede.launch.places": "cede.model.pool",
    "cede.integrations.wire": "cede.client.wait",
    "cede.sim.report": "cede.engine.explain.why",
    "cede.cli.ask": "cede.client.wait",
    "cede.cli.plan": "cede.sim.report",
    "cede.cli.server_command": "cede.server.routes",
    "cede.cli.agent_command": "cede.agent.runner",
    "cede.agent.wire": "cede.client.wait",
    "cede.agent.keep": "cede.launch.places",
}

# What the root offers its users under short names binds nobody who imports the root.
ROOT_NAMES = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import cede.client.wait\n"


def lint(folder: Path, imports: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Check the real contracts on a package that consists of these imports only."""
    for module in {*imports, *imports.values(), "cede.client.wait"} - {"cede"}:
        file = folder / "src" / Path(*module.split(".")).with_suffix(".py")
        file.parent.mkdir(parents=True, exist_ok=True)
        for package in (file.parent, file.parent.parent):
            (package / "__init__.py").touch()
        file.write_text(f"import {imports[module]}\n" if module in imports else "")
    (folder / "src/cede/__init__.py").write_text(ROOT_NAMES)
    program = Path(sys.executable).with_name("lint-imports")
    return subprocess.run(
        [program, "--no-cache", "--no-logo", "--config", ROOT / "pyproject.toml"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder / "src")},
        capture_output=True,
        text=True,
    )


def test_every_import_against_the_stream_is_found(tmp_path: Path) -> None:
    result = lint(tmp_path, FORBIDDEN)
    links = [f"{importer} -> {imported}" for importer, imported in FORBIDDEN.items()]
    unseen = [link for link in links if link not in result.stdout]
    assert not unseen, f"{unseen}\n{result.stdout}{result.stderr}"
    assert "0 kept" in result.stdout, result.stdout


def test_imports_with_the_stream_pass(tmp_path: Path) -> None:
    result = lint(tmp_path, ALLOWED)
    assert result.returncode == 0, result.stdout + result.stderr
