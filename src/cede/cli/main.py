"""`cede`: start and exit of the program.

A plain command line is read by `cede.cli.plain`, which imports little; every other by click.
"""

from __future__ import annotations

import gc
import os
import sys

from cede.cli import exit_codes, plain


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    _survive_any_locale()
    # Imported objects live until the end: the collector need not look at them, now or at the exit.
    gc.freeze()
    try:
        code = _run(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        _leave_quietly()
    except BaseException as error:
        from cede.cli.commands import explain

        code = explain(error)
    gc.freeze()
    sys.exit(code if isinstance(code, int) else exit_codes.OK)


def _run(arguments: list[str] | None) -> object:
    if plain.run(sys.argv[1:] if arguments is None else arguments):
        return exit_codes.OK
    from cede.cli.commands import run

    return run(arguments)


def _survive_any_locale() -> None:
    """Escape characters that the terminal cannot show, instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def _leave_quietly() -> None:
    """End after the reader of stdout has gone, as with `| head`. Python would complain once more
    while flushing."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os._exit(exit_codes.OK)


if __name__ == "__main__":
    main()
