"""Compiles the command `cede`: `python native/compile.py OUTPUT [OPTION…]`.

What `cede.c` shares with `cede.cli.plain` is not written twice: it is read from the modules and
handed to the compiler as a header.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
OPTIONS = ("-std=c11", "-O2", "-Wall", "-Wextra")
# An option of any other meaning does not compile; the order does not matter.
MEANINGS = ("pool", "component", "gpu", "component_type", "name", "directory", "user")


def compile_command(output: str, options: Iterable[str] = ()) -> int:
    """Compile with `$CC` or `cc`, and return its exit code."""
    compiler = shlex.split(os.environ.get("CC") or "cc")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "tables.h").write_text("\n".join((*tables(), "")))
        command = [*compiler, *OPTIONS, *options, f"-I{folder}", "-o", output, str(HERE / "cede.c")]
        try:
            return subprocess.run(command, check=False).returncode
        except OSError as error:
            sys.stderr.write(f"{compiler[0]}: {error.strerror}\n")
            return 1


def tables() -> Iterator[str]:
    """Lines of a header with what the Python modules say."""
    sys.path.insert(0, str(HERE.parent / "src"))
    sys.dont_write_bytecode = True
    from cede import __version__
    from cede.cli import exit_codes, plain, submission
    from cede.cli.connecting import TIMEOUT
    from cede.model import bounds, ids
    from cede.model.subject import SUBJECT_TYPES

    flags = {keyword: flag for flag, keyword in plain.SUBMIT_FLAGS.items()}
    numbers = {
        "EXIT_ERROR": exit_codes.ERROR,
        "EXIT_INTERRUPTED": exit_codes.INTERRUPTED,
        "GPU_DIGITS": plain.GPU_DIGITS,
        "LABEL_LENGTH_MAX": bounds.LABEL_LENGTH_MAX,
        "SHORT": ids.SHORT,
        "SHORT_AT": ids.TAIL,
        "TIMEOUT": int(TIMEOUT),
    }
    texts = {"KEY_VARIABLE": submission.KEY, "NO_ENV": flags["no_env"], "VERSION": __version__}
    yield from (f"#define {name} {value}" for name, value in numbers.items())
    yield from (f"#define {name} {json.dumps(value)}" for name, value in texts.items())
    yield f"enum option {{ {', '.join(map(str.upper, MEANINGS))}, OPTION_COUNT }};"
    yield "static const struct { const char *word; enum option means; } OPTIONS[] = {"
    for word, keyword in plain.SUBMIT.items():
        yield f"    {{{json.dumps(word)}, {keyword.upper()}}},"
    yield "};"
    for name, listed in (("CAPTURED", submission.CAPTURED), ("SUBJECT_TYPES", SUBJECT_TYPES)):
        yield f"static const char *const {name}[] = {{{json.dumps(listed)[1:-1]}}};"


if __name__ == "__main__":
    sys.exit(compile_command(sys.argv[1], sys.argv[2:]))
