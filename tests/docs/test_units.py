"""The units of systemd are what systemd accepts, and start commands that there are."""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from cede.cli.commands import cli

ROOT = Path(__file__).parents[2]
UNITS = sorted((ROOT / "packaging" / "systemd").glob("*.service"))
PROGRAM = "/opt/cede/bin/cede"


def verified(unit: Path, text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """What systemd says of a unit; the program of cede is not installed here, so another is."""
    copy = folder / unit.name
    copy.write_text(text.replace(PROGRAM, "/bin/true"))
    command = ["systemd-analyze", "verify", str(copy)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("unit", UNITS, ids=lambda each: each.stem)
def test_systemd_accepts_the_unit(unit: Path, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze: the units were not verified (Debian: systemd)")
    found = verified(unit, unit.read_text(), tmp_path)
    assert (found.returncode, found.stdout + found.stderr) == (0, "")


def test_a_unit_that_systemd_does_not_know_is_found(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze: the units were not verified (Debian: systemd)")
    wrong = UNITS[0].read_text().replace("[Install]", "Restrat=always\n[Install]")
    found = verified(UNITS[0], wrong, tmp_path)
    assert "Restrat" in found.stdout + found.stderr


@pytest.mark.parametrize("unit", UNITS, ids=lambda each: each.stem)
def test_the_unit_starts_a_command_that_there_is(unit: Path) -> None:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(unit)
    program, command, *options = parser["Service"]["ExecStart"].split()
    assert program == PROGRAM
    if command == "up":  # its options are the server's own
        text = (ROOT / "src" / "cede" / "server" / "config.py").read_text()
        text += (ROOT / "docs" / "reference" / "server.md").read_text()
    else:
        text = CliRunner().invoke(cli, [command, "--help"]).output
    for option in re.findall(r"--[a-z-]+", " ".join(options)):
        assert option in text, option


def test_the_page_names_every_unit() -> None:
    page = (ROOT / "docs" / "how-to" / "service.md").read_text()
    assert len(UNITS) == 2
    assert [each.name for each in UNITS if each.name not in page] == []
