"""Until when a pool grants nothing after a restore. Pools that exist already are not restored.

Revision ID: 0011
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.add_column("pools", sa.Column("quarantine", NUMBER, nullable=True))
