"""A node's agent: its lease, its checkpoint folder, its protocol.

NULL for stored nodes: their agents speak the first protocol, and report the rest when they next
register. Requests without a setting for silence were stored like those with `stop`, and meant it:
they keep it.

Revision ID: 0004
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("nodes", sa.Column("agent", sa.Text(), nullable=True))
    op.execute("UPDATE requests SET on_silence = 'stop' WHERE on_silence IS NULL")
