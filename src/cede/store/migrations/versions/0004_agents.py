"""What a node's agent told or was promised: its lease, its checkpoint folder, its protocol.

NULL for nodes that are stored already: their agents speak the first protocol, and say the rest when
they next register. Requests that say nothing of silence were stored like those that say `stop`, and
meant it: that they keep.

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
