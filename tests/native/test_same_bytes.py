"""the compiled command sends the bytes that the Python program sends."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as some

from cede.cli import plain
from cede.cli.submission import CAPTURED
from cede.model.subject import SUBJECT_TYPES
from tests.native.running import Native, environment
from tests.native.servers import ID, Listening, listening, without_key

pytestmark = pytest.mark.system

# Every character that an argument can hold, and more often those that JSON escapes.
TEXT = some.text(
    some.characters(exclude_characters="\0", exclude_categories=("Cs",))
    | some.sampled_from('"\\/\b\f\n\r\t\x01\x1f\x7f\u2028é€😀'),
    max_size=12,
)
VALUE = TEXT.filter(lambda text: text[:1] not in ("", "-"))
FOLDER = some.text("ab.é- ", min_size=1, max_size=5).filter(lambda text: text not in (".", "-"))
FOLDERS = some.lists(FOLDER, min_size=1, max_size=3).map("/".join)
VALUES: dict[str, some.SearchStrategy[str]] = {
    "gpu": some.text("0123456789", min_size=1, max_size=plain.GPU_DIGITS),
    "component_type": some.sampled_from(SUBJECT_TYPES),
    "name": some.text(some.characters(min_codepoint=32, max_codepoint=126), min_size=1),
    "directory": (FOLDERS | FOLDERS.map("/{}".format)).filter(lambda text: text[0] != "-"),
}
OPTIONS = some.one_of(
    *(
        some.tuples(some.just(option), VALUES.get(keyword, VALUE)).filter(
            lambda pair: pair[1][0] != "-"
        )
        for option, keyword in plain.SUBMIT.items()
    ),
    some.just(("--no-env",)),
)
COMMANDS = some.lists(TEXT | some.sampled_from(["--", "-x", "--gpu"]), min_size=1)
VARIABLES = some.dictionaries(some.sampled_from(CAPTURED), TEXT)


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Listening, Path]]:
    """A server, and a current folder whose name is no ASCII."""
    folder = tmp_path_factory.mktemp("here") / 'é "x"'
    folder.mkdir()
    before = Path.cwd()
    os.chdir(folder)
    with listening() as made:
        yield made, folder
    os.chdir(before)


def by_python(listener: Listening, line: Sequence[str], env: Mapping[str, str]) -> list[bytes]:
    listener.reset()
    with mock.patch.dict(os.environ, env, clear=True), redirect_stdout(StringIO()) as said:
        assert plain.run(line), line
    assert said.getvalue() == f"{ID}\n"
    return [without_key(each) for each in listener.calls]


def by_native(
    native: Native, listener: Listening, line: Sequence[str], env: Mapping[str, str]
) -> list[bytes]:
    listener.reset()
    done = native.run(line, env)
    assert native.started() is None, line
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{ID}\n".encode(), b"")
    return [without_key(each) for each in listener.calls]


@given(options=some.lists(OPTIONS, max_size=8), command=COMMANDS, variables=VARIABLES)
def test_a_plain_submission_is_the_same_call(
    native: Native,
    here: tuple[Listening, Path],
    options: list[tuple[str, ...]],
    command: list[str],
    variables: dict[str, str],
) -> None:
    listener, folder = here
    line = ["submit", *(word for each in options for word in each), "--", *command]
    # LC_ALL stands before LANG, which may be anything.
    env = {**environment(listener, folder), **variables}
    calls = by_python(listener, line, env)
    assert len(calls) == 1
    assert by_native(native, listener, line, env) == calls


@given(line=some.lists(some.sampled_from([*plain.SUBMIT, "--", "", "1", "team", "-x"]) | VALUE))
def test_what_is_not_plain_for_python_is_not_for_the_compiled_command(
    native: Native, here: tuple[Listening, Path], line: list[str]
) -> None:
    listener, folder = here
    listener.reset()
    native.run(["submit", *line], environment(listener, folder))
    if plain.submission(line) is None:
        assert native.started() == ("", [each.encode() for each in ("submit", *line)])
        assert listener.calls == []


@pytest.mark.parametrize("length", [*range(4090, 4100), 30_000])
def test_a_long_command_is_the_same_call(
    native: Native, here: tuple[Listening, Path], length: int
) -> None:
    listener, folder = here
    line = ["submit", "--", *('é"x' * length for _ in range(4))]
    env = environment(listener, folder)
    assert by_native(native, listener, line, env) == by_python(listener, line, env)


def has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


def test_an_address_of_ipv6_is_the_same_call(native: Native, tmp_path: Path) -> None:
    if not has_ipv6():
        pytest.skip("NOT TESTED: this machine has no loopback address of IPv6")
    with listening("::1") as listener:
        env = environment(listener, tmp_path)
        line = ["submit", "--", "true"]
        assert by_native(native, listener, line, env) == by_python(listener, line, env)


def test_no_two_calls_share_a_key(native: Native, listener: Listening, tmp_path: Path) -> None:
    for _ in range(3):
        native.run(["submit", "--", "true"], environment(listener, tmp_path))
    assert len(set(listener.calls)) == 3
    assert len({without_key(each) for each in listener.calls}) == 1


def test_every_option_is_known_to_the_compiled_command(
    native: Native, listener: Listening, tmp_path: Path
) -> None:
    for option, keyword in plain.SUBMIT.items():
        value = {"gpu": "1", "component_type": "team"}.get(keyword, "x")
        native.run(["submit", option, value, "--", "true"], environment(listener, tmp_path))
        assert native.started() is None, option
