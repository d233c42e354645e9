"""The bad-input matrix: whatever comes in, the answer is a 4xx that names field and bound."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from cede.model import bounds
from cede.server.api import agent_bodies, plan
from tests.api import machines
from tests.api.conftest import Server

API = "/api/v1"
BIG = str(bounds.AMOUNT_MAX)


def red(**fields: Any) -> dict[str, Any]:
    return {"component": "red", "component_type": "team", **fields}


# name: (path, body, status, field, part of the detail)
BODIES: dict[str, tuple[str, Any, int, str, str]] = {
    "unknown field": ("/requests", red(colour="x"), 422, "colour", "unknown field"),
    "unknown field inside": ("/requests", red(retry={"n": 1}), 422, "retry.n", "unknown field"),
    "a list": ("/requests", [], 422, "body", "dictionary"),
    "null": ("/requests", None, 422, "body", "JSON body is needed"),
    "resources as text": ("/requests", red(resources="8"), 422, "resources", "dictionary"),
    "a boolean": ("/requests", red(resources={"gpu": True}), 422, "resources.gpu", "integer"),
    "a float amount": ("/requests", red(resources={"gpu": 5.0}), 422, "resources.gpu", "integer"),
    "a text amount": ("/requests", red(resources={"gpu": "5"}), 422, "resources.gpu", "integer"),
    "a negative amount": ("/requests", red(resources={"gpu": -1}), 422, "resources.gpu", "0"),
    "above 2^53": ("/requests", red(resources={"gpu": 2**53}), 422, "resources.gpu", BIG),
    "a bad key": ("/requests", red(resources={"g pu": 1}), 422, "resources.g pu", "a letter, then"),
    "a thousand keys": (
        "/requests",
        red(resources={f"k{n}": 1 for n in range(1000)}),
        422,
        "resources",
        str(bounds.KEYS_MAX),
    ),
    "both resources and settings": (
        "/requests",
        red(resources={"gpu": 1}, settings={"gpu_count": 1}),
        422,
        "settings",
        "not both",
    ),
    "bad memory": ("/requests", red(settings={"memory": "16"}), 422, "settings.memory", "GiB"),
    "bad processors": (
        "/requests",
        red(settings={"cpu_count": "many"}),
        422,
        "settings.cpu_count",
        "number",
    ),
    "a long comment": ("/requests", red(comment="x" * 501), 422, "comment", "500"),
    "a comment of two lines": ("/requests", red(comment="a\nb"), 422, "comment", "on one line"),
    "a number for a comment": ("/requests", red(comment=5), 422, "comment", "string"),
    "a boolean duration": ("/requests", red(walltime=True), 422, "walltime", "number of seconds"),
    "an endless walltime": ("/requests", red(walltime=1e15), 422, "walltime", "seconds"),
    "a short lease": ("/requests", red(lease=0.5), 422, "lease", "at least 1 seconds"),
    "a long lease": ("/requests", red(lease=10**6), 422, "lease", "86400"),
    "a lease in words": ("/requests", red(lease="soon"), 422, "lease", "number of seconds"),
    "too many labels": (
        "/requests",
        red(labels={str(n): "" for n in range(40)}),
        422,
        "labels",
        str(bounds.LABELS_MAX),
    ),
    "a long label": ("/requests", red(labels={"a": "x" * 600}), 422, "labels.a", "512"),
    "too many retries": (
        "/requests",
        red(retry={"max_retries": 1000}),
        422,
        "retry.max_retries",
        str(bounds.RETRIES_MAX),
    ),
    "an unknown subject type": (
        "/requests",
        {"component": "red", "component_type": "clan"},
        422,
        "component_type",
        "team",
    ),
    "a path as name": ("/requests", red(component="../etc"), 422, "component", "printable"),
    "an empty name": ("/requests", red(component=""), 422, "component", "at least 1"),
    "a 10^5 name": ("/requests", red(component="x" * 10**5), 422, "component", "128"),
    "a right-to-left name": ("/requests", red(component="a\u202eb"), 422, "component", "printable"),
    "no component": ("/requests", {"resources": {"gpu": 1}}, 422, "component", "bound to no"),
    "a pool nobody has": ("/requests", red(pool="nowhere"), 404, "", "no pool 'nowhere'"),
    "a subject without a policy": (
        "/requests",
        {"component": "green", "component_type": "team", "kind": "work"},
        422,
        "",
        "no policy",
    ),
    "no requests in bulk": ("/requests/bulk", {"requests": []}, 422, "requests", "at least 1"),
    "too many in bulk": (
        "/requests/bulk",
        {"requests": [{}] * 501},
        422,
        "requests",
        str(bounds.BULK_MAX),
    ),
    "a pool without capacity": ("/pools", {"name": "x"}, 422, "capacity", "either capacity or"),
    "empty capacity": ("/pools", {"name": "x", "capacity": {}}, 422, "capacity", "at least one"),
    "zero capacity": ("/pools", {"name": "x", "capacity": {"gpu": 0}}, 422, "capacity.gpu", "1"),
    "an unknown preset": (
        "/pools",
        {"name": "x", "capacity": {"gpu": 1}, "preset": "chaos"},
        422,
        "preset",
        "quota",
    ),
    "an unknown setting": (
        "/pools",
        {"name": "x", "capacity": {"gpu": 1}, "settings": {"speed": 1}},
        422,
        "settings.speed",
        "unknown",
    ),
    "a slash in a name": ("/pools", {"name": "a/b", "capacity": {"gpu": 1}}, 422, "name", "/"),
    "a taken name": ("/pools", {"name": "gpus", "capacity": {"gpu": 1}}, 409, "", "exists"),
    "priority 5.0": ("/policies", {"pool": "gpus", "component": "x", "priority": 5.0}, 422,
                     "priority", "integer"),
    "priority true": ("/policies", {"pool": "gpus", "component": "x", "priority": True}, 422,
                      "priority", "integer"),
    "priority -1": ("/policies", {"pool": "gpus", "component": "x", "priority": -1}, 422,
                    "priority", "0"),
    "reserved above limit": (
        "/policies",
        {"pool": "gpus", "component": "x", "reserved": {"gpu": 2}, "limit": {"gpu": 1}},
        422,
        "reserved.gpu",
        "limit 1",
    ),
    "a key the pool lacks": (
        "/policies",
        {"pool": "gpus", "component": "x", "reserved": {"tpu": 2}},
        422,
        "reserved.tpu",
        "no such key",
    ),
    "a second policy": (
        "/policies",
        {"pool": "gpus", "component": "red", "component_type": "team"},
        409,
        "",
        "already has a policy",
    ),
    "a submitter for nobody": ("/tokens", {"name": "t", "role": "submitter"}, 422, "subjects",
                               "at least one"),
    "a bad subject": ("/tokens", {"name": "t", "role": "viewer", "subjects": ["clan:x"]}, 422,
                      "subjects", "team"),
    "uses of another role": ("/tokens", {"name": "t", "role": "viewer", "uses": 1}, 422, "uses",
                             "join"),
    "a join token for a team": ("/tokens", {"name": "t", "role": "join", "subjects": ["team:x"]},
                                422, "subjects", "none"),
    "a node's token by hand": ("/tokens", {"name": "t", "role": "node"}, 422, "role", "join"),
    "capacity and nodes": ("/pools", {"name": "x", "capacity": {"gpu": 1}, "nodes": {}}, 422,
                           "capacity", "either"),
    "a selector with a bad label": ("/pools", {"name": "x", "nodes": {"a b": "c"}}, 422, "nodes",
                                    "not a label"),
    "no tasks": ("/requests", red(tasks=0), 422, "tasks", "1"),
    "a million tasks": ("/requests", red(tasks=10**6), 422, "tasks", str(bounds.TASKS_MAX)),
    "half a task": ("/requests", red(tasks=1.5), 422, "tasks", "integer"),
    "many independent tasks": ("/requests", red(tasks=501, gang=False), 422, "tasks",
                               str(bounds.PARTS_MAX)),
    "tasks of too much": ("/requests", red(tasks=4, resources={"gpu": 2**52}), 422, "tasks",
                          "more than anybody has"),
    "no task per node": ("/requests", red(per_node=0), 422, "per_node", "1"),
    "an unknown topology": ("/requests", red(topology="round"), 422, "topology", "tight"),
    "a bad node label": ("/requests", red(node_labels={"=": "x"}), 422, "node_labels", "label"),
    "an unknown checkpoint": ("/requests", red(checkpoint="maybe"), 422, "checkpoint", "auto"),
    "an unknown conversation": ("/requests", red(checkpoint_protocol="smoke"), 422,
                                "checkpoint_protocol", "signal"),
    "a checkpoint of a week": ("/requests", red(checkpoint_timeout=604800), 422,
                               "checkpoint_timeout", "86400"),
    "a command as text": ("/requests", red(work={"argv": "ls"}), 422, "work.argv", "list"),
    "no command": ("/requests", red(work={}), 422, "work.argv", "required"),
    "an empty command": ("/requests", red(work={"argv": []}), 422, "work.argv", "at least 1"),
    "a command without a program": ("/requests", red(work={"argv": [""]}), 422, "work.argv[0]",
                                    "program"),
    "arguments of 2 MB": ("/requests", red(work={"argv": ["x" * 2**21]}), 422, "work.argv",
                          str(bounds.ARGV_BYTES_MAX)),
    "a relative directory": ("/requests", red(work={"argv": ["x"], "directory": "tmp"}), 422,
                             "work.directory", "absolute"),
    "a user with a slash": ("/requests", red(work={"argv": ["x"], "user": "a/b"}), 422, "work.user",
                            "printable"),
    "LD_PRELOAD": ("/requests", red(work={"argv": ["x"], "env": {"LD_PRELOAD": "x"}}), 422,
                   "work.env.LD_PRELOAD", "reserved"),
    "a variable of ours": ("/requests", red(work={"argv": ["x"], "env": {"CEDE_ATTEMPT": "9"}}),
                           422, "work.env.CEDE_ATTEMPT", "reserved"),
    "= in a variable": ("/requests", red(work={"argv": ["x"], "env": {"a=b": "c"}}), 422,
                        "work.env", "name"),
    "10^4 variables": ("/requests", red(work={"argv": ["x"], "env": {f"v{n}": "" for n in
                       range(10**4)}}), 422, "work.env", str(bounds.ENV_MAX)),
    "a lease for agents' work": ("/requests", red(work={"argv": ["x"]}, lease=60), 422, "lease",
                                 "node's"),
    "an unknown role": ("/tokens", {"name": "t", "role": "king"}, 422, "role", "viewer"),
    "a snapshot that is none": ("/plan", {"pools": 5}, 422, "pools", ""),
}  # fmt: skip


@pytest.mark.parametrize("name", BODIES)
def test_a_bad_body_names_its_field_and_bound(shared: Server, name: str) -> None:
    path, body, status, field, said = BODIES[name]
    before = shared.writer.index
    response = shared["admin"].post(API + path, json=body)
    problem = response.json()
    assert response.status_code == status, problem
    assert response.headers["content-type"] == "application/problem+json"
    assert problem["status"] == status
    assert problem["type"].startswith("urn:cede:problem:")
    assert problem.get("field", "") == field, problem
    assert said in problem["detail"], problem
    assert shared.writer.index == before, "something refused left a trace"


def agent(**fields: Any) -> dict[str, Any]:
    return machines.body("omega") | fields


# name: (body, field, part of the detail)
MACHINES: dict[str, tuple[Any, str, str]] = {
    "no protocol": ({"name": "x"}, "protocol", "required"),
    "another protocol": (agent(protocol=9), "protocol", "protocols 1 to 3 and the agent 9"),
    "a protocol in words": (agent(protocol="1"), "protocol", "integer"),
    "negative devices": (agent(amounts={"gpu": -2}), "amounts.gpu", "0"),
    "no devices": (agent(amounts={"gpu": 0}), "amounts.gpu", "1"),
    "nothing": (agent(amounts={}, devices={}), "amounts", "at least one"),
    "10^9 devices": (agent(amounts={"gpu": 10**9}), "devices.gpu", "1000000000"),
    "a device twice": (agent(devices={"gpu": ["0", "0"]}), "devices.gpu", "twice"),
    "devices of nothing": (agent(devices={"tpu": ["0"]}), "devices.tpu", "no amount"),
    "a device with a path": (agent(devices={"gpu": ["../0", "1"]}), "devices.gpu", "names"),
    "a name with a path": (agent(name="../x"), "name", "printable"),
    "no name": (agent(name=""), "name", "at least 1"),
    "a bad label": (agent(labels={"a b": "c"}), "labels", "label"),
    "a label that cannot be printed": (agent(labels={"a": "\u202e"}), "labels.a", "printable"),
    "no boot": (agent(boot=""), "boot", "at least 1"),
    "a long group": (agent(group="x" * 600), "group", "128"),
    "a group with an empty part": (agent(group="spine-1//rack-3"), "group", "spine-1/rack-3"),
    "a group that is too deep": (agent(group="a/b/c/d/e/f/g/h/i"), "group", "at most 8"),
    "an unknown field": (agent(colour="red"), "colour", "unknown"),
}


@pytest.mark.parametrize("name", MACHINES)
def test_a_machine_that_cannot_be_is_refused(shared: Server, name: str) -> None:
    body, field, said = MACHINES[name]
    before = shared.writer.index
    response = shared["join"].post(f"{API}/agent/register", json=body)
    assert response.status_code == 422, response.text
    problem = response.json()
    assert problem["field"] == field and said in problem["detail"], problem
    assert shared.writer.index == before


def report(**fields: Any) -> dict[str, Any]:
    about = {"id": "r1", "allocation": "a.1", "attempt": 1, "task": 0, "kind": "started"}
    return {"protocol": 1, "boot": "boot of alpha", "reports": [about | fields]}


REPORTS: dict[str, tuple[Any, str, str]] = {
    "an unknown kind": (report(kind="exploded"), "reports.0.kind", "started"),
    "attempt 0": (report(attempt=0), "reports.0.attempt", "1"),
    "a negative task": (report(task=-1), "reports.0.task", "0"),
    "an exit code of 256": (report(exit_code=256), "reports.0.exit_code", "255"),
    "a negative size": (report(size=-1), "reports.0.size", "0"),
    "a negative deferral": (report(seconds=-5), "reports.0.seconds", "seconds"),
    "a long text": (report(text="x" * 3000), "reports.0.text", "2000"),
    "no id": (report(id=""), "reports.0.id", "at least 1"),
    "10^4 reports": (report() | {"reports": report()["reports"] * 10**4}, "reports", "1000"),
    "a negative index": (report() | {"index": -1}, "index", "0"),
    "an endless wait": (report() | {"wait": 1e18}, "wait", "seconds"),
    "a log that is too long": (
        report() | {"logs": [{"id": "x", "data": "A" * 300_000}]},
        "logs.0.data",
        str(agent_bodies.LOG_TEXT_MAX),
    ),
}


def test_a_report_that_cannot_be_is_refused(server: Server) -> None:
    alpha = machines.Machine(server)
    before = server.writer.index
    for name, (body, field, said) in REPORTS.items():
        response = alpha.post(alpha.token, "/agent/heartbeat", body)
        assert response.status_code == 422, (name, response.text)
        problem = response.json()
        assert problem["field"] == field and said in problem["detail"], (name, problem)
    assert server.writer.index == before


def test_independent_tasks_are_not_submitted_in_bulk(shared: Server) -> None:
    body = {"requests": [red(tasks=2, gang=False)]}
    answer = shared["admin"].post(f"{API}/requests/bulk", json=body).json()["items"][0]
    assert answer["status"] == 422 and answer["error"]["field"] == "array"


RAW = {
    "not JSON": (b"{", 400, "not JSON"),
    "duplicate keys": (b'{"name": "a", "name": "b"}', 400, "'name' appears twice"),
    "NaN": (b'{"name": NaN}', 400, "NaN"),
    # Closed again: then it is too deep whatever the interpreter's own limit happens to be.
    "depth": (b'{"name":' * 5_000 + b"1" + b"}" * 5_000, 400, "32 levels"),
    "100 MB": (b" " * (100 * 2**20), 413, str(bounds.SMALL_BODY_BYTES_MAX)),
    "a lone surrogate": (b'{"name": "\\ud800", "capacity": {"gpu": 1}}', 422, "surrogate"),
    "a NUL": (b'{"name": "a\\u0000", "capacity": {"gpu": 1}}', 422, "NUL"),
}


@pytest.mark.parametrize("name", RAW)
def test_a_malformed_body_is_refused(shared: Server, name: str) -> None:
    body, status, said = RAW[name]
    headers = {"Content-Type": "application/json"}
    response = shared["admin"].post(f"{API}/pools", content=body, headers=headers)
    assert response.status_code == status
    assert said in response.json()["detail"]


def test_another_media_type_is_415(shared: Server) -> None:
    headers = {"Content-Type": "text/plain"}
    response = shared["admin"].post(f"{API}/pools", content=b"{}", headers=headers)
    assert response.status_code == 415


QUERIES = {
    "limit=-1": "limit",
    "limit=0": "limit",
    "limit=501": "limit",
    "limit=1000000000": "limit",
    "limit=x": "limit",
    "cursor=AAAA": "cursor",
    "cursor=%00": "cursor",
    "cursor=" + "A" * 2_000: "cursor",
    "colour=red": "colour",
    "status=done": "status.0",
    "component_type=clan": "component_type",
    "preemptible=perhaps": "preemptible",
    "label.a=" + "x" * 600: "label.",
    "x=" + "x" * 9_000: "query",
}


@pytest.mark.parametrize("query", QUERIES)
def test_a_bad_query_names_its_parameter(shared: Server, query: str) -> None:
    response = shared["admin"].get(f"{API}/requests?{query}")
    assert response.status_code == 422, response.text
    assert response.json()["field"] == QUERIES[query]


IDS = ["../x", "..%2F..%2Fetc", "' OR 1=1 --", "%00", "%ED%A0%80", "x" * 128, "-1", "%20"]


@pytest.mark.parametrize("ref", IDS)
@pytest.mark.parametrize("kind", ["pools", "policies", "nodes", "requests", "tokens"])
def test_ids_that_nothing_has_are_404(shared: Server, kind: str, ref: str) -> None:
    for method in ("GET", "DELETE"):
        response = shared["admin"].request(method, f"{API}/{kind}/{ref}")
        assert response.status_code == 404, response.text


def test_an_id_of_10_kb_is_refused_with_its_bound(shared: Server) -> None:
    response = shared["admin"].get(f"{API}/requests/{'x' * 10_000}")
    assert response.status_code == 422
    assert "128" in response.json()["detail"]


@pytest.mark.parametrize("key", ["", "x" * 129, "a b", "ä"])
def test_a_bad_idempotency_key_is_422(shared: Server, key: str) -> None:
    response = shared["admin"].post(
        f"{API}/requests", json=red(), headers={"Idempotency-Key": key.encode("latin-1")}
    )
    assert response.status_code == 422
    assert response.json()["field"] == "Idempotency-Key"


def test_a_foreign_host_is_421(shared: Server) -> None:
    for host in ("evil.example", "evil.example:80", "127.0.0.1.evil.example", "[::2]"):
        response = shared["admin"].get("/healthz", headers={"Host": host})
        assert response.status_code == 421, host
    for host in ("localhost", "127.0.0.1:1", "[::1]:80", "LOCALHOST"):
        assert shared["admin"].get("/healthz", headers={"Host": host}).status_code == 200, host


def test_forwarded_headers_change_nothing(shared: Server) -> None:
    headers = {"X-Forwarded-For": "10.0.0.1", "X-Forwarded-Host": "evil.example"}
    assert shared["admin"].get(f"{API}/whoami", headers=headers).status_code == 200


def test_smuggling_pairs_are_refused(shared: Server) -> None:
    port = int(shared.url.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(
            b"POST /api/v1/pools HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /healthz HTTP/1.1\r\n\r\n"
        )
        answer = connection.recv(65_536)
    assert b" 400 " in answer.split(b"\r\n")[0] or b" 401 " in answer.split(b"\r\n")[0]
    assert b'"status":"ok"' not in answer


def test_every_answer_has_security_headers_and_the_index(shared: Server) -> None:
    for path in ("/healthz", f"{API}/pools", "/nothing", "/"):
        headers = shared["admin"].get(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["cache-control"] == "no-store"
        assert "default-src 'none'" in headers["content-security-policy"]
        assert int(headers["cede-index"]) >= 3
        assert float(headers["cede-now"]) > 0
    assert "unsafe" not in shared["nobody"].get("/").headers["content-security-policy"]


def test_our_own_mistakes_are_500_without_details(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(**_: object) -> None:
        raise RuntimeError("the secret is 42")

    monkeypatch.setattr(server.store, "list_pools", broken)
    response = server["admin"].get(f"{API}/pools")
    assert response.status_code == 500
    assert response.json()["type"] == "urn:cede:problem:internal"
    assert "42" not in response.text
    assert response.headers["x-content-type-options"] == "nosniff"
    assert server["admin"].get("/healthz").status_code == 200


def test_a_plan_that_takes_too_long_is_refused(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "PLAN_SECONDS", 0.01)
    response = server["admin"].post(f"{API}/plan", json={"pools": []})
    assert response.status_code == 422
    assert "seconds" in response.json()["detail"]
