"""Document 002's command lines, typed as they stand there, with `cede` for the name of the
program."""

from __future__ import annotations

import json
import subprocess

import pytest

from tests.client.serving import WAIT_SECONDS, Serving

pytestmark = pytest.mark.system

POOLS = r"""
# Create a pool (capacity as JSON or YAML)
cede resource-pool create training-gpus \
  --capacity '{"gpu": 8, "step_run": 32}' \
  --description "Shared training GPUs for the workspace"

# List pools with occupied vs total capacity
cede resource-pool list

# Inspect one pool (name, ID prefix, or full ID)
cede resource-pool describe training-gpus

# Shrink or grow capacity (0 removes a key from the pool)
cede resource-pool update training-gpus --capacity '{"gpu": 4}'
"""

POLICIES = r"""
# Attach an orchestrator to a pool (default component type is orchestrator)
cede resource-pool attach-policy training-gpus my-k8s-orch \
  --priority 10 \
  --reserved '{"gpu": 2}' \
  --limit '{"gpu": 4}'

# Same for a step operator stack component
cede resource-pool attach-policy training-gpus my-remote-operator \
  --component-type step_operator \
  --priority 5 \
  --reserved '{"gpu": 2}' \
  --limit '{"gpu": 4}'

# List every policy on a pool
cede resource-pool list-policies training-gpus

# List all pools a given orchestrator is attached to
cede resource-pool list-policies --component my-k8s-orch
"""

REQUESTS = r"""
# All resource requests visible to your user (see --help for filters)
cede resource-request list

# Full detail for one request (status, resources, step run link)
cede resource-request describe 01234567-89ab-cdef-0123-456789abcdef

# Requests tied to a specific pool: queued only, active only, or both
cede resource-pool requests training-gpus --view queued
cede resource-pool requests training-gpus --view active
cede resource-pool requests training-gpus --view all

# Drop a stuck or abandoned request (use with care)
cede resource-request delete 01234567-89ab-cdef-0123-456789abcdef
"""

DETACH = """
# Remove that component’s policy from the pool
cede resource-pool detach-policy training-gpus my-k8s-orch
"""

DELETE = """
# Remove a pool (use -y to skip confirmation)
cede resource-pool delete training-gpus --yes
"""


def typed(server: Serving, script: str) -> str:
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        env=server.environment(),
        capture_output=True,
        text=True,
        timeout=2 * WAIT_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_command_line_works_as_typed(server: Serving) -> None:
    out = typed(server, POOLS)
    assert "created pool training-gpus" in out
    assert "gpu: 8, step_run: 32" in out and "Shared training GPUs for the workspace" in out

    out = typed(server, POLICIES)
    assert out.count("my-remote-operator") == 2
    assert out.count("my-k8s-orch") == 3

    with server.client() as client:
        assert client.pools.get("training-gpus")["capacity"] == {"gpu": 4, "step_run": 32}
        waiting, running = (
            client.requests.create(
                {
                    "component": "my-k8s-orch",
                    "resources": {"gpu": 3},
                    "labels": {"pipeline": "training", "run": "training-1", "step": "train"},
                }
            )
            for _ in range(2)
        )
    assert {waiting["status"], running["status"]} == {"allocated", "queued"}
    waiting = waiting if waiting["status"] == "queued" else running
    out = typed(server, REQUESTS.replace("01234567-89ab-cdef-0123-456789abcdef", waiting["id"]))
    for word in ("training", "training-1", "train", "1 of 4 are free", "queued", "allocated"):
        assert word in out, out

    typed(server, "cede resource-pool update training-gpus --capacity '{step_run: 0}'")
    with server.client() as client:
        assert client.pools.get("training-gpus")["capacity"] == {"gpu": 4}


def test_what_is_attached_can_be_detached_and_deleted(server: Serving) -> None:
    typed(server, POOLS + POLICIES)
    typed(server, DETACH)
    listed = json.loads(typed(server, "cede resource-pool list-policies training-gpus -o json"))
    assert [each["component"] for each in listed] == ["my-remote-operator"]
    typed(server, "cede resource-pool detach-policy training-gpus my-remote-operator")
    typed(server, DELETE)
    assert "training-gpus" not in typed(server, "cede resource-pool list -o json")


def test_short_forms_are_the_same_commands(server: Serving) -> None:
    typed(server, "cede pool create a -c 'gpu: 2' && cede policy attach a red -t team -p 1")
    pools = json.loads(typed(server, "cede pool list -o json"))
    prefix = next(each["id"] for each in pools if each["name"] == "a")[:30]
    assert "gpu: 2" in (described := typed(server, f"cede pool describe {prefix}"))
    assert "settings" not in described, "none differs from the preset"
    typed(server, "cede pool update a --settings 'grace: 7'")
    assert "settings     grace: 7\n" in typed(server, "cede pool describe a")
    assert "bypass_max: 64" in typed(server, "cede pool describe a -o yaml")
    assert "red" in typed(server, "cede policy list a")
    typed(server, "cede policy update a red -p 7 -l '{gpu: 1}'")
    out = json.loads(typed(server, "cede policy list a -o json"))
    assert (out[0]["priority"], out[0]["limit"]) == (7, {"gpu": 1})
    made = json.loads(typed(server, "cede request create --component red -t team --gpu 1 -o json"))
    assert made["status"] == "allocated"
    assert "allocated" in typed(server, f"cede why {made['id']}")
    assert "being stopped" in typed(server, f"cede request cancel {made['id']}")


def test_deleting_a_running_request_stops_it_first(server: Serving) -> None:
    with server.client() as client:
        client.pools.create("a", {"gpu": 2}, settings={"grace": 30})
        client.policies.attach("a", "red", component_type="team", priority=1)
    red = ("--component", "red", "-t", "team", "--lease", "10")
    run = server.start_cede("run", *red, "--gpu", "1", "--", "sleep", "1000")
    while not (found := json.loads(server.cede("request", "list", "-o", "json").stdout)):
        pass
    done = server.cede("resource-request", "delete", found[0]["id"])
    assert done.returncode == 0, done.stderr
    assert "waiting until it has stopped" in done.stderr
    assert run.wait(WAIT_SECONDS) == 9
    assert server.cede("request", "describe", found[0]["id"]).returncode == 3
