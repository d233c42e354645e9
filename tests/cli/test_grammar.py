"""Times, sizes and amounts are typed the same everywhere; what is wrong is told in one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cede.cli import policies, request_rows
from cede.cli.demand import demand_options, stop_policy_options
from cede.cli.submission import submission_of
from cede.cli.values import Duration
from cede.model import bounds
from cede.server.api.schemas import PolicyOut, RequestOut
from tests.cli.terminal import Shown, typed
from tests.client.serving import Serving


def asked(*arguments: str) -> dict[str, Any]:
    """The body that these options make."""
    made: dict[str, Any] = {}

    @click.command()
    @demand_options
    @stop_policy_options
    def command(**given: Any) -> None:
        made.update(submission_of(**given))

    command.main(list(arguments), standalone_mode=False)
    return made


@pytest.mark.parametrize("text", ["5400", "1h30m", "90m", "1.5h"])
def test_every_option_that_is_a_time_has_one_grammar(text: str) -> None:
    names = ("walltime", "lease", "checkpoint-timeout", "max-deferral", "resume-wait")
    body = asked(*(each for name in names for each in (f"--{name}", text)))
    for name in names:
        assert body[name.replace("-", "_")] == 5400 and type(body["walltime"]) is int


def test_a_lease_may_be_none_and_a_walltime_may_not() -> None:
    assert asked("--lease", "none")["lease"] == "none"
    with pytest.raises(click.UsageError, match="must be a time"):
        asked("--walltime", "none")


def test_repeated_options_add_up() -> None:
    body = asked("--limit", "gpu=4", "--limit", "mcpu=8000", "--limit", "{tpu: 1}")
    assert body["limit"] == {"gpu": 4, "mcpu": 8000, "tpu": 1}
    body = asked("--resources", "tpu=1", "--resources", '{"memory_mb": "16GiB"}', "--gpu", "2")
    assert body["settings"]["pool_resources"] == {"tpu": 1, "memory_mb": 17180}
    assert body["settings"]["gpu_count"] == 2
    with pytest.raises(click.UsageError, match="--limit: gpu is there twice"):
        asked("--limit", "gpu=4", "--limit", "{gpu: 5}")


def test_memory_keeps_its_unit_until_it_is_counted() -> None:
    for text in ("16GiB", "16000MB"):
        assert asked("--memory", text)["settings"]["memory"] == text


WRONG = {
    "--walltime": ("-5", "", "1h-3", "1.5.2", "٣٠m", "9999d", "x" * 5000, "none"),
    "--lease": ("-5", "", "1h-3", "1.5.2", "٣", "25h", "never"),
    "--checkpoint-timeout": ("-5", "", "25h"),
    "--max-deferral": ("-1s", "", "25h"),
    "--resume-wait": ("-1s", "", "25h"),
    "--gpu": ("-1", "", "1.5", "٣", "９", "1_0", "9" * 5000, "two"),
    "--cpu": ("-1", "", "2x", "٣", "1_0", "9" * 5000, "nan", "1e999999"),
    "--memory": ("-1GiB", "", "16", "16GIB", "1.5GiB", "٣GiB", "9" * 5000 + "GiB"),
    "--limit": ("", "gpu", "gpu=", "gpu=-1", "gpu=٣", "gpu=1.5", "gpu=1,gpu=2", "[1]", "{gpu: x}"),
    "--resources": ("", "4", "gpu:1", "{gpu: 1, gpu: 2}", "gpu=" + "9" * 5000, "{", "null"),
}


@pytest.mark.parametrize(("option", "text"), [(o, t) for o in WRONG for t in WRONG[o]])
def test_a_wrong_value_names_its_option_and_shows_a_right_one(option: str, text: str) -> None:
    with pytest.raises(click.UsageError) as caught:
        asked(f"{option}={text}")
    told = caught.value.format_message()
    assert f"'{option}'" in told
    assert "such as" in told or "write" in told or "seconds" in told or "from 0 to" in told, told
    assert len(told) < 400 and "\n" not in told


@given(st.text(max_size=20))
def test_any_text_is_a_time_or_wrong_usage(text: str) -> None:
    try:
        found = Duration().convert(text, None, None)
    except click.BadParameter as error:
        assert "\n" not in error.format_message() or "\n" in text
    else:
        assert 0 <= found <= bounds.DURATION_MAX / 1000


def test_a_number_may_mean_another_unit() -> None:
    days = Duration(plain="d")
    for text, seconds in (("7", 604800), ("0.5", 43200), ("12h", 43200), ("7d", 604800)):
        assert days.convert(text, None, None) == seconds
    with pytest.raises(click.BadParameter, match="not '1000'"):
        days.convert("1000", None, None)


def test_lists_know_every_column_that_the_api_answers() -> None:
    names = {each.alias or name for name, each in RequestOut.model_fields.items()}
    assert names <= request_rows.REQUESTS.known
    names = {each.alias or name for name, each in PolicyOut.model_fields.items()}
    assert names <= policies.POLICIES.known


def wrong(*arguments: str) -> str:
    """The one line that a wrong command shows; a terminal folds it, and nothing else does."""
    shown = typed(*arguments, env={"HOME": "/nonexistent"})
    assert shown.code == 2, shown.text
    assert shown.line.startswith("error: "), shown.text
    return shown.line


@pytest.mark.system
def test_a_transcript_of_what_is_mistyped() -> None:
    assert "'--walltime': must be a time such as 90, 90m or 1h30m, not '1h-3'" in wrong(
        "run", "--walltime", "1h-3", "--", "true"
    )
    assert "did you mean queued?" in wrong("request", "list", "--status", "quued")
    assert "no column 'statsu'; did you mean status?" in wrong("request", "list", "-c", "id,statsu")
    assert "no column 'prio'; did you mean priority?" in wrong(
        "policy", "list", "--columns", "prio"
    )
    assert "the key 'gpu' is there twice" in wrong("pool", "create", "a", "-c", "{gpu: 1, gpu: 2}")
    assert "--capacity: gpu is there twice" in wrong(
        "pool", "create", "a", "-c", "gpu=1", "-c", "gpu=2"
    )
    assert "the key 'grace' is there twice" in wrong(
        "pool", "update", "a", "--settings", '{"grace": 1, "grace": 2}'
    )
    assert "did you mean guarantee_type?" in wrong(
        "policy", "attach", "a", "b", "-p", "1", "--integral", "{guarantee_tpe: burst}"
    )
    assert "did you mean fair_share_starvation_timeout?" in wrong(
        "run", "--set", "fair_share_starvation_timout=5m", "--", "true"
    )
    assert "'--amount'" in wrong("agent", "--server", "http://127.0.0.1:1", "--amount", "gpu=two")
    assert "'--since'" in wrong("usage", "--since", "yesterday")
    assert "'--expires-in'" in wrong(
        "token", "create", "a", "--role", "viewer", "--expires-in", "x"
    )
    assert "whole seconds" in wrong("token", "create", "a", "--role", "viewer", "--expires-in=0.5")


@pytest.mark.system
def test_a_transcript_of_one_grammar(server: Serving) -> None:
    def cede(*arguments: str) -> Shown:
        return typed(*arguments, env=server.environment())

    made = cede(
        *("pool", "create", "gpus", "-c", "gpu=8,memory_mb=64GiB", "-c", "{mcpu: 8000}"),
        *("--settings", "grace: 2m", "--settings", "min_run: 1m30s"),
    )
    assert (made.code, made.line[:17]) == (0, "created pool gpus")
    pool = json.loads(cede("pool", "describe", "gpus", "-o", "json").text)
    assert pool["capacity"] == {"gpu": 8, "memory_mb": 68720, "mcpu": 8000}
    assert pool["settings"]["grace"] == 120 and pool["settings"]["min_run"] == 90

    said = cede("pool", "update", "gpus", "--settings", "grce: 2m")
    assert said.code == 1 and "did you mean grace?" in said.text

    who = ("gpus", "red", "-t", "team", "--json")
    attached = cede(
        *("policy", "attach", *who, "-p", "1", "-r", "gpu=2", "-r", "mcpu: 1000"),
        *("--limit", "gpu=4", "--return-grace", "5m", "--set", "fair_share_starvation_timeout=10m"),
    )
    policy = json.loads(attached.text)
    assert policy["reserved"] == {"gpu": 2, "mcpu": 1000} and policy["limit"] == {"gpu": 4}
    assert policy["return_grace"] == 300
    assert policy["settings"] == {"fair_share_starvation_timeout": 600}
    emptied = cede("policy", "update", *who, "--reserved", "{}")
    assert json.loads(emptied.text)["reserved"] == {}

    asks = ("--component", "red", "-t", "team", "--gpu", "2", "--memory", "16GiB")
    request = cede(
        *("request", "create", *asks, "--walltime", "1h30m", "--lease", "5m", "-o", "json"),
        *("--limit", "gpu=4", "--limit", "mcpu=8000"),
    )
    body = json.loads(request.text)
    assert (body["walltime"], body["lease"]) == (5400, 300)
    assert body["resources"] == {"gpu": 2, "memory_mb": 17180, "step_run": 1}
    assert body["limit"] == {"gpu": 4, "mcpu": 8000}


@pytest.mark.system
def test_files_have_the_same_grammar(tmp_path: Path) -> None:
    file = tmp_path / "state.yaml"
    file.write_text(
        "now: 0\n"
        "pools: [{name: gpus, capacity: 'gpu=8,memory_mb=64GiB', settings: {grace: 2m}}]\n"
        "policies: [{pool: gpus, component: red, priority: 1, reserved: gpu=8}]\n"
        "requests: [{id: r1, component: red, resources: gpu=2, walltime: 1h30m}]\n"
    )
    shown = typed("plan", str(file), "--until-rest", "--horizon", "2h", "--json")
    assert shown.code == 0, shown.text
    decided = [each for one in json.loads(shown.text)["passes"] for each in one["decisions"]]
    assert [each["do"] for each in decided] == ["grant"]
    file.write_text(file.read_text().replace("walltime", "waltime"))
    shown = typed("plan", str(file))
    assert shown.code == 1 and ":4: requests[0].waltime: unknown field; did you mean" in shown.line
