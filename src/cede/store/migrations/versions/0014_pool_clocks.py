"""Clocks of pools: since when elements are below a share or above a limit, and saved-up volumes.

Revision ID: 0014
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "pool_clocks",
        sa.Column("pool_id", NAME, nullable=False),
        sa.Column("clocks", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("pool_id", name="pk_pool_clocks"),
        sqlite_with_rowid=False,
    )
