"""What Prometheus reads is what happened."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client.parser import text_string_to_metric_families

from tests.api import machines
from tests.api.conftest import Server, made

API = "/api/v1"


def scrape(server: Server) -> dict[tuple[str, tuple[str, ...]], float]:
    text = server["viewer"].get("/metrics")
    assert text.headers["content-type"].startswith("text/plain")
    return {
        (sample.name, tuple(value for _, value in sorted(sample.labels.items()))): sample.value
        for task_group in text_string_to_metric_families(text.text)
        for sample in task_group.samples
    }


def test_pools_grants_preemptions_and_answers(server: Server) -> None:
    server.pool("gpus", 8)
    server.policy("red", reserved={"gpu": 4})
    server.policy("blue", reserved={"gpu": 4})
    victim = server.submit("red", 8)
    server.submit("blue", 4)
    found = scrape(server)
    assert found["cede_pool_capacity", ("gpu", "gpus")] == 8
    assert found["cede_pool_occupied", ("gpu", "gpus")] == 8
    assert found["cede_requests", ("gpus", "queued")] == 1
    assert found["cede_requests", ("gpus", "active")] == 1
    assert found["cede_grants_total", ("gpus",)] == 1
    assert found["cede_grant_latency_seconds_count", ("gpus",)] == 1
    assert found["cede_preemptions_total", ("red", "gpus", "reclaim")] == 1
    assert found["cede_http_requests_total", ("POST", f"{API}/requests", "201")] == 2
    assert found["cede_pass_seconds_count", ()] == found["cede_commit_seconds_count", ()] >= 5
    assert found["cede_commit_seconds_sum", ()] > 0
    path = f"{API}/requests/{victim['id']}/release"
    made(server["red"].post(path, json={"outcome": "done"}))
    again = scrape(server)
    assert again["cede_grants_total", ("gpus",)] == 2
    assert again["cede_preemptions_total", ("red", "gpus", "reclaim")] == 1
    assert victim["id"] not in server["viewer"].get("/metrics").text


def test_nodes_heartbeats_and_stops(server: Server) -> None:
    machines.pool_of_nodes(server)
    server.policy("red", "farm", priority=1)
    server.policy("blue", "farm", priority=9)
    alpha = machines.Machine(server, gpus=2)
    machines.run(server, "red", checkpoint="auto", retry={"max_retries": 1})
    machines.run(server, "red", checkpoint="manual", checkpoint_timeout=0)
    for order in alpha.beat()["orders"]:
        alpha.tell(order, "started")
    machines.run(server, "blue", gpu=2)
    orders = {each["checkpoint"]: each for each in alpha.beat()["orders"]}
    saved = alpha.tell(orders["auto"], "saved", checkpoint="c1")
    assert {each["do"] for each in saved["orders"]} == {"stop"}
    for order in orders.values():
        alpha.tell(order, "ended", exit_code=143, cause="stopped")
        alpha.tell(order, "ended", exit_code=143, cause="stopped")
    found = scrape(server)
    assert found["cede_nodes", ("farm", "ready")] == 1
    assert found["cede_leases", ("node",)] == 1
    assert found["cede_heartbeats_total", ()] == found["cede_heartbeat_seconds_count", ()] >= 9
    assert found["cede_preemptions_total", ("red", "farm", "priority")] == 2
    assert found["cede_preemption_checkpoint_duration_seconds_count", ("farm",)] == 1
    assert found["cede_preemption_failed_checkpoint_total", ("farm",)] == 1
    assert found["cede_preemption_victim_requeue_total", ("farm",)] == 1
    assert found["cede_stale_reports_total", ()] == 2


def test_work_that_is_asked_to_save_itself_and_goes_on(
    server: Server, eventually: Callable[[Callable[[], bool]], None]
) -> None:
    often = {"broker": True, "checkpoint_interval_min": 0, "checkpoint_interval_max": 0}
    machines.pool_of_nodes(server, settings=often)
    server.policy("red", "farm", priority=1)
    alpha = machines.Machine(server, gpus=2)
    request = machines.run(server, "red", checkpoint="auto")
    [order] = alpha.beat()["orders"]
    assert (order["do"], order["hint"], order["seconds_left"]) == ("run", 0, 0)
    alpha.tell(order, "started")
    eventually(lambda: alpha.beat()["orders"][0]["hint"] != 0)
    [order] = alpha.beat()["orders"]
    assert order["do"] == "run" and 0 < order["seconds_left"] <= 600
    path = f"{API}/requests/{request['id']}"
    shown = made(server["red"].get(path))
    assert (shown["status"], shown["allocation"]["asked"]["hint"]) == ("allocated", order["hint"])
    why = made(server["red"].get(f"{path}/why"))["checkpoint"]
    assert why["last"] is None and why["asked"]["seconds_left"] <= 600
    made(server["admin"].patch(f"{API}/pools/farm", json={"settings": {"broker": False}}))
    [after] = alpha.tell(order, "saved", checkpoint="c1")["orders"]
    assert (after["do"], after["hint"], after["keep"]) == ("run", 0, "")
    found = scrape(server)
    assert found["cede_checkpoint_asks_total", ("farm",)] == 1
    assert found["cede_checkpoint_duration_seconds_count", ("farm",)] == 1
    assert found["cede_checkpoint_evaluations_total", ("overdue", "farm")] == 1
    assert ("cede_preemption_checkpoint_duration_seconds_count", ("farm",)) not in found


def test_what_tenants_have_in_use(server: Server) -> None:
    server.pool("gpus", 8)
    server.policy("red", reserved={"gpu": 4})
    for name in ("bio", "idle"):
        made(server["admin"].post(f"{API}/tenants", json={"name": name}))
    server.submit("red", 4, tasks=2, tenant="bio")
    server.submit("red", 1, tenant="bio")
    server.submit("red", 1, tenant="unknown")
    found = scrape(server)
    assert found["cede_tenant_nodes", ("bio",)] == 2
    assert found["cede_tenant_requests", ("bio",)] == 2
    assert found["cede_tenant_nodes", ("idle",)] == found["cede_tenant_requests", ("idle",)] == 0
    assert ("cede_tenant_nodes", ("unknown",)) not in found


def test_shares_of_policies(
    server: Server, eventually: Callable[[Callable[[], bool]], None]
) -> None:
    server.pool("gpus", 8, preset="fair_share")
    server.policy("red")
    server.policy("blue")
    server.submit("red", 8)
    server.submit("blue", 4)
    share = "cede_share", ("gpu", "fair", "blue", "gpus")
    eventually(lambda: scrape(server).get(share) == 0.5)  # published with the next update
    found = scrape(server)
    for part, value in {
        "fair": 0.5,
        "weighed": 0.5,
        "usage": 1,
        "strong": 0,
        "integral": 0,
    }.items():
        assert found["cede_share", ("gpu", part, "red", "gpus")] == value
    assert found["cede_share_satisfaction", ("red", "gpus")] == 2
    assert found["cede_share_satisfaction", ("blue", "gpus")] == 0
    assert found["cede_share_status", ("blue", "gpus", "non_starving", "below_fair_share")] == 1
    assert found["cede_share_below_seconds", ("red", "gpus")] == 0
    assert found["cede_share_below_seconds", ("blue", "gpus")] >= 0
