"""The number of commits, the digests of all tables, and checksums of the row that has them.

What they are is computed after the last revision, for the tables as they are then.

Revision ID: 0008
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    columns = (
        sa.Column("commits", NUMBER, nullable=False, server_default=sa.text("0")),
        sa.Column("digests", sa.Text(), nullable=False, server_default=sa.text("'{}'")),
        sa.Column("epoch_sum", sa.Text(), nullable=False, server_default=sa.text("''")),
        sa.Column("row_sum", sa.Text(), nullable=False, server_default=sa.text("''")),
    )
    for column in columns:
        op.add_column("meta", column)
