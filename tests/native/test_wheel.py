"""A wheel has the compiled command where there is a compiler, and the same in Python elsewhere."""

from __future__ import annotations

import os
import platform
import site
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.native.running import environment
from tests.native.servers import ID, Listening
from tests.support.wheels import built

pytestmark = [pytest.mark.system, pytest.mark.slow]


def installed(wheel: Path, home: Path) -> Path:
    """The scripts of a virtual environment in which pip put the wheel, without a compiler."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)
    pip = [sys.executable, "-m", "pip", "--python", str(home / "bin" / "python")]
    install = [*pip, "install", "--quiet", "--no-index", "--no-deps", str(wheel)]
    subprocess.run(install, env={**os.environ, "CC": "/nowhere"}, check=True)
    return home / "bin"


def script_in(wheel: Path) -> bytes:
    with zipfile.ZipFile(wheel) as opened:
        name = next(each for each in opened.namelist() if each.endswith("/scripts/cede"))
        return opened.read(name)


@pytest.mark.parametrize("without", [{}, {"CEDE_PURE": "1"}, {"CC": "/nowhere"}, {"CC": "false"}])
def test_the_command_of_a_wheel_works_where_it_is_installed(
    tmp_path: Path, listener: Listening, program: Path, without: dict[str, str]
) -> None:
    wheel = built(tmp_path, **without)
    assert script_in(wheel).startswith(b"#!/bin/sh\n" if without else b"\x7fELF")
    # Such as manylinux_2_36_x86_64: the C library that it needs.
    version = platform.libc_ver()[1].replace(".", "_")
    machines = "any" if without else f"manylinux_{version}_{platform.machine()}"
    assert wheel.name.endswith(f"-py3-none-{machines}.whl") or not version
    scripts = installed(wheel, tmp_path / "venv with a blank")
    env = environment(listener, tmp_path)
    command = [scripts / "cede", "submit", "--", "true"]
    assert subprocess.check_output(command, env=env, text=True) == f"{ID}\n"
    # What click does needs click, which is not in there; cede itself is that of the wheel.
    env["PYTHONPATH"] = os.pathsep.join(site.getsitepackages())
    for name in ("cede", "cede-python"):
        said = subprocess.check_output([scripts / name, "submit", "--help"], env=env, text=True)
        assert said.startswith("Usage: cede submit [OPTIONS]")
