"""How much of each pool was used over time, the time of day of instants, what attempts lost; usage
by days of UTC, with waiting, lost time and projects.

Usage of removed requests was summed by days of the server's clock. Which days of UTC these were is
said by the newest request, whose submission is known on both clocks; they are at most half a day
off.

Revision ID: 0013
"""

from __future__ import annotations

from datetime import UTC, datetime

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
DAY = 24 * 60 * 60 * 1000
KEYS = ("day", "begun", "pool_id", "policy_id", "tenant", "owner")
SUMS = (
    "node_time", "amount_time", "preempted_time", "attempts", "preempted", "requests_of_policy",
    "requests_of_pool", "requests_of_tenant",
)  # fmt: skip


def upgrade() -> None:
    op.add_column("allocations", sa.Column("lost", NUMBER, nullable=True))
    _usage_days()
    op.create_table(
        "history",
        sa.Column("step", NUMBER, nullable=False),
        sa.Column("at", NUMBER, nullable=False),
        sa.Column("pool_id", NAME, nullable=False),
        sa.Column("requests", sa.Double(), nullable=False),
        sa.Column("levels", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("step", "at", "pool_id", name="pk_history"),
        sa.CheckConstraint(
            "step >= 0 AND at >= 0 AND requests >= 0", name=op.f("ck_history_not_negative")
        ),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "clock_notes",
        sa.Column("at", NUMBER, nullable=False),
        sa.Column("ahead", NUMBER, nullable=False),
        sa.PrimaryKeyConstraint("at", name="pk_clock_notes"),
        sa.CheckConstraint("at >= 0", name=op.f("ck_clock_notes_not_negative")),
        sqlite_with_rowid=False,
    )


def _usage_days() -> None:
    connection = op.get_bind()
    old = sa.table("usage_days", *(sa.column(name) for name in (*KEYS, *SUMS)))
    rows = [dict(row._mapping) for row in connection.execute(sa.select(old))]
    op.drop_table("usage_days")
    numbers = ("node_time", "preempted_time", *SUMS[3:], "starts", "wait_time")
    new = op.create_table(
        "usage_days",
        sa.Column("day", NUMBER, nullable=False),
        sa.Column("begun", NUMBER, nullable=False),
        *(sa.Column(name, NAME, nullable=False) for name in (*KEYS[2:], "project")),
        *(
            sa.Column(name, sa.Text() if name == "amount_time" else NUMBER, nullable=False)
            for name in SUMS
        ),
        sa.Column("lost_time", sa.Text(), nullable=False),
        sa.Column("starts", NUMBER, nullable=False),
        sa.Column("wait_time", NUMBER, nullable=False),
        sa.PrimaryKeyConstraint(*KEYS, "project", name="pk_usage_days"),
        sa.CheckConstraint(
            " AND ".join(f"{name} >= 0" for name in numbers),
            name=op.f("ck_usage_days_not_negative"),
        ),
        sqlite_with_rowid=False,
    )
    if rows:
        shift = round(_ahead(connection) / DAY)
        more = {"project": "", "lost_time": "{}", "starts": 0, "wait_time": 0}
        made = [{**row, "day": max(0, row["day"] + shift), **more} for row in rows]
        connection.execute(sa.insert(new), made)


def _ahead(connection: sa.Connection) -> int:
    """By how much the time of day is ahead of the server's clock."""
    requests = sa.table(
        "requests", sa.column("submitted_at"), sa.column("created"), sa.column("at_index")
    )
    newest = sa.select(requests).order_by(requests.c.at_index.desc()).limit(1)
    found = connection.execute(newest).first()
    if found is not None:
        try:
            created = datetime.fromisoformat(found.created)
            return int(created.timestamp() * 1000) - int(found.submitted_at)
        except ValueError:
            pass
    meta = sa.table("meta", sa.column("instant"))
    instant = connection.execute(sa.select(meta.c.instant)).scalar() or 0
    now = str(connection.execute(sa.select(sa.func.current_timestamp())).scalar_one())
    then = datetime.fromisoformat(now)  # SQLite says it in UTC and without a zone
    aware = then if then.tzinfo is not None else then.replace(tzinfo=UTC)
    return int(aware.timestamp() * 1000) - int(instant)
