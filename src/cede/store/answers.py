"""Packs the answers that are remembered under idempotency keys.

One is kept for every keyed call of a day, so its size is most of a request's storage on that day.
The key of an answer is a digest, and the answer is compressed against a text that most answers
share.
"""

from __future__ import annotations

import base64
import hashlib
import json
import zlib

# Marks of packed texts, which no JSON starts with. Base 64 is a fifteenth longer than base 85,
# which earlier versions used, and fifty times as fast. Still older ones stored plain JSON.
_BASE_85 = "z1"
_BASE_64 = "z2"
# The common text of answers. It must not change: another text gets another mark.
_SHARED = (
    b'"parts":["error":{"code":"not_found","detail":"conflict","already_ended","invalid","field":'
    b'"untracked","gang":true,"nodes":[{"node":"devices":{"gpu":["0","1"]}}],"tasks":1,"checkpoint"'
    b':null,"members":[],"argv":[],"env":{},"cwd":null,"failed","cancelled","preempted","rejected",'
    b'"suspended","queued","code":"waiting_for_capacity","text":"","fix":"nothing","orchestrator",'
    b'"step_operator","user","team","pipeline":"","step":"","run":"","memory_mb":1024,"mcpu":1000,'
    b'"gpu":1,"step_run":1}[{"status":201,"request":{"id":"019","status":"released","component":"'
    b'","component_type":"team","resources":{"step_run":1},"preemptible":true,"pool":null,"attempt"'
    b':1,"retries_used":0,"preempted_count":0,"retry":{"max_retries":0,"delay":0,"backoff":1,'
    b'"preemptions":"count"},"walltime":null,"lease":600,"lease_until":null,"on_silence":"keep",'
    b'"labels":{},"owner":"","created":"2026-01-01T00:00:00.000Z","submitted_at":1.0,"index":1,'
    b'"class":5,"sensitive":false,"tenant":null,"limit":{},"weight":1.0,"settings":{},"part_of":null'
    b',"shape":null,"work":null,"earmark":null,"withhold":null,"reason":null,"allocation":{"id":"'
    b'","attempt":1,"state":"granted","pool":"local","policy":"","amounts":{},"allocated_at":1.0,'
    b'"started_at":null,"ended_at":null,"deadline":null,"lease_left":600,"seconds_left":null,'
    b'"parting":null,"asked":null,"taken_for":null,"preemptible":true}}}]'
)


def digest(place: tuple[str, str, str]) -> str:
    """The digest of token, route and key, under which an answer is stored."""
    whole = json.dumps(place, separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(hashlib.sha256(whole).digest()).decode().rstrip("=")


def pack(response: str) -> str:
    packer = zlib.compressobj(6, wbits=-15, zdict=_SHARED)
    packed = packer.compress(response.encode()) + packer.flush()
    return _BASE_64 + base64.b64encode(packed).decode()


def unpack(stored: str) -> str:
    mark, text = stored[:2], stored[2:]
    if mark not in (_BASE_85, _BASE_64):
        return stored
    unpacker = zlib.decompressobj(wbits=-15, zdict=_SHARED)
    packed = base64.b64decode(text) if mark == _BASE_64 else base64.b85decode(text)
    return (unpacker.decompress(packed) + unpacker.flush()).decode()
