"""Requests are found by the short form of their ids: an index over the random group.

Revision ID: 0013
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("ix_requests_tail", "requests", [sa.text("substr(id, 25)")])
