"""Commands of an account that is not root, and of one on a system without user namespaces."""

from __future__ import annotations

import functools
import os
import pwd
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.support.sources import HERE

# A system in which no process may make a user namespace: those inside have no capability to change
# that, and the account stays what it was.
_WITHOUT = (
    *("unshare", "--user", "--map-current-user", "--keep-caps", "sh", "-c"),
    'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"',
    *("sh", "setpriv", "--ambient-caps=-all", "--inh-caps=-all", "--bounding-set=-all"),
)


def account() -> pwd.struct_passwd:
    """Who runs the commands: ourselves, unless that is root."""
    return pwd.getpwnam("nobody") if os.geteuid() == 0 else pwd.getpwuid(os.geteuid())


def command(*argv: object, namespaces: bool = True) -> list[str]:
    """What runs `argv` as the account."""
    who = account()
    ids = ("--reuid", str(who.pw_uid), "--regid", str(who.pw_gid), "--clear-groups")
    drop = ("setpriv", *ids) if os.geteuid() == 0 else ()
    return [*drop, *(() if namespaces else _WITHOUT), *map(str, argv)]


@functools.cache
def python() -> str:
    """An interpreter of our version that the account may run; or the test is skipped."""
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    # By itself too: whatever changed the account may have been let through where it is not.
    asked = (
        "import cede.server.run, subprocess, sys; sys.stdout.flush();"
        "subprocess.check_call([sys.executable, '-c', \"print('{}.{}'.format("
        "*__import__('sys').version_info))\"])"
    )
    for each in (sys.executable, f"/usr/bin/python{version}", f"/usr/local/bin/python{version}"):
        tried = subprocess.run(
            command(each, "-c", asked), env=environment(Path("/")), capture_output=True, text=True
        )
        if tried.returncode == 0 and tried.stdout.strip() == version:
            return each
    pytest.skip(f"NOT TESTED: {account().pw_name} can run no Python {version} with cede")


def environment(home: Path) -> dict[str, str]:
    """Of a command of the account, with this home."""
    path = [str(HERE.folder), *dict.fromkeys(sysconfig.get_paths()[each] for each in _LIBRARIES)]
    name = account().pw_name
    return {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": str(home),
        "USER": name,
        "LOGNAME": name,
        "PYTHONPATH": os.pathsep.join(path),
    }


_LIBRARIES = ("purelib", "platlib")


def own(folder: Path) -> Path:
    """A folder that belongs to the account and to nobody else."""
    folder.mkdir(mode=0o700)
    os.chown(folder, account().pw_uid, account().pw_gid)
    return folder
