"""When the amounts of a pool or a policy were last edited.

The audit forgives a pool that holds more than its lowered capacity, as long as nothing was granted
since. Without this number a server could not start again on such a pool.

Revision ID: 0002
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    meta = sa.table("meta", sa.column("head"))
    for name in ("pools", "policies"):
        column = sa.Column("edited", NUMBER, nullable=False, server_default=sa.text("0"))
        op.add_column(name, column)
        # Nobody wrote it down, so what is held now is taken to be older than the last edit.
        edited = sa.table(name, sa.column("edited"))
        op.execute(edited.update().values(edited=sa.select(meta.c.head).scalar_subquery()))
