"""A checkpoint: the files below `DIR/ID/`, and `DIR/ID.manifest.json` that names each of them.

The manifest is renamed into place after everything that it names is on disk, so a checkpoint exists
whole or not at all (K9). A reader trusts nothing in it: it may be false, a trap or half a file, and
`verify` returns a `Saved` or raises `NotACheckpoint`, nothing else.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from cede.checkpoint import beneath

SUFFIX = ".manifest.json"
# One path component that leaves room for the suffix. It begins with a digit, so that another folder
# beside the checkpoints is not taken for one and removed.
ID = re.compile(r"[0-9][0-9A-Za-z_-]{0,99}")
# Parsing blocks every other thread: this much takes about a tenth of a second.
MANIFEST_BYTES_MAX = 16 * 1024 * 1024
FILES_MAX = 50_000
PATH_LENGTH_MAX = 1024
PATH_DEPTH_MAX = 32
# Sizes and steps stay exact in every JSON reader.
NUMBER_MAX = 2**53 - 1
LABELS_MAX = 32
LABEL_LENGTH_MAX = 512
_PIECE = 1024 * 1024
_HASH = re.compile(r"[0-9a-f]{64}")

# Called with the bytes done and the bytes in all; an exception that it raises ends the work.
Progress = Callable[[int, int], None]


class NotACheckpoint(Exception):
    """There is no trustworthy checkpoint of this id.

    `file` is the file at fault, relative to the checkpoint; empty: the manifest.
    """

    def __init__(self, reason: str, file: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.file = file


@dataclass(frozen=True, slots=True)
class File:
    path: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint whose files all exist, as its manifest says. `step` is the number of steps
    done.
    """

    id: str
    step: int
    path: Path
    files: tuple[File, ...]
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def size(self) -> int:
        return sum(each.size for each in self.files)


def is_id(text: object) -> bool:
    return isinstance(text, str) and ID.fullmatch(text) is not None


def write(
    directory: Path,
    id: str,
    step: int,
    labels: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> Saved:
    """Make a checkpoint of the files in `directory/id/`: when this returns, it is on disk."""
    if not is_id(id):
        raise NotACheckpoint(f"{id!r:.80} is not an id")
    paths = sorted(_walk(directory / id, ""))
    total = sum(size for _, size in paths)
    files: list[File] = []
    with beneath.directory(directory) as root, beneath.directory(directory / id) as inner:
        for path, size in paths:
            file = beneath.open_file(inner, path)
            try:
                os.fsync(file)
                digest = _digest(file, path, size, _from(progress, files, total))
            finally:
                os.close(file)
            files.append(File(path, size, digest))
        saved = Saved(id, step, directory / id, tuple(files), dict(labels or {}))
        content = json.dumps(_as_data(saved), separators=(",", ":")).encode()
        _read(content, id, directory)  # must pass its own verification
        _sync_folders(directory / id)
        beneath.replace_file(root, id + SUFFIX, content, sync=True)
    return saved


def verify(directory: Path, id: str, progress: Progress | None = None) -> Saved:
    """The checkpoint, if its manifest is valid and every file has the stated size and hash."""
    if not is_id(id):
        raise NotACheckpoint(f"{id!r:.80} is not an id")
    try:
        with beneath.directory(directory) as root:
            saved = _read(beneath.read_file(root, id + SUFFIX, MANIFEST_BYTES_MAX), id, directory)
            files: list[File] = []
            for each in saved.files:
                _check(root, id, each, _from(progress, files, saved.size))
                files.append(each)
            return saved
    except OSError as error:
        raise NotACheckpoint(f"{id}: {error.strerror or error}") from error


def _check(root: int, id: str, claim: File, progress: Progress) -> None:
    try:
        file = beneath.open_file(root, f"{id}/{claim.path}")
    except OSError as error:
        reason = f"{_short(claim.path)}: {error.strerror or error}"
        raise NotACheckpoint(reason, claim.path) from error
    try:
        size = os.fstat(file).st_size
        if size != claim.size:
            reason = f"{_short(claim.path)}: {size} bytes, not {claim.size}"
            raise NotACheckpoint(reason, claim.path)
        if _digest(file, claim.path, size, progress) != claim.sha256:
            reason = f"{_short(claim.path)}: its SHA-256 is another"
            raise NotACheckpoint(reason, claim.path)
    finally:
        os.close(file)


def _digest(file: int, path: str, size: int, progress: Progress) -> str:
    """SHA-256 of exactly `size` bytes; a file that shrinks or grows meanwhile is refused."""
    hasher = hashlib.sha256()
    done = 0
    while piece := os.read(file, _PIECE):
        hasher.update(piece)
        done += len(piece)
        if done > size:
            break
        progress(done, size)
    if done != size:
        raise NotACheckpoint(f"{_short(path)}: it changed while it was read", path)
    return hasher.hexdigest()


def _from(progress: Progress | None, files: list[File], total: int) -> Progress:
    """Progress within one file as progress of the whole."""
    if progress is None:
        return lambda done, size: None
    before = sum(each.size for each in files)
    return lambda done, size: progress(before + done, total)


def _walk(folder: Path, prefix: str) -> Iterator[tuple[str, int]]:
    """Every file with its size. Anything but files and folders is refused."""
    with os.scandir(folder) as entries:
        for entry in entries:
            path = prefix + entry.name
            if entry.is_dir(follow_symlinks=False):
                yield from _walk(folder / entry.name, path + "/")
            elif entry.is_file(follow_symlinks=False):
                yield path, entry.stat(follow_symlinks=False).st_size
            else:
                raise NotACheckpoint(f"{_short(path)}: neither a file nor a folder")


def _sync_folders(top: Path) -> None:
    for folder, _, _ in os.walk(top, topdown=False):
        with beneath.directory(folder) as descriptor:
            os.fsync(descriptor)


def _as_data(saved: Saved) -> dict[str, Any]:
    files = [{"path": f.path, "size": f.size, "sha256": f.sha256} for f in saved.files]
    return {"id": saved.id, "step": saved.step, "files": files, "labels": dict(saved.labels)}


def _read(content: bytes, id: str, directory: Path) -> Saved:
    try:
        data = json.loads(content, object_pairs_hook=_unique, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise NotACheckpoint(f"{id}: its manifest is not JSON as it should be") from error
    _demand(isinstance(data, dict), "the manifest is not an object")
    _demand(set(data) == {"id", "step", "files", "labels"}, "missing or unknown keys")
    _demand(data["id"] == id, "the manifest is another one's")
    _demand(_is_number(data["step"]), "step is not a whole number")
    labels = data["labels"]
    _demand(isinstance(labels, dict) and len(labels) <= LABELS_MAX, "labels are not labels")
    for text in (*labels.keys(), *labels.values()):
        is_plain = _is_text(text, LABEL_LENGTH_MAX) and text.isprintable()
        _demand(is_plain, "labels are not short printable texts")
    return Saved(id, data["step"], directory / id, _read_files(data["files"]), labels)


def _read_files(data: Any) -> tuple[File, ...]:
    _demand(isinstance(data, list) and len(data) > 0, "it names no file")
    _demand(len(data) <= FILES_MAX, f"more than {FILES_MAX} files")
    files: dict[str, File] = {}
    for each in data:
        _demand(isinstance(each, dict), "a file is not an object")
        _demand(set(each) == {"path", "size", "sha256"}, "a file has missing or unknown keys")
        path, size, sha256 = each["path"], each["size"], each["sha256"]
        _demand(_is_path(path), "a path leaves the checkpoint or is malformed")
        _demand(_is_number(size), "a size is not a whole number")
        _demand(isinstance(sha256, str) and _HASH.fullmatch(sha256), "a SHA-256 is malformed")
        _demand(path not in files, "a path twice")
        files[path] = File(path, size, sha256)
    return tuple(files.values())


def _is_path(value: object) -> bool:
    """Whether a path is relative and normal: no empty, `.` or `..` component."""
    if not _is_text(value, PATH_LENGTH_MAX):
        return False
    parts = str(value).split("/")
    return len(parts) <= PATH_DEPTH_MAX and all(part not in ("", ".", "..") for part in parts)


def _is_text(value: object, most: int) -> bool:
    if not isinstance(value, str) or len(value) > most or "\0" in value:
        return False
    try:
        value.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        return False
    return True


def _is_number(value: object) -> bool:
    return type(value) is int and 0 <= value <= NUMBER_MAX


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key twice")
    return found


def _no_constant(text: str) -> NoReturn:
    raise ValueError(text)


def _demand(holds: object, reason: str) -> None:
    if not holds:
        raise NotACheckpoint(reason)


def _short(path: str) -> str:
    """A path for a message, cut and quoted because the application chose it."""
    return repr(path[:80])
