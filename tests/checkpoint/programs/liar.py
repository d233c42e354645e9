"""A program that says that it saved itself, and did not: in the way that its argument names."""

import hashlib
import json
import sys
import time
from pathlib import Path

import cede.checkpoint as checkpoint
from cede.checkpoint.words import Answer, Status

how = sys.argv[1]
session = checkpoint._get()
print("ready", flush=True)
while (hint := session._line.hint()) is None:
    time.sleep(0.005)

content = b"not what was promised"
directory = session.directory / "000001-1"
entry = {
    "path": "data",
    "size": len(content),
    "sha256": hashlib.sha256(content).hexdigest(),
}
if how != "nothing":
    directory.mkdir()
    (directory / "data").write_bytes(content)
if how == "wrong hash":
    (directory / "data").write_bytes(content[::-1])
if how == "truncated":
    (directory / "data").write_bytes(content[:-1])
if how == "escape":
    (session.directory / "outside").write_bytes(content)
    entry["path"] = "../outside"
if how != "nothing":
    manifest = {"id": "000001-1", "step": 1, "files": [entry], "labels": {}}
    partial = Path(f"{directory}.partial")
    partial.write_text(json.dumps(manifest))
    partial.rename(f"{directory}.manifest.json")
session._line.tell(Answer(hint.number, Status.SAVED, saved="000001-1"))
time.sleep(1000)
