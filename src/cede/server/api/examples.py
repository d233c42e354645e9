"""Answers as the OpenAPI document shows them; a test checks that each fits its schema."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

_POOL_ID = "0198c1d2-7a10-7c3e-9f00-4b1f6a2d8e01"
_REQUEST_ID = "0198c1d2-8b44-7a51-8c21-6f0d9b3c2a17"

POOL: Json = {
    "id": _POOL_ID,
    "name": "training-gpus",
    "description": "Shared training GPUs",
    "preset": "quota",
    "capacity": {"gpu": 8},
    "occupied": {"gpu": 6},
    "free": {"gpu": 2},
    "earmarked": {},
    "queued": 1,
    "active": 3,
    "settings": {
        "precedence": "rights_first",
        "bypass_max": 64,
        "withhold_max": 3600,
        "min_run": 0,
        "reclaim_min_run": 0,
        "grace": 30,
    },
    "created": "2026-03-02T09:00:00Z",
}

POLICY: Json = {
    "id": "0198c1d2-7b90-7e02-a4c3-10d2f9ab7c55",
    "name": "",
    "pool": "training-gpus",
    "pool_id": _POOL_ID,
    "component": "red",
    "component_type": "team",
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
    "text": "pool training-gpus has 2 of 8 gpu free, 4 are needed, and no holder may be stopped "
    "for this",
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
    "retry": {"max_retries": 0, "delay": 0, "backoff": 1, "preemptions": "count"},
    "walltime": 3600,
    "lease": 60,
    "on_silence": "stop",
    "labels": {"job": "train"},
    "owner": "red-ci",
    "created": "2026-03-02T09:05:00Z",
    "submitted_at": 300.25,
    "reason": REASON,
    "earmark": None,
    "allocation": None,
    "index": 42,
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
        "deadline": None,
    },
}

EVENT: Json = {
    "index": 43,
    "at": 300.26,
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

WHY: Json = {"id": _REQUEST_ID, "status": "queued", "reason": REASON}

PLAN: Json = {"rounds": [], "at_rest": True}

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
