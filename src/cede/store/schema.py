"""The tables, once for both databases.

Constraints hold here against any bug above: states that exist, numbers that are not negative, one
live allocation per request and in the pool of its request (S9), names that are unique, one policy
per subject and pool, a device in one live allocation only (S3), and journals that only grow (S20,
S24).

Fields of filters and orders are columns; all others that are no numbers are JSON text, so that one
grant stays a few hundred bytes. Text sorts by code point on both databases, so pages and prefixes
agree.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from sqlalchemy import (
    Boolean,
    CheckConstraint,
    Column,
    ColumnElement,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    MetaData,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
    func,
    literal_column,
    text,
)

from cede.model.ids import TAIL
from cede.model.lifecycle import TERMINAL, AllocationState, RequestStatus
from cede.model.node import NodeState, Out
from cede.model.subject import SUBJECT_TYPES
from cede.model.token import Role
from cede.store import own_columns
from cede.store.own_columns import NAME, NUMBER

metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(referred_table_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    }
)


def one_of(column: str, values: type[StrEnum] | tuple[str, ...] | list[str]) -> str:
    """`column IN ('a', 'b')`, for checks on our own closed sets of words."""
    words = ", ".join(f"'{value}'" for value in values)
    return f"{column} IN ({words})"


def tail(id: ColumnElement[str]) -> ColumnElement[str]:
    """The random group of an id, which begins with the short form; 25 is a literal as in the index,
    which is not used for a parameter.
    """
    found: ColumnElement[str] = func.substr(id, literal_column(str(TAIL + 1)))
    return found


ACTIVE = one_of("status", [status for status in RequestStatus if status not in TERMINAL])
ENDED = one_of("status", [status for status in RequestStatus if status in TERMINAL])


def not_negative(*columns: str) -> CheckConstraint:
    return CheckConstraint(" AND ".join(f"{column} >= 0" for column in columns), "not_negative")


def partial_index(
    name: str, *columns: ColumnElement[Any], where: str, unique: bool = False
) -> None:
    """An index of some rows. The migrations make it on PostgreSQL as well; to say so here would
    import that dialect with all its drivers in every start.
    """
    Index(name, *columns, unique=unique, sqlite_where=text(where))


# One row. `head` is the journal's last index; `lease_until` is an instant of the database's clock.
meta = Table(
    "meta",
    metadata,
    Column("id", SmallInteger, primary_key=True, autoincrement=False),
    Column("epoch", NUMBER, nullable=False),
    Column("holder", Text, nullable=False),
    Column("lease_until", NUMBER, nullable=False),
    Column("head", NUMBER, nullable=False),
    Column("instant", NUMBER, nullable=False),
    Column("boot_id", Text, nullable=False),
    Column("boottime", NUMBER, nullable=False),
    Column("secret", Text, nullable=False),
    # The newest audit entry: its number and its hash.
    Column("audit_number", NUMBER, nullable=True),
    Column("audit_hash", Text, nullable=True),
    # Retention: requests that ended before this instant, and events and audit entries up to these
    # places, are removed or about to be. The audit's entry `audit_cut` is about its own removal.
    Column("requests_before", NUMBER, nullable=False, server_default=text("0")),
    Column("events_through", NUMBER, nullable=False, server_default=text("0")),
    Column("audit_through", NUMBER, nullable=False, server_default=text("0")),
    Column("audit_cut", NUMBER, nullable=False, server_default=text("0")),
    Column("audit_through_hash", Text, nullable=True),
    # The number of commits, the digests of all tables, and checksums of this row: of the epoch,
    # which a takeover changes, and of all other columns but `holder` and `lease_until`.
    Column("commits", NUMBER, nullable=False, server_default=text("0")),
    Column("digests", Text, nullable=False, server_default=text("'{}'")),
    Column("epoch_sum", Text, nullable=False, server_default=text("''")),
    Column("row_sum", Text, nullable=False, server_default=text("''")),
    CheckConstraint("id = 1", "one_row"),
    not_negative("epoch", "lease_until", "head", "instant", "boottime"),
)

pools = Table(
    "pools",
    metadata,
    Column("id", NAME, primary_key=True),
    Column("name", NAME, nullable=False),
    Column("capacity", Text, nullable=False),
    Column("preset", Text, nullable=False),
    Column("settings", Text, nullable=False),
    Column("description", Text, nullable=False),
    Column("created", Text, nullable=False),
    Column("edited", NUMBER, nullable=False, server_default=text("0")),
    Column("nodes", Text),
    Column("quarantine", NUMBER),
    UniqueConstraint("name"),
)

# A batch may make a pool and move nodes into it, or take them out of one that it deletes: the
# reference is checked at the commit.
nodes = Table(
    "nodes",
    metadata,
    Column("id", NAME, primary_key=True),
    Column("name", NAME, nullable=False),
    Column("pool_id", NAME, ForeignKey("pools.id", deferrable=True, initially="DEFERRED")),
    Column("state", Text, nullable=False),
    Column("out", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("amounts", Text, nullable=False),
    Column("devices", Text, nullable=False),
    Column("labels", Text, nullable=False),
    Column("topology_group", Text, nullable=False),
    Column("fingerprint", Text, nullable=False),
    Column("heartbeat", NUMBER, nullable=False),
    Column("boot", Text, nullable=False),
    Column("failures", Integer, nullable=False),
    Column("created", Text, nullable=False),
    Column("edited", NUMBER, nullable=False, server_default=text("0")),
    Column("claimed_by", Text, nullable=False, server_default=text("''")),
    Column("agent", Text),
    UniqueConstraint("name"),
    CheckConstraint(one_of("state", NodeState), "state"),
    CheckConstraint(one_of("out", Out), "out"),
    not_negative("heartbeat", "failures"),
)

policies = Table(
    "policies",
    metadata,
    Column("id", NAME, primary_key=True),
    Column("pool_id", NAME, ForeignKey("pools.id"), nullable=False),
    Column("subject_type", NAME, nullable=False),
    Column("subject_name", NAME, nullable=False),
    Column("priority", NUMBER, nullable=False),
    Column("reserved", Text, nullable=False),
    Column("limits", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("created", Text, nullable=False),
    Column("edited", NUMBER, nullable=False, server_default=text("0")),
    Column("parent_id", NAME, ForeignKey("policies.id")),
    Column("weight", Double, nullable=False, server_default=text("1")),
    Column("mode", Text, nullable=False, server_default=text("'fair_share'")),
    Column("further", Text),
    UniqueConstraint("pool_id", "subject_type", "subject_name"),
    CheckConstraint(one_of("subject_type", SUBJECT_TYPES), "subject_type"),
)
Index("ix_policies_subject", policies.c.subject_type, policies.c.subject_name)

# A tenant belongs to no pool. A bound that is NULL does not bind.
tenants = Table(
    "tenants",
    metadata,
    Column("id", NAME, primary_key=True),
    Column("name", NAME, nullable=False),
    Column("max_nodes", NUMBER),
    Column("max_concurrent", NUMBER),
    Column("gpu_hours_budget", Double),
    Column("node_hours_budget", Double),
    Column("fair_share_target", Double, nullable=False),
    Column("burst_allowance", Double),
    Column("created", Text, nullable=False),
    Column("edited", NUMBER, nullable=False),
    UniqueConstraint("name"),
    not_negative("max_nodes", "max_concurrent", "gpu_hours_budget", "node_hours_budget"),
)

# `granted_pool_id` and `granted_attempt` are of the latest allocation. With `one` they are the key
# that live allocations refer to: two live allocations of one request in two pools cannot both find
# their pair. `task` and `work` never change: the shape and the stop policy of a request, and the
# command that agents run, which may be large. `kept` is its checkpoint and the number of its losses
# by machines. `class` is NULL for the default one, `tenant` for none; `terms` is the rest of its
# terms. After them come the fields that the model declares.
requests = Table(
    "requests",
    metadata,
    Column("id", NAME, primary_key=True),
    Column("at_index", NUMBER, nullable=False),
    Column("submitted_at", NUMBER, nullable=False),
    Column("subject_type", NAME, nullable=False),
    Column("subject_name", NAME, nullable=False),
    Column("created", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("preemptible", Boolean, nullable=False),
    Column("pool_id", NAME),
    Column("granted_pool_id", NAME),
    Column("granted_attempt", Integer),
    Column("amounts", Text, nullable=False),
    Column("reason", Text),
    Column("attempt", Integer, nullable=False),
    Column("retries_used", Integer, nullable=False),
    Column("preempted_count", Integer, nullable=False),
    Column("retry", Text),
    Column("not_before", NUMBER, nullable=False),
    Column("bypassed", Integer, nullable=False),
    Column("withhold", Text),
    Column("earmark", Text),
    Column("lease", NUMBER),
    Column("lease_until", NUMBER),
    Column("owner", Text, nullable=False),
    Column("task", Text),
    Column("work", Text),
    Column("part_of", NAME),
    Column("kept", Text),
    Column("class", SmallInteger),
    Column("tenant", NAME),
    Column("terms", Text),
    Column("ended_at", NUMBER),
    Column("array_task", NUMBER),
    *own_columns.columns(),
    Column("one", SmallInteger, nullable=False, server_default=text("1")),
    UniqueConstraint("id", "granted_pool_id", "one", name="uq_requests_granted"),
    CheckConstraint(one_of("status", RequestStatus), "status"),
    CheckConstraint(one_of("subject_type", SUBJECT_TYPES), "subject_type"),
    CheckConstraint("one = 1", "one"),
    CheckConstraint("attempt >= 1", "attempt"),
    CheckConstraint("class BETWEEN 0 AND 10", "class"),
    CheckConstraint("(granted_pool_id IS NULL) = (granted_attempt IS NULL)", "granted"),
    not_negative(
        "at_index", "submitted_at", "retries_used", "preempted_count", "not_before", "bypassed",
        "walltime", "lease", "lease_until",
    ),
    sqlite_with_rowid=False,
)  # fmt: skip
Index("uq_requests_at_index", requests.c.at_index, unique=True)
Index("ix_requests_tail", tail(requests.c.id))
Index("ix_requests_subject", requests.c.subject_type, requests.c.subject_name, requests.c.at_index)
partial_index(
    "ix_requests_active",
    requests.c.at_index,
    where=ACTIVE,
)
partial_index(
    "ix_requests_part_of",
    requests.c.part_of,
    requests.c.at_index,
    where="part_of IS NOT NULL",
)
partial_index(
    "ix_requests_tenant",
    requests.c.tenant,
    requests.c.at_index,
    where="tenant IS NOT NULL",
)

partial_index(
    "ix_requests_ended",
    requests.c.ended_at,
    where="ended_at IS NOT NULL",
)
partial_index(
    "ix_requests_status",
    requests.c.status,
    requests.c.at_index,
    where=ENDED,
)

# The id of an allocation is `request_id.attempt`, so it needs no column. `live` is 1 or, once
# ended, NULL: then it refers to no request. `tenant` and `nodes` are for the accounts, which
# outlast the request; the number of nodes is NULL for one, and the lost time NULL for none.
allocations = Table(
    "allocations",
    metadata,
    Column("request_id", NAME, primary_key=True),
    Column("attempt", Integer, primary_key=True),
    Column("pool_id", NAME, nullable=False),
    Column("policy_id", NAME, nullable=False),
    Column("at_index", NUMBER, nullable=False),
    Column("allocated_at", NUMBER, nullable=False),
    Column("live", SmallInteger),
    Column("state", Text, nullable=False),
    Column("amounts", Text, nullable=False),
    Column("preemptible", Boolean, nullable=False),
    Column("started_at", NUMBER),
    Column("walltime", NUMBER),
    Column("lease_until", NUMBER),
    Column("deadline", NUMBER),
    Column("told", Boolean, nullable=False),
    Column("taken_for", NAME),
    Column("reason", Text),
    Column("ended_at", NUMBER),
    Column("members", Text),
    Column("parting", Text),
    Column("tenant", NAME),
    Column("nodes", Integer),
    Column("lost", NUMBER),
    ForeignKeyConstraint(
        ["request_id", "pool_id", "live"],
        ["requests.id", "requests.granted_pool_id", "requests.one"],
        name="fk_allocations_live_in_one_pool",
    ),
    CheckConstraint(one_of("state", AllocationState), "state"),
    CheckConstraint("live = 1", "live_is_one"),
    CheckConstraint("(live IS NULL) = (state = 'ended')", "live_or_ended"),
    CheckConstraint("attempt >= 1", "attempt"),
    CheckConstraint("nodes >= 1", "nodes"),
    not_negative(
        "at_index", "allocated_at", "started_at", "walltime", "lease_until", "deadline",
        "ended_at",
    ),
    sqlite_with_rowid=False,
)  # fmt: skip
partial_index(
    "uq_allocations_live",
    allocations.c.request_id,
    unique=True,
    where="live = 1",
)
partial_index(
    "ix_allocations_pool",
    allocations.c.pool_id,
    where="live = 1",
)

partial_index(
    "ix_allocations_tenant",
    allocations.c.tenant,
    allocations.c.allocated_at,
    where="tenant IS NOT NULL",
)

partial_index(
    "ix_allocations_ended",
    allocations.c.ended_at,
    where="ended_at IS NOT NULL",
)

# The usage of ended requests, summed by days when the requests are removed. `day` is the day of UTC
# of the usage, in days since 1970; `begun` the day of the server's clock (instant // 24 h) in which
# its allocation began, by which budgets count. An attempt, its preemption and its lost time count
# on the day of its end; so does a request, once for each policy, pool and tenant, with its last
# attempt there. Waiting counts on the day of the first grant. Times are milliseconds, times nodes
# or amounts; `project` is that label of the request.
usage_days = Table(
    "usage_days",
    metadata,
    Column("day", NUMBER, primary_key=True, autoincrement=False),
    Column("begun", NUMBER, primary_key=True, autoincrement=False),
    Column("pool_id", NAME, primary_key=True),
    Column("policy_id", NAME, primary_key=True),
    Column("tenant", NAME, primary_key=True),
    Column("owner", NAME, primary_key=True),
    Column("project", NAME, primary_key=True),
    Column("node_time", NUMBER, nullable=False),
    Column("amount_time", Text, nullable=False),
    Column("preempted_time", NUMBER, nullable=False),
    Column("attempts", NUMBER, nullable=False),
    Column("preempted", NUMBER, nullable=False),
    Column("requests_of_policy", NUMBER, nullable=False),
    Column("requests_of_pool", NUMBER, nullable=False),
    Column("requests_of_tenant", NUMBER, nullable=False),
    Column("lost_time", Text, nullable=False),
    Column("starts", NUMBER, nullable=False),
    Column("wait_time", NUMBER, nullable=False),
    not_negative(
        "node_time", "preempted_time", "attempts", "preempted", "requests_of_policy",
        "requests_of_pool", "requests_of_tenant", "starts", "wait_time",
    ),
    sqlite_with_rowid=False,
)  # fmt: skip

# The levels of a pool from the instant `at` until the next row of the same `step` (milliseconds).
# `levels` is JSON: by key the capacity, the use, the borrowed part of it, and the waiting demand.
history = Table(
    "history",
    metadata,
    Column("step", NUMBER, primary_key=True, autoincrement=False),
    Column("at", NUMBER, primary_key=True, autoincrement=False),
    Column("pool_id", NAME, primary_key=True),
    Column("requests", Double, nullable=False),
    Column("levels", Text, nullable=False),
    not_negative("step", "at", "requests"),
    sqlite_with_rowid=False,
)

# From the instant `at` on the time of day (milliseconds since 1970) is the instant plus `ahead`.
clock_notes = Table(
    "clock_notes",
    metadata,
    Column("at", NUMBER, primary_key=True, autoincrement=False),
    Column("ahead", NUMBER, nullable=False),
    not_negative("at"),
    sqlite_with_rowid=False,
)

# The clocks of a pool, as JSON; see `cede.engine.shares.clocks`. Pools without clocks have no row.
pool_clocks = Table(
    "pool_clocks",
    metadata,
    Column("pool_id", NAME, primary_key=True),
    Column("clocks", Text, nullable=False),
    sqlite_with_rowid=False,
)

# Devices of live allocations: assigned with the grant, given back with its end (S3). A node whose
# devices are held cannot be deleted.
held_devices = Table(
    "held_devices",
    metadata,
    Column("node_id", NAME, ForeignKey("nodes.id"), primary_key=True),
    Column("key", NAME, primary_key=True),
    Column("device", NAME, primary_key=True),
    Column("request_id", NAME, nullable=False),
    Column("attempt", Integer, nullable=False),
    sqlite_with_rowid=False,
)

events = Table(
    "events",
    metadata,
    Column("at_index", NUMBER, primary_key=True, autoincrement=False),
    Column("at", NUMBER, nullable=False),
    Column("kind", Text, nullable=False),
    Column("request_id", NAME),
    Column("pool_id", NAME),
    Column("data", Text),
    not_negative("at_index", "at"),
)
Index("ix_events_request", events.c.request_id, events.c.at_index)

tokens = Table(
    "tokens",
    metadata,
    Column("id", NAME, primary_key=True),
    Column("name", Text, nullable=False),
    Column("role", Text, nullable=False),
    Column("subjects", Text, nullable=False),
    Column("hash", NAME, nullable=False),
    Column("created", Text, nullable=False),
    Column("expires_at_wall", Text),
    Column("revoked", Boolean, nullable=False),
    Column("uses", Integer),
    UniqueConstraint("hash"),
    CheckConstraint(one_of("role", [str(role) for role in Role]), "role"),
    not_negative("uses"),
)

# Answers remembered under idempotency keys. `key` is a digest of token, route and key, and
# `response` is packed: rows above a quarter of a page cost SQLite a page each.
answers = Table(
    "answers",
    metadata,
    Column("key", NAME, primary_key=True),
    Column("body_hash", Text, nullable=False),
    Column("response", Text, nullable=False),
    Column("at", NUMBER, nullable=False),
    sqlite_with_rowid=False,
)
Index("ix_answers_at", answers.c.at)

audit = Table(
    "audit",
    metadata,
    Column("number", NUMBER, primary_key=True, autoincrement=False),
    Column("created", Text, nullable=False),
    Column("actor", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("target", Text, nullable=False),
    Column("detail", Text, nullable=False),
    Column("previous", Text, nullable=False),
    Column("hash", Text, nullable=False),
    CheckConstraint("number >= 1", "number"),
    UniqueConstraint("previous"),
)

# Journals only grow at the end and shrink at the beginning; triggers of the migrations enforce it.
APPEND_ONLY = (events, audit)
