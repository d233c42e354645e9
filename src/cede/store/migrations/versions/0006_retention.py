"""How long things are kept: when a request ended, what was held by days, up to where history was
removed, and answers in a form that takes a tenth of the space.

Events and audit entries still cannot be changed. They can be deleted up to the place that the
database says was removed, which a commit sets together with its audit entry.

Revision ID: 0006
"""

from __future__ import annotations

import base64
import hashlib
import json

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
ENDED = "status IN ('preempted', 'rejected', 'cancelled', 'released', 'failed')"
COPIED_AT_ONCE = 5_000


def upgrade() -> None:
    _requests()
    _meta()
    _usage_days()
    _answers()
    if op.get_bind().dialect.name == "sqlite":
        _delete_removed_on_sqlite()
    else:
        _delete_removed_on_postgresql()


def _requests() -> None:
    op.add_column("requests", sa.Column("ended_at", NUMBER, nullable=True))
    # The last event of an ended request is its end.
    op.execute(
        "UPDATE requests SET ended_at = COALESCE((SELECT e.at FROM events e "
        "WHERE e.request_id = requests.id ORDER BY e.at_index DESC LIMIT 1), submitted_at) "
        f"WHERE {ENDED}"
    )
    _index("ix_requests_ended", "requests", ["ended_at"], "ended_at IS NOT NULL")
    _index("ix_requests_status", "requests", ["status", "at_index"], ENDED)
    _index("ix_allocations_ended", "allocations", ["ended_at"], "ended_at IS NOT NULL")


def _index(name: str, table: str, columns: list[str], where: str) -> None:
    only = sa.text(where)
    op.create_index(name, table, columns, sqlite_where=only, postgresql_where=only)


def _meta() -> None:
    for name in ("requests_before", "events_through", "audit_through", "audit_cut"):
        column = sa.Column(name, NUMBER, nullable=False, server_default=sa.text("0"))
        op.add_column("meta", column)
    op.add_column("meta", sa.Column("audit_through_hash", sa.Text(), nullable=True))


def _usage_days() -> None:
    op.create_table(
        "usage_days",
        sa.Column("day", NUMBER, nullable=False),
        sa.Column("begun", NUMBER, nullable=False),
        sa.Column("pool_id", NAME, nullable=False),
        sa.Column("policy_id", NAME, nullable=False),
        sa.Column("tenant", NAME, nullable=False),
        sa.Column("owner", NAME, nullable=False),
        sa.Column("node_time", NUMBER, nullable=False),
        sa.Column("amount_time", sa.Text(), nullable=False),
        sa.Column("preempted_time", NUMBER, nullable=False),
        sa.Column("attempts", NUMBER, nullable=False),
        sa.Column("preempted", NUMBER, nullable=False),
        sa.Column("requests_of_policy", NUMBER, nullable=False),
        sa.Column("requests_of_pool", NUMBER, nullable=False),
        sa.Column("requests_of_tenant", NUMBER, nullable=False),
        sa.PrimaryKeyConstraint(
            "day", "begun", "pool_id", "policy_id", "tenant", "owner", name="pk_usage_days"
        ),
        sa.CheckConstraint(
            "node_time >= 0 AND preempted_time >= 0 AND attempts >= 0 AND preempted >= 0 "
            "AND requests_of_policy >= 0 AND requests_of_pool >= 0 AND requests_of_tenant >= 0",
            name="not_negative",
        ),
        sqlite_with_rowid=False,
    )


def _answers() -> None:
    """Move the remembered answers to the new table; they are of one day at most."""
    answers = op.create_table(
        "answers",
        sa.Column("key", NAME, nullable=False),
        sa.Column("body_hash", sa.Text(), nullable=False),
        sa.Column("response", sa.Text(), nullable=False),
        sa.Column("at", NUMBER, nullable=False),
        sa.PrimaryKeyConstraint("key", name="pk_answers"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_answers_at", "answers", ["at"])
    names = ("token_id", "route", "key", "body_hash", "response", "at")
    old = sa.table("idempotency", *(sa.column(name) for name in names))
    place = sa.tuple_(old.c.token_id, old.c.route, old.c.key)
    some = sa.select(old).order_by(old.c.token_id, old.c.route, old.c.key).limit(COPIED_AT_ONCE)
    found = op.get_bind().execute(some).all()
    while found:
        copied = [
            {"key": _digest(*row[:3]), "body_hash": row[3], "response": row[4], "at": row[5]}
            for row in found
        ]
        op.get_bind().execute(sa.insert(answers), copied)
        last = sa.tuple_(*(sa.literal(value) for value in found[-1][:3]))
        found = op.get_bind().execute(some.where(place > last)).all()
    op.drop_table("idempotency")


def _digest(token_id: str, route: str, key: str) -> str:
    whole = json.dumps([token_id, route, key], separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(hashlib.sha256(whole).digest()).decode().rstrip("=")


def _delete_removed_on_sqlite() -> None:
    for table, number, through in (
        ("events", "at_index", "events_through"),
        ("audit", "number", "audit_through"),
    ):
        op.execute(f"DROP TRIGGER {table}_stay")
        op.execute(
            f"CREATE TRIGGER {table}_stay BEFORE DELETE ON {table} "
            f"WHEN OLD.{number} > (SELECT {through} FROM meta) "
            f"BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END"
        )


def _delete_removed_on_postgresql() -> None:
    for table, number, through in (
        ("events", "at_index", "events_through"),
        ("audit", "number", "audit_through"),
    ):
        op.execute(f"DROP TRIGGER {table}_keep ON {table}")
        op.execute(
            f"CREATE TRIGGER {table}_keep BEFORE UPDATE OR TRUNCATE ON {table} "
            "FOR EACH STATEMENT EXECUTE FUNCTION cede_append_only()"
        )
        op.execute(
            f"CREATE FUNCTION cede_{table}_stay() RETURNS trigger LANGUAGE plpgsql AS "
            f"'BEGIN IF OLD.{number} > (SELECT {through} FROM meta) THEN "
            f"RAISE EXCEPTION ''{table} is append-only'' "
            "USING ERRCODE = ''integrity_constraint_violation''; END IF; RETURN OLD; END'"
        )
        op.execute(
            f"CREATE TRIGGER {table}_stay BEFORE DELETE ON {table} "
            f"FOR EACH ROW EXECUTE FUNCTION cede_{table}_stay()"
        )
