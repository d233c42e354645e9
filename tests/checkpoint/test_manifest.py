"""What verifies is a checkpoint; whatever else lies there is refused with a reason."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cede.checkpoint import manifest
from cede.checkpoint.manifest import NotACheckpoint, verify, write

ID = "000042-1"


def good(directory: Path) -> Path:
    """A checkpoint of two files, one of them empty and in a folder."""
    folder = directory / ID
    (folder / "deep").mkdir(parents=True)
    (folder / "weights").write_bytes(b"0123456789" * 1000)
    (folder / "deep" / "empty").touch()
    write(directory, ID, 42, {"loss": "0.5"})
    return folder


def edit(directory: Path, change: Callable[[dict[str, Any]], object]) -> None:
    path = directory / f"{ID}.manifest.json"
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))


def test_what_was_written_verifies(tmp_path: Path) -> None:
    folder = good(tmp_path)
    saved = verify(tmp_path, ID)
    assert (saved.id, saved.step, saved.path, saved.labels) == (ID, 42, folder, {"loss": "0.5"})
    assert [(file.path, file.size) for file in saved.files] == [
        ("deep/empty", 0),
        ("weights", 10_000),
    ]
    assert saved.size == 10_000
    assert sorted(path.name for path in tmp_path.iterdir()) == [ID, f"{ID}.manifest.json"]


def test_progress_grows_to_the_whole(tmp_path: Path) -> None:
    (tmp_path / ID).mkdir()
    for name in "abc":
        (tmp_path / ID / name).write_bytes(bytes(3 * 1024 * 1024))
    write(tmp_path, ID, 1)
    seen: list[tuple[int, int]] = []
    verify(tmp_path, ID, lambda done, total: seen.append((done, total)))
    assert [done for done, _ in seen] == [n * 1024 * 1024 for n in range(1, 10)]
    assert {total for _, total in seen} == {9 * 1024 * 1024}


def replace_by(make: Callable[[Path], object]) -> Callable[[Path], None]:
    def spoil(directory: Path) -> None:
        path = directory / ID / "weights"
        path.unlink()
        make(path)

    return spoil


def in_manifest(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    return lambda directory: edit(directory, change)


def as_manifest(content: bytes) -> Callable[[Path], object]:
    return lambda directory: (directory / f"{ID}.manifest.json").write_bytes(content)


def at_path(path: Any) -> Callable[[Path], None]:
    return in_manifest(lambda data: data["files"][0].update(path=path))


def swap_folder_for_a_link(directory: Path) -> None:
    (directory / ID / "deep").rename(directory / "elsewhere")
    (directory / ID / "deep").symlink_to(directory / "elsewhere")


def swap_checkpoint_for_a_link(directory: Path) -> None:
    (directory / ID).rename(directory / "elsewhere")
    (directory / ID).symlink_to("elsewhere")


def swap_manifest_for_a_link(directory: Path) -> None:
    path = directory / f"{ID}.manifest.json"
    path.rename(directory / "elsewhere")
    path.symlink_to("elsewhere")


def swap_manifest_for_a_fifo(directory: Path) -> None:
    (directory / f"{ID}.manifest.json").unlink()
    os.mkfifo(directory / f"{ID}.manifest.json")


def device(path: Path) -> None:
    try:
        os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("only root can make a device")


SPOILT: dict[str, Callable[[Path], object]] = {
    "a file is missing": replace_by(lambda path: None),
    "a file is shorter": replace_by(lambda path: path.write_bytes(b"0" * 9_999)),
    "a file is longer": replace_by(lambda path: path.write_bytes(b"0" * 10_001)),
    "a file is another": replace_by(lambda path: path.write_bytes(b"1" * 10_000)),
    "a file is a link": replace_by(lambda path: path.symlink_to("deep/empty")),
    "a file is a link to a device": replace_by(lambda path: path.symlink_to("/dev/zero")),
    "a file is a FIFO": replace_by(os.mkfifo),
    "a file is a folder": replace_by(lambda path: path.mkdir()),
    "a file is a device": replace_by(device),
    "a folder is a link": swap_folder_for_a_link,
    "the checkpoint is a link": swap_checkpoint_for_a_link,
    "the manifest is a link": swap_manifest_for_a_link,
    "the manifest is a FIFO": swap_manifest_for_a_fifo,
    "the manifest is missing": lambda directory: (directory / f"{ID}.manifest.json").unlink(),
    "the manifest is empty": as_manifest(b""),
    "the manifest is cut": as_manifest(b'{"id": "000042-1", "step": 4'),
    "the manifest is not UTF-8": as_manifest(b'{"id": "\xff"}'),
    "the manifest is a list": as_manifest(b"[]"),
    "the manifest is deep": as_manifest(b"[" * 200_000),
    "the manifest is huge": as_manifest(b" " * (manifest.MANIFEST_BYTES_MAX + 1)),
    "a number has a million digits": as_manifest(b'{"step": ' + b"9" * 1_000_000 + b"}"),
    "a key is there twice": as_manifest(b'{"id": "000042-1", "id": "000042-1"}'),
    "NaN": as_manifest(b'{"id": "000042-1", "step": NaN, "files": [], "labels": {}}'),
    "an unknown key": in_manifest(lambda data: data.update(more=1)),
    "a key is missing": in_manifest(lambda data: data.pop("labels")),
    "another id": in_manifest(lambda data: data.update(id="000043-1")),
    "a negative step": in_manifest(lambda data: data.update(step=-1)),
    "a step of true": in_manifest(lambda data: data.update(step=True)),
    "no files": in_manifest(lambda data: data.update(files=[])),
    "files are no list": in_manifest(lambda data: data.update(files={"0": {}})),
    "a file is no object": in_manifest(lambda data: data.update(files=[1])),
    "a million files": in_manifest(lambda data: data.update(files=[1] * 1_000_000)),
    "a file twice": in_manifest(lambda data: data["files"].append(data["files"][0])),
    "a file with an unknown key": in_manifest(lambda data: data["files"][0].update(mode=1)),
    "a hash that is none": in_manifest(lambda data: data["files"][0].update(sha256="A" * 64)),
    "a size of 1e400": in_manifest(lambda data: data["files"][0].update(size=float("inf"))),
    "a label that is no text": in_manifest(lambda data: data["labels"].update(a=1)),
    "a long label": in_manifest(lambda data: data["labels"].update(a="x" * 513)),
    "a label that steers": in_manifest(lambda data: data["labels"].update(a="\x1b[2J")),
    "a path upwards": at_path("../000042-1/weights"),
    "a path upwards in the middle": at_path("deep/../weights"),
    "an absolute path": at_path("/etc/passwd"),
    "an empty path": at_path(""),
    "a path of dots": at_path("./weights"),
    "a path with two slashes": at_path("deep//empty"),
    "a path with a NUL": at_path("weights\0"),
    "a path with half a character": at_path("\ud800"),
    "a long path": at_path("x" * 5000),
    "a long name": at_path("x" * 1000),
    "a deep path": at_path("/".join("x" * 33)),
    "a path that is no text": at_path(["weights"]),
}  # fmt: skip


@pytest.mark.parametrize("case", SPOILT)
def test_it_is_refused_when(case: str, tmp_path: Path) -> None:
    good(tmp_path)
    verify(tmp_path, ID)
    SPOILT[case](tmp_path)
    with pytest.raises(NotACheckpoint) as refusal:
        verify(tmp_path, ID)
    assert refusal.value.reason
    assert len(refusal.value.reason) < 400


@pytest.mark.parametrize(
    "id",
    ["", ".", "..", "../x", "/etc", "a\0", "0/1", "0" * 101, ".0", "notes", "0.manifest.json", 1],
)
def test_an_id_is_one_component(id: Any, tmp_path: Path) -> None:
    with pytest.raises(NotACheckpoint):
        verify(tmp_path, id)
    with pytest.raises(NotACheckpoint):
        write(tmp_path, id, 1)


@given(st.binary(max_size=200) | st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(["id", "step", "files", "labels", "path", "size", "sha256"]), inner
    ),
    max_leaves=12,
).map(lambda data: json.dumps(data).encode()))  # fmt: skip
def test_no_manifest_makes_it_raise_anything_else(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    directory = tmp_path_factory.mktemp("any")
    (directory / f"{ID}.manifest.json").write_bytes(content)
    with pytest.raises(NotACheckpoint):
        verify(directory, ID)


def test_a_directory_that_is_not_there_holds_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(NotACheckpoint):
        verify(tmp_path / "nowhere", ID)


@pytest.mark.parametrize("spoil", ["nothing", "a link", "a FIFO"])
def test_nobody_can_write_what_would_not_verify(spoil: str, tmp_path: Path) -> None:
    (tmp_path / ID).mkdir()
    if spoil == "a link":
        (tmp_path / ID / "x").symlink_to("/etc/passwd")
    if spoil == "a FIFO":
        os.mkfifo(tmp_path / ID / "x")
    with pytest.raises(NotACheckpoint):
        write(tmp_path, ID, 1)
    assert list(tmp_path.iterdir()) == [tmp_path / ID]
