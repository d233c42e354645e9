"""Tenants with their quotas and budgets; whose an allocation was and on how many nodes it sat.

The accounts are made from allocations alone, so that they outlast requests that are deleted. What
is stored already gets what its request says.

Revision ID: 0003
"""

from __future__ import annotations

import json

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
# How many rows are looked at before their nodes are written.
_AT_ONCE = 1_000


def upgrade() -> None:
    op.create_table(
        "tenants",
        sa.Column("id", NAME, nullable=False),
        sa.Column("name", NAME, nullable=False),
        sa.Column("max_nodes", NUMBER, nullable=True),
        sa.Column("max_concurrent", NUMBER, nullable=True),
        sa.Column("gpu_hours_budget", sa.Double(), nullable=True),
        sa.Column("node_hours_budget", sa.Double(), nullable=True),
        sa.Column("fair_share_target", sa.Double(), nullable=False),
        sa.Column("burst_allowance", sa.Double(), nullable=True),
        sa.Column("created", sa.Text(), nullable=False),
        sa.Column("edited", NUMBER, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tenants")),
        sa.UniqueConstraint("name", name=op.f("uq_tenants_name")),
        sa.CheckConstraint(
            "max_nodes >= 0 AND max_concurrent >= 0 AND gpu_hours_budget >= 0 AND "
            "node_hours_budget >= 0",
            name=op.f("ck_tenants_not_negative"),
        ),
    )
    op.add_column("allocations", sa.Column("tenant", NAME, nullable=True))
    # SQLite takes a check only together with its column, and alembic gives it afterwards.
    op.execute(
        "ALTER TABLE allocations ADD COLUMN nodes INTEGER "
        "CONSTRAINT ck_allocations_nodes CHECK (nodes >= 1)"
    )
    op.create_index(
        "ix_allocations_tenant",
        "allocations",
        ["tenant", "allocated_at"],
        unique=False,
        sqlite_where=sa.text("tenant IS NOT NULL"),
        postgresql_where=sa.text("tenant IS NOT NULL"),
    )
    op.execute(
        "UPDATE allocations SET tenant = "
        "(SELECT requests.tenant FROM requests WHERE requests.id = allocations.request_id) "
        "WHERE request_id IN (SELECT id FROM requests WHERE tenant IS NOT NULL)"
    )
    _write_nodes()


def _write_nodes() -> None:
    """On how many nodes each allocation sits, or how many tasks its request has, if not one."""
    connection = op.get_bind()
    found = connection.execute(
        sa.text(
            "SELECT a.request_id, a.attempt, a.members, r.task FROM allocations a "
            "JOIN requests r ON r.id = a.request_id "
            "WHERE a.members IS NOT NULL OR r.task IS NOT NULL"
        )
    )
    write = sa.text(
        "UPDATE allocations SET nodes = :nodes WHERE request_id = :request AND attempt = :attempt"
    )
    for rows in found.partitions(_AT_ONCE):
        sitting = [
            {"request": row[0], "attempt": row[1], "nodes": nodes}
            for row in rows
            if (nodes := _nodes(row[2], row[3])) != 1
        ]
        if sitting:
            connection.execute(write, sitting)


def _nodes(members: str | None, task: str | None) -> int:
    if members is not None:
        return len({member[1] for member in json.loads(members)})
    shape = None if task is None else json.loads(task)[0]
    return 1 if shape is None else int(shape[1])
