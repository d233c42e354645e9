"""Example answers for the OpenAPI document; a test checks that each fits its schema."""

from __future__ import annotations

from typing import Any

from cede.model.policy import Policy
from cede.model.request import Request, Retry
from cede.model.stopping import StopPolicy
from cede.model.terms import Terms
from cede.server.api.declared import example_of

Json = dict[str, Any]

_POOL_ID = "0198c1d2-7a10-7c3e-9f00-4b1f6a2d8e01"
_NODE_ID = "0198c1d2-7c31-7f40-8e55-3a9b1c0d7f24"
_REQUEST_ID = "0198c1d2-8b44-7a51-8c21-6f0d9b3c2a17"

POOL: Json = {
    "id": _POOL_ID,
    "name": "training-gpus",
    "description": "Shared training GPUs",
    "preset": "quota",
    "capacity": {"gpu": 8},
    "nodes": None,
    "occupied": {"gpu": 6},
    "free": {"gpu": 2},
    "earmarked": {},
    "queued": 1,
    "active": 3,
    "quarantined": False,
    "settings": {
        "precedence": "rights_first",
        "bypass_max": 64,
        "withhold_max": 3600,
        "min_run": 0,
        "reclaim_min_run": 0,
        "grace": 30,
    },
    "own_settings": {"grace": 30},
    "created": "2026-03-02T09:00:00Z",
}

POLICY: Json = {
    "id": "0198c1d2-7b90-7e02-a4c3-10d2f9ab7c55",
    "name": "",
    "pool": "training-gpus",
    "pool_id": _POOL_ID,
    "component": "red",
    "component_type": "team",
    "parent_id": None,
    **example_of(Policy),
    "priority": 10,
    "reserved": {"gpu": 4},
    "limit": {"gpu": 8},
    "occupied": {"gpu": 6},
    "borrowed": {"gpu": 2},
    "created": "2026-03-02T09:01:00Z",
}

REASON: Json = {
    "code": "no_capacity",
    "pool": "training-gpus",
    "key": "gpu",
    "free": 2,
    "bound": 8,
    "requested": 4,
    "missing": 2,
    "text": "4 gpu are needed and 2 of 8 are free in pool training-gpus; 6 are held by work that "
    "is stopped for nobody (0198c1d2-8b44-7a51-8c21-6f0d9b3c2a18)",
    "fix": "2 gpu must be released",
}

REQUEST: Json = {
    "id": _REQUEST_ID,
    "component": "red",
    "component_type": "team",
    "status": "queued",
    "tracked": True,
    "pool": None,
    "resources": {"gpu": 4, "step_run": 1},
    "preemptible": True,
    "attempt": 1,
    "preempted_count": 0,
    "retry": example_of(Retry),
    "lease": 60,
    "owner": "red-ci",
    "created": "2026-03-02T09:05:00Z",
    "submitted_at": 300.25,
    "reason": REASON,
    "earmark": None,
    "allocation": None,
    "index": 42,
    "tasks": 1,
    "part_of": None,
    "array_task": None,
    "shape": None,
    "command": None,
    "work": None,
    "saved": None,
    "lost_count": 0,
    "settings": {},
    **example_of(Request, StopPolicy, Terms),
}

GRANTED: Json = REQUEST | {
    "status": "allocated",
    "pool": "training-gpus",
    "reason": None,
    "allocation": {
        "id": f"{_REQUEST_ID}.1",
        "state": "granted",
        "pool": "training-gpus",
        "attempt": 1,
        "allocated_at": 300.26,
        "started_at": None,
        "ended_at": None,
        "deadline": None,
        "members": [
            {
                "task": 0,
                "node": "gpu-7",
                "devices": {"gpu": ["0", "1"]},
                "phase": "started",
                "saved": None,
                "exit_code": None,
                "cause": "",
            }
        ],
        "parting": {
            "hint": 57,
            "hinted_at": 900.5,
            "seconds_left": 480,
            "answered": True,
            "extended": False,
            "deferred": 0,
            "saved": False,
            "failed": False,
        },
        "asked": None,
    },
}

HELD: Json = GRANTED | {"presence": "cede-5f0c1b9a4d7e2836a1c04b7d9e3f6285"}

_WORK: Json = {
    "argv": ["python", "train.py"],
    "env": {"EPOCHS": "10"},
    "directory": "/home/red",
    "user": "red",
}

NODE: Json = {
    "id": _NODE_ID,
    "name": "gpu-7",
    "state": "ready",
    "out": "no",
    "reason": "",
    "quarantined": False,
    "pool": "training-gpus",
    "amounts": {"gpu": 2, "mcpu": 16000},
    "held": {"gpu": 1},
    "bridge": None,
    "others": {},
    "others_why": "",
    "free": {"gpu": 1, "mcpu": 16000},
    "devices": {"gpu": ["0", "1"]},
    "labels": {"gpu_type": "a100"},
    "group": "spine-1/rack-3",
    "fingerprint": "",
    "heartbeat": 10,
    "silent": 3.2,
    "failures": 0,
    "created": "2026-03-02T09:00:30Z",
    "claimed_by": None,
    "lease": 600,
    "checkpoints": "shared",
    "allocations": [
        {
            "request": _REQUEST_ID,
            "subject": "team:red",
            "attempt": 1,
            "state": "running",
            "tasks": [0],
            "devices": ["0"],
        }
    ],
}

CLAIM: Json = {"nodes": [NODE | {"claimed_by": "red-ci"}], "for": "red-ci", "stopping": 1}
UNCLAIM: Json = {"nodes": [NODE], "for": None, "stopping": 0}

REGISTERED: Json = {
    "node": _NODE_ID,
    "epoch": 3,
    "heartbeat": 10,
    "lease": 600,
    "token": "cede_…",
    "notes": [],
}

BRIDGE: Json = {
    "bridge": "slurm",
    "nodes": 4,
    "epoch": 3,
    "heartbeat": 10,
    "token": "cede_…",
}

HEARTBEAT: Json = {
    "epoch": 3,
    "index": 43,
    "version": 43,
    "heartbeat": 10,
    "lease": 600,
    "acknowledged": [f"{_REQUEST_ID}.1.0/started/1"],
    "heard": True,
    "orders": [
        {
            **example_of(StopPolicy),
            "allocation": f"{_REQUEST_ID}.1",
            "request": _REQUEST_ID,
            "attempt": 1,
            "task": 0,
            "tasks": 1,
            "array": None,
            "do": "run",
            "work": _WORK,
            "amounts": {"gpu": 1},
            "devices": {"gpu": ["0"]},
            "nodes": ["gpu-7"],
            "hint": 0,
            "step": 0,
            "seconds_left": 0,
            "grace": 30,
            "cause": "",
            "keep": "",
            "resume": "",
            "on_silence": "stop",
            "walltime": 3600,
            "pool": "training-gpus",
            "subject": "team:red",
            "owner": "red-ci",
        }
    ],
    "logs": [
        {
            "id": "0198c1d2-a110-7b04-8f22-9d3c5e7a1b60",
            "allocation": f"{_REQUEST_ID}.1",
            "attempt": 1,
            "task": 0,
            "stream": "stdout",
            "offset": 0,
            "most": 131072,
            "tail": None,
            "since": None,
            "age": None,
        }
    ],
    "over": [],
    "quarantined": False,
}

EVENT: Json = {
    "index": 43,
    "at": 300.26,
    "time": "2026-03-02T09:05:00.260Z",
    "kind": "granted",
    "request_id": _REQUEST_ID,
    "pool_id": _POOL_ID,
    "data": {"attempt": 1},
}

TOKEN: Json = {
    "id": "0198c1d2-9c02-7d10-b2f4-2c7e5a901e33",
    "name": "red-ci",
    "role": "submitter",
    "subjects": ["team:red"],
    "created": "2026-03-02T09:02:00Z",
    "expires_at": "2026-03-03T09:02:00Z",
    "revoked": False,
    "uses": None,
}

NEW_TOKEN: Json = TOKEN | {"token": "cede_…"}

WHOAMI: Json = {
    "id": TOKEN["id"],
    "name": "red-ci",
    "role": "submitter",
    "subjects": ["team:red"],
    "expires_at": "2026-03-03T09:02:00Z",
}

AUDIT: Json = {
    "number": 7,
    "created": "2026-03-02T09:00:00Z",
    "actor": "admin",
    "action": "pool.create",
    "target": _POOL_ID,
    "detail": {"name": "training-gpus"},
    "previous": "5f1c…",
    "hash": "a07e…",
}

VERIFIED: Json = {
    "end": f"7:{'a07e' * 16}",
    "removed": f"0:{'0' * 64}",
    "head": f"9:{'b2c4' * 16}",
    "done": True,
    "broken": {
        "number": 8,
        "what": "number",
        "detail": "there is no entry 8; the next one is 9",
    },
}

WHY: Json = {"id": _REQUEST_ID, "status": "queued", "reason": REASON}

PLAN: Json = {"rounds": [], "at_rest": True}

DRY_RUN: Json = {
    "counts": {"stops": 0, "pauses": 1, "starts": 0},
    "stops": [],
    "pauses": [
        {
            "request": _REQUEST_ID,
            "component": "my-orchestrator",
            "reason": {
                "code": "no_longer_eligible",
                "key": "gpu",
                "pools": [],
                "text": "paused by an edit: gpu: 4 exceeds the limit 2 of red in pool gpus",
                "fix": "raise one of the bounds named and it waits at its old place again",
            },
        }
    ],
    "starts": [],
}

CONFIGURATION: Json = {
    "pools": [{"name": "gpus", "capacity": {"gpu": 8}, "settings": {"grace": 30}}],
    "policies": [
        {
            "pool": "gpus",
            "component": "red",
            "component_type": "team",
            "priority": 10,
            "reserved": {"gpu": 4},
        }
    ],
    "tenants": [{"name": "bio", "max_nodes": 16}],
}

APPLIED: Json = {
    "changes": [
        {
            "do": "update",
            "kind": "policy",
            "name": "team:red",
            "pool": "gpus",
            "fields": {"reserved": {"from": {"gpu": 2}, "to": {"gpu": 4}}},
        }
    ]
}

_DETAILS = {
    400: ("malformed", "not JSON: Expecting value at line 1, column 1", None),
    401: ("unauthenticated", "this needs a valid token: Authorization: Bearer cede_…", None),
    403: ("forbidden", "this needs the role operator; the token's is viewer", None),
    404: ("not_found", "no pool 'training'", None),
    409: ("stale_fence", "attempt 1 is over; the request is at attempt 2", None),
    413: ("too_large", "the body is larger than 8388608 bytes", None),
    415: ("unsupported_media_type", "the body must be application/json, not text/plain", None),
    421: ("wrong_host", "this server does not answer to that Host", "Host"),
    422: ("invalid", "capacity.gpu: Input should be greater than or equal to 0", "capacity.gpu"),
    429: ("rate_limited", "one token may spend 5000 cost units a second, 20000 at once", None),
    503: ("overloaded", "too many commands are waiting; try again", None),
}


def problem(status: int, title: str) -> Json:
    code, detail, field = _DETAILS[status]
    body: Json = {"type": f"urn:cede:problem:{code}", "title": title, "status": status}
    return body | {"detail": detail} | ({} if field is None else {"field": field})


def page(item: Json) -> Json:
    return {"items": [item], "next": None}
