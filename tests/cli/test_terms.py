"""What a policy says and on what terms a request waits, as it is typed."""

from __future__ import annotations

import json
from typing import Any

import click
import pytest

from cede.cli.policies import _home, _settings
from cede.cli.values import Amounts, merged, settings_of
from cede.client.demand import declared_body, submission
from cede.model.errors import Invalid
from cede.model.ids import short_id
from cede.model.policy import OF_POLICY
from tests.client.serving import Serving


def test_amounts_are_typed_as_pairs_or_as_a_map() -> None:
    for text in ("gpu=4,mcpu=0", "gpu = 4, mcpu = 0", "{gpu: 4, mcpu: 0}", '{"gpu": 4, "mcpu": 0}'):
        assert Amounts().convert(text, None, None) == {"gpu": 4, "mcpu": 0}
    assert merged("--limit", [{"gpu": 4}, {"mcpu": 0}]) == {"gpu": 4, "mcpu": 0}


@pytest.mark.parametrize("text", ["gpu", "gpu=", "=4", "gpu=x", "gpu=-1", "gpu=1,gpu=2", "4", ""])
def test_what_is_no_amount_is_wrong_usage(text: str) -> None:
    with pytest.raises(click.UsageError):
        Amounts().convert(text, None, None)


def test_a_key_given_twice_is_wrong_usage() -> None:
    with pytest.raises(click.UsageError, match="gpu is there twice"):
        merged("--limit", [{"gpu": 1}, {"gpu": 2}])


TIMEOUT, TOLERANCE = "fair_share_starvation_timeout", "fair_share_starvation_tolerance"
FLAG, THRESHOLD = "enable_aggressive_starvation", "non_preemptible_resource_usage_threshold"


def test_a_setting_is_typed_in_the_grammar_of_its_kind() -> None:
    given = (f"{TIMEOUT}=1m30s", f"{TOLERANCE}=0.5", f"{FLAG}=true", f"{THRESHOLD}=gpu=1,mcpu=2")
    made = settings_of("--set", given, OF_POLICY, "a policy")
    amounts = {"gpu": 1, "mcpu": 2}
    assert made == {TIMEOUT: 90, TOLERANCE: 0.5, FLAG: True, THRESHOLD: amounts}
    assert settings_of("--set", (f"{THRESHOLD}={{gpu: 1}}",), OF_POLICY, "") == {
        THRESHOLD: {"gpu": 1}
    }
    assert settings_of("--set", (f"{FLAG}=",), OF_POLICY, "") == {FLAG: None}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (("grace",), "NAME=VALUE"),
        (("=5",), "NAME=VALUE"),
        ((f"{THRESHOLD}={{",), THRESHOLD),
        ((f"{THRESHOLD}={{gpu: 1, gpu: 2}}",), "'gpu' is there twice"),
        ((f"{TIMEOUT}=1", f"{TIMEOUT}=2"), f"{TIMEOUT} is there twice"),
        ((f"{TIMEOUT[:-1]}=1",), f"did you mean {TIMEOUT}?"),
        ((f"{TIMEOUT[:-1]}=",), f"did you mean {TIMEOUT}?"),
        ((f"{TIMEOUT}=soon",), "such as 90, 90m or 1h30m, not 'soon'"),
    ],
)
def test_what_is_no_setting_is_wrong_usage(wrong: tuple[str, ...], said: str) -> None:
    with pytest.raises(click.UsageError) as caught:
        settings_of("--set", wrong, OF_POLICY, "a policy")
    assert "--set" in str(caught.value) and said in str(caught.value)


def test_a_setting_stands_beside_those_there_are_until_it_is_taken_back() -> None:
    assert _settings((), {TIMEOUT: 1}) is None
    assert _settings((f"{TOLERANCE}=0.2",), {TIMEOUT: 1}) == {TIMEOUT: 1, TOLERANCE: 0.2}
    assert _settings((f"{TIMEOUT}=",), {TIMEOUT: 1}) == {}


def test_a_home_is_labels_or_names() -> None:
    assert _home(()) is None
    assert _home(("n1", "n2")) == ["n1", "n2"]
    assert _home(("rack=r1", "zone=a")) == {"rack": "r1", "zone": "a"}
    with pytest.raises(click.UsageError, match="not both"):
        _home(("rack=r1", "n1"))


def test_the_library_writes_the_names_of_the_api() -> None:
    body = submission(
        gpu=1, class_=7, sensitive=True, tenant="bio", limit={"gpu": 4}, weight=2, settings={"x": 1}
    )
    assert body["settings"] == {"gpu_count": 1, "preemptible": True, "x": 1}
    terms = {"class": 7, "sensitive": True, "tenant": "bio", "limit": {"gpu": 4}, "weight": 2}
    assert {name: body[name] for name in terms} == terms
    assert declared_body() == {}
    assert declared_body(comment="for the demo") == {"comment": "for the demo"}
    with pytest.raises(Invalid, match="0 to 10"):
        declared_body(class_="7")  # type: ignore[arg-type]
    for weight in (0, -1, float("nan"), float("inf"), 1e300):
        with pytest.raises(Invalid, match=r"weight.*from 1e-06 to 1e\+06"):
            declared_body(weight=weight)


def typed(server: Serving, *arguments: str) -> Any:
    done = server.cede(*arguments)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.system
def test_a_comment_is_shown_by_describe(server: Serving) -> None:
    with server.client() as client:
        client.pools.create("gpus", {"gpu": 8})
        client.policies.attach("gpus", "red", priority=1)
    asked = ("--component", "red", "--gpu", "1", "--comment", "for the demo")
    made = typed(server, "request", "create", *asked, "-o", "json")
    assert made["comment"] == "for the demo"
    assert "for the demo" in server.cede("request", "describe", made["id"]).stdout


@pytest.mark.system
def test_what_is_typed_is_what_is_shown(server: Serving) -> None:
    with server.client() as client:
        client.pools.create("gpus", {"gpu": 8})
    said = "--type service --max-class 8 --allow-sensitive --home rack=r1 --no-lend --no-borrow"
    said += " --max-borrow 0.5 --return-grace 30 --set fair_share_starvation_timeout=60"
    said += " --weight 2 --mode fifo"
    whose = ("gpus", "red", "-t", "team")
    made = typed(server, "policy", "attach", *whose, "-p", "1", "--json", *said.split())
    wanted = {
        "type": "service",
        "max_class": 8,
        "allow_sensitive": True,
        "home": {"rack": "r1"},
        "allow_lending": False,
        "allow_borrowing": False,
        "max_borrow_pct": 0.5,
        "return_grace": 30,
        "settings": {"fair_share_starvation_timeout": 60},
        "weight": 2,
        "mode": "fifo",
    }
    assert {name: made[name] for name in wanted} == wanted
    changed = "--no-allow-sensitive --home n1 --home n2 --lend --weight 3"
    changed += " --set enable_aggressive_starvation=true --set fair_share_starvation_timeout="
    made = typed(server, "policy", "update", *whose, "--json", *changed.split())
    wanted |= {
        "allow_sensitive": False,
        "home": ["n1", "n2"],
        "allow_lending": True,
        "weight": 3,
        "settings": {"enable_aggressive_starvation": True},
    }
    assert {name: made[name] for name in wanted} == wanted
    made = typed(server, "policy", "update", *whose, "--json", "--no-home")
    assert made["home"] is None
    assert server.cede("policy", "update", *whose).returncode == 2

    asked = "--gpu 2 --component red -t team --class 7 --tenant bio --limit gpu=4,mcpu=0"
    asked += " --weight 2.5 --set fair_share_starvation_timeout=90 --lease none -o json"
    request = typed(server, "request", "create", *asked.split())
    terms = {"class": 7, "tenant": "bio", "limit": {"gpu": 4, "mcpu": 0}, "weight": 2.5}
    terms["settings"] = {"fair_share_starvation_timeout": 90}
    assert {name: request[name] for name in terms} == terms
    listed = typed(server, "request", "list", "--tenant", "bio", "-o", "json")
    assert [each["id"] for each in listed] == [request["id"]]
    changed = typed(server, "limit", request["id"][:30], "gpu=2", "--json")
    assert changed["limit"] == {"gpu": 2}
    done = server.cede("limit", request["id"], "--none")
    assert (done.returncode, done.stdout.strip()) == (
        0,
        f"the limit of request {short_id(request['id'])} is none",
    )
    assert server.cede("limit", request["id"]).returncode == 2
    assert server.cede("request", "create", "--class", "11").returncode == 2
    heavy = server.cede("request", "create", *asked.split(), "--weight", "nan")
    assert heavy.returncode == 1 and "weight" in heavy.stderr and "1e-06" in heavy.stderr
    rejected = server.cede("request", "create", *asked.split(), "--sensitive")
    assert (rejected.returncode, json.loads(rejected.stdout)["status"]) == (4, "rejected")
    refused = server.cede("run", *asked.replace("-o json", "--sensitive").split(), "--", "true")
    assert refused.returncode == 4 and "sensitive" in refused.stderr
