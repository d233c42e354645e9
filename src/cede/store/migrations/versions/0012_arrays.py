"""Arrays and dependencies of requests. Independent tasks that exist already have no number.

Revision ID: 0012
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.add_column("requests", sa.Column("array_task", NUMBER, nullable=True))
    for name in ("array", "after", "after_any"):
        op.add_column("requests", sa.Column(name, sa.Text(), nullable=True))
