"""The landed versions from which an upgrade to the working tree is tested.

When a version lands, append its commit and the numbers that it brought: whoever runs it will
upgrade from there. A version leaves the list when cede no longer promises to upgrade from it, or
when it stands between two others that wrote the same: one protocol, one revision of the database,
and the same files of attempts.

Not every version is tested in every way:

- Of every version a full SQLite database, with agents and running work, opens in the working tree
  and goes on: only it shows what that version wrote.
- On PostgreSQL those of the oldest and the newest do. The oldest runs every migration there; the
  newest is what most people come from.
- A rolling upgrade amid stops depends on what agents and servers say to each other, so the last
  version of each protocol is upgraded so.
"""

from __future__ import annotations

from typing import NamedTuple


class Version(NamedTuple):
    commit: str
    protocol: int  # of its agents
    revision: str  # of its database


VERSIONS = (
    Version("9db244fb4d56ca6768528e79f7d021de711e4417", 1, "0003"),
    Version("a57e47531844abc5d999e18e12d125cc076f9c29", 2, "0005"),
    Version("1b5b7c70ada71e6ba78671fbe1d808d4a9fe1cc4", 3, "0007"),
    Version("3b2612015a9d55dbd07f79c1e3e71605018be2ce", 3, "0011"),
    Version("1290e335063ea636cd2044fbb19fb753502dfda1", 3, "0013"),
    Version("c78fe5b60bb19ffd9369c698b194765ab957a9cc", 3, "0014"),
    Version("29d6dc46076e16cbbc38b5edcbd0b399cfeae54a", 3, "0014"),
    Version("c65ed71c55285f2bbc2c8a383d8054e1c26f6dfd", 3, "0014"),
    Version("c1d61865114e6f90bbc4f0157591ed04885ff6aa", 3, "0014"),
)
ENDS = (VERSIONS[0], VERSIONS[-1])
LAST_OF_PROTOCOL = tuple({each.protocol: each for each in VERSIONS}.values())


def name(version: Version) -> str:
    return version.commit[:7]
