"""The first schema.

It is frozen: later changes are later revisions. A test checks that all revisions together make
`schema.py`.

Revision ID: 0001
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
STATUSES = (
    "queued", "allocated", "preempting", "suspended",
    "preempted", "rejected", "cancelled", "released", "failed",
)  # fmt: skip
STATES = ("granted", "starting", "running", "checkpointing", "stopping", "lost", "ended")
REQUEST_NUMBERS = (
    "at_index", "submitted_at", "retries_used", "preempted_count", "not_before", "bypassed",
    "walltime", "lease", "lease_until",
)  # fmt: skip
ALLOCATION_NUMBERS = (
    "at_index", "allocated_at", "started_at", "walltime", "lease_until", "deadline",
    "ended_at",
)  # fmt: skip
ACTIVE = sa.text("status IN ('queued', 'allocated', 'preempting', 'suspended')")


def upgrade() -> None:
    for create in (
        _meta,
        _pools,
        _nodes,
        _policies,
        _requests,
        _allocations,
        _held_devices,
        _events,
        _tokens,
        _idempotency,
        _audit,
        _indexes,
    ):
        create()
    if op.get_bind().dialect.name == "sqlite":
        _only_grow_on_sqlite()
    else:
        _only_grow_on_postgresql()


def _meta() -> None:
    op.create_table(
        "meta",
        sa.Column("id", sa.SmallInteger(), autoincrement=False, nullable=False),
        sa.Column("epoch", NUMBER, nullable=False),
        sa.Column("holder", sa.Text(), nullable=False),
        sa.Column("lease_until", NUMBER, nullable=False),
        sa.Column("head", NUMBER, nullable=False),
        sa.Column("instant", NUMBER, nullable=False),
        sa.Column("boot_id", sa.Text(), nullable=False),
        sa.Column("boottime", NUMBER, nullable=False),
        sa.Column("secret", sa.Text(), nullable=False),
        _not_negative("epoch", "lease_until", "head", "instant", "boottime"),
        sa.CheckConstraint("id = 1", name="one_row"),
        sa.PrimaryKeyConstraint("id", name="pk_meta"),
    )


def _pools() -> None:
    op.create_table(
        "pools",
        sa.Column("id", NAME, nullable=False),
        sa.Column("name", NAME, nullable=False),
        sa.Column("capacity", sa.Text(), nullable=False),
        sa.Column("preset", sa.Text(), nullable=False),
        sa.Column("settings", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("created", sa.Text(), nullable=False),
        sa.Column("edited", NUMBER, server_default=sa.text("0"), nullable=False),
        sa.Column("nodes", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_pools"),
        sa.UniqueConstraint("name", name="uq_pools_name"),
    )


def _nodes() -> None:
    op.create_table(
        "nodes",
        sa.Column("id", NAME, nullable=False),
        sa.Column("name", NAME, nullable=False),
        sa.Column("pool_id", NAME, nullable=True),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("out", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("amounts", sa.Text(), nullable=False),
        sa.Column("devices", sa.Text(), nullable=False),
        sa.Column("labels", sa.Text(), nullable=False),
        sa.Column("topology_group", sa.Text(), nullable=False),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("heartbeat", NUMBER, nullable=False),
        sa.Column("boot", sa.Text(), nullable=False),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("created", sa.Text(), nullable=False),
        _one_of("state", "ready", "degraded", "down", "draining", "drained"),
        _one_of("out", "no", "drain", "disable"),
        _not_negative("heartbeat", "failures"),
        sa.ForeignKeyConstraint(
            ["pool_id"],
            ["pools.id"],
            name="fk_nodes_pools",
            deferrable=True,
            initially="DEFERRED",
        ),
        sa.PrimaryKeyConstraint("id", name="pk_nodes"),
        sa.UniqueConstraint("name", name="uq_nodes_name"),
    )


def _policies() -> None:
    op.create_table(
        "policies",
        sa.Column("id", NAME, nullable=False),
        sa.Column("pool_id", NAME, nullable=False),
        sa.Column("subject_type", NAME, nullable=False),
        sa.Column("subject_name", NAME, nullable=False),
        sa.Column("priority", NUMBER, nullable=False),
        sa.Column("reserved", sa.Text(), nullable=False),
        sa.Column("limits", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("created", sa.Text(), nullable=False),
        sa.Column("edited", NUMBER, server_default=sa.text("0"), nullable=False),
        _one_of("subject_type", "orchestrator", "step_operator", "team", "user"),
        sa.Column("parent_id", NAME),
        sa.Column("weight", sa.Double(), server_default=sa.text("1"), nullable=False),
        sa.Column("mode", sa.Text(), server_default=sa.text("'fair_share'"), nullable=False),
        sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name="fk_policies_pools"),
        sa.ForeignKeyConstraint(["parent_id"], ["policies.id"], name="fk_policies_policies"),
        sa.PrimaryKeyConstraint("id", name="pk_policies"),
        sa.UniqueConstraint(
            "pool_id",
            "subject_type",
            "subject_name",
            name="uq_policies_pool_id_subject_type_subject_name",
        ),
    )


def _requests() -> None:
    op.create_table(
        "requests",
        sa.Column("id", NAME, nullable=False),
        sa.Column("at_index", NUMBER, nullable=False),
        sa.Column("submitted_at", NUMBER, nullable=False),
        sa.Column("subject_type", NAME, nullable=False),
        sa.Column("subject_name", NAME, nullable=False),
        sa.Column("created", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("preemptible", sa.Boolean(), nullable=False),
        sa.Column("pool_id", NAME, nullable=True),
        sa.Column("granted_pool_id", NAME, nullable=True),
        sa.Column("granted_attempt", sa.Integer(), nullable=True),
        sa.Column("amounts", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("retries_used", sa.Integer(), nullable=False),
        sa.Column("preempted_count", sa.Integer(), nullable=False),
        sa.Column("retry", sa.Text(), nullable=True),
        sa.Column("not_before", NUMBER, nullable=False),
        sa.Column("bypassed", sa.Integer(), nullable=False),
        sa.Column("withhold", sa.Text(), nullable=True),
        sa.Column("earmark", sa.Text(), nullable=True),
        sa.Column("walltime", NUMBER, nullable=True),
        sa.Column("lease", NUMBER, nullable=True),
        sa.Column("lease_until", NUMBER, nullable=True),
        sa.Column("on_silence", sa.Text(), nullable=True),
        sa.Column("labels", sa.Text(), nullable=True),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("task", sa.Text(), nullable=True),
        sa.Column("work", sa.Text(), nullable=True),
        sa.Column("part_of", NAME, nullable=True),
        sa.Column("kept", sa.Text(), nullable=True),
        sa.Column("one", sa.SmallInteger(), server_default=sa.text("1"), nullable=False),
        _one_of("status", *STATUSES),
        _one_of("subject_type", "orchestrator", "step_operator", "team", "user"),
        sa.CheckConstraint("(granted_pool_id IS NULL) = (granted_attempt IS NULL)", name="granted"),
        _not_negative(*REQUEST_NUMBERS),
        sa.CheckConstraint("attempt >= 1", name="attempt"),
        sa.CheckConstraint("one = 1", name="one"),
        sa.PrimaryKeyConstraint("id", name="pk_requests"),
        sa.UniqueConstraint("id", "granted_pool_id", "one", name="uq_requests_granted"),
        sqlite_with_rowid=False,
    )


def _allocations() -> None:
    op.create_table(
        "allocations",
        sa.Column("request_id", NAME, nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("pool_id", NAME, nullable=False),
        sa.Column("policy_id", NAME, nullable=False),
        sa.Column("at_index", NUMBER, nullable=False),
        sa.Column("allocated_at", NUMBER, nullable=False),
        sa.Column("live", sa.SmallInteger(), nullable=True),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("amounts", sa.Text(), nullable=False),
        sa.Column("preemptible", sa.Boolean(), nullable=False),
        sa.Column("started_at", NUMBER, nullable=True),
        sa.Column("walltime", NUMBER, nullable=True),
        sa.Column("lease_until", NUMBER, nullable=True),
        sa.Column("deadline", NUMBER, nullable=True),
        sa.Column("told", sa.Boolean(), nullable=False),
        sa.Column("taken_for", NAME, nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("ended_at", NUMBER, nullable=True),
        sa.Column("members", sa.Text(), nullable=True),
        sa.Column("parting", sa.Text(), nullable=True),
        sa.CheckConstraint("(live IS NULL) = (state = 'ended')", name="live_or_ended"),
        _one_of("state", *STATES),
        sa.CheckConstraint("attempt >= 1", name="attempt"),
        sa.CheckConstraint("live = 1", name="live_is_one"),
        _not_negative(*ALLOCATION_NUMBERS),
        sa.ForeignKeyConstraint(
            ["request_id", "pool_id", "live"],
            ["requests.id", "requests.granted_pool_id", "requests.one"],
            name="fk_allocations_live_in_one_pool",
        ),
        sa.PrimaryKeyConstraint("request_id", "attempt", name="pk_allocations"),
        sqlite_with_rowid=False,
    )


def _held_devices() -> None:
    op.create_table(
        "held_devices",
        sa.Column("node_id", NAME, nullable=False),
        sa.Column("key", NAME, nullable=False),
        sa.Column("device", NAME, nullable=False),
        sa.Column("request_id", NAME, nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["node_id"], ["nodes.id"], name="fk_held_devices_nodes"),
        sa.PrimaryKeyConstraint("node_id", "key", "device", name="pk_held_devices"),
        sqlite_with_rowid=False,
    )


def _events() -> None:
    op.create_table(
        "events",
        sa.Column("at_index", NUMBER, autoincrement=False, nullable=False),
        sa.Column("at", NUMBER, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("request_id", NAME, nullable=True),
        sa.Column("pool_id", NAME, nullable=True),
        sa.Column("data", sa.Text(), nullable=True),
        _not_negative("at_index", "at"),
        sa.PrimaryKeyConstraint("at_index", name="pk_events"),
    )


def _tokens() -> None:
    op.create_table(
        "tokens",
        sa.Column("id", NAME, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("subjects", sa.Text(), nullable=False),
        sa.Column("hash", NAME, nullable=False),
        sa.Column("created", sa.Text(), nullable=False),
        sa.Column("expires_at_wall", sa.Text(), nullable=True),
        sa.Column("revoked", sa.Boolean(), nullable=False),
        sa.Column("uses", sa.Integer(), nullable=True),
        _one_of("role", "node", "join", "viewer", "submitter", "operator", "admin"),
        _not_negative("uses"),
        sa.PrimaryKeyConstraint("id", name="pk_tokens"),
        sa.UniqueConstraint("hash", name="uq_tokens_hash"),
    )


def _idempotency() -> None:
    op.create_table(
        "idempotency",
        sa.Column("token_id", NAME, nullable=False),
        sa.Column("route", NAME, nullable=False),
        sa.Column("key", NAME, nullable=False),
        sa.Column("body_hash", sa.Text(), nullable=False),
        sa.Column("response", sa.Text(), nullable=False),
        sa.Column("at", NUMBER, nullable=False),
        sa.PrimaryKeyConstraint("token_id", "route", "key", name="pk_idempotency"),
        sqlite_with_rowid=False,
    )


def _audit() -> None:
    op.create_table(
        "audit",
        sa.Column("number", NUMBER, autoincrement=False, nullable=False),
        sa.Column("created", sa.Text(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.Column("previous", sa.Text(), nullable=False),
        sa.Column("hash", sa.Text(), nullable=False),
        sa.CheckConstraint("number >= 1", name="number"),
        sa.PrimaryKeyConstraint("number", name="pk_audit"),
        sa.UniqueConstraint("previous", name="uq_audit_previous"),
    )


def _indexes() -> None:
    op.create_index(
        "ix_policies_subject", "policies", ["subject_type", "subject_name"], unique=False
    )
    op.create_index(
        "ix_requests_active",
        "requests",
        ["at_index"],
        unique=False,
        sqlite_where=ACTIVE,
        postgresql_where=ACTIVE,
    )
    op.create_index(
        "ix_requests_subject",
        "requests",
        ["subject_type", "subject_name", "at_index"],
        unique=False,
    )
    op.create_index("uq_requests_at_index", "requests", ["at_index"], unique=True)
    op.create_index(
        "ix_requests_part_of",
        "requests",
        ["part_of", "at_index"],
        unique=False,
        sqlite_where=sa.text("part_of IS NOT NULL"),
        postgresql_where=sa.text("part_of IS NOT NULL"),
    )
    op.create_index(
        "ix_allocations_pool",
        "allocations",
        ["pool_id"],
        unique=False,
        sqlite_where=sa.text("live = 1"),
        postgresql_where=sa.text("live = 1"),
    )
    op.create_index(
        "uq_allocations_live",
        "allocations",
        ["request_id"],
        unique=True,
        sqlite_where=sa.text("live = 1"),
        postgresql_where=sa.text("live = 1"),
    )
    op.create_index("ix_events_request", "events", ["request_id", "at_index"], unique=False)
    op.create_index("ix_idempotency_at", "idempotency", ["at"], unique=False)


# Checks are named by the convention of `schema.py`, which puts ck_ and the table in front.
def _not_negative(*columns: str) -> sa.CheckConstraint:
    return sa.CheckConstraint(
        " AND ".join(f"{column} >= 0" for column in columns), name="not_negative"
    )


def _one_of(column: str, *words: str) -> sa.CheckConstraint:
    known = ", ".join(f"'{word}'" for word in words)
    return sa.CheckConstraint(f"{column} IN ({known})", name=column)


def _only_grow_on_sqlite() -> None:
    # "cede", in the file's header.
    op.execute("PRAGMA application_id = 1667589221")
    for statement in (
        "CREATE TRIGGER events_keep BEFORE UPDATE ON events "
        "BEGIN SELECT RAISE(ABORT, 'events are append-only'); END",
        "CREATE TRIGGER events_stay BEFORE DELETE ON events "
        "BEGIN SELECT RAISE(ABORT, 'events are append-only'); END",
        "CREATE TRIGGER audit_keep BEFORE UPDATE ON audit "
        "BEGIN SELECT RAISE(ABORT, 'audit is append-only'); END",
        "CREATE TRIGGER audit_stay BEFORE DELETE ON audit "
        "BEGIN SELECT RAISE(ABORT, 'audit is append-only'); END",
    ):
        op.execute(statement)


def _only_grow_on_postgresql() -> None:
    op.execute(
        "CREATE FUNCTION cede_append_only() RETURNS trigger LANGUAGE plpgsql AS "
        "'BEGIN RAISE EXCEPTION ''% is append-only'', TG_TABLE_NAME "
        "USING ERRCODE = ''integrity_constraint_violation''; END'"
    )
    for statement in (
        "CREATE TRIGGER events_keep BEFORE UPDATE OR DELETE OR TRUNCATE ON events "
        "FOR EACH STATEMENT EXECUTE FUNCTION cede_append_only()",
        "CREATE TRIGGER audit_keep BEFORE UPDATE OR DELETE OR TRUNCATE ON audit "
        "FOR EACH STATEMENT EXECUTE FUNCTION cede_append_only()",
    ):
        op.execute(statement)
