"""What a node's agent told or was promised: its lease, its checkpoint folder, its protocol.

NULL for nodes that are stored already: their agents speak the first protocol, and say the rest when
they next register. An attempt that was granted and may not have started has its resume point
written down: before, it was looked up when the agent asked.

Revision ID: 0004
"""

from __future__ import annotations

import json

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("nodes", sa.Column("agent", sa.Text(), nullable=True))
    _write_resume_points()


def _write_resume_points() -> None:
    connection = op.get_bind()
    waiting = connection.execute(
        sa.text(
            "SELECT a.request_id, a.attempt, a.parting, r.kept FROM allocations a "
            "JOIN requests r ON r.id = a.request_id "
            "WHERE a.live = 1 AND a.state IN ('granted', 'starting') AND r.kept IS NOT NULL"
        )
    ).all()
    for request_id, attempt, hints, kept in waiting:
        _, *saved = json.loads(kept)
        if not saved or hints is not None:
            continue
        text = json.dumps({"parting": None, "resume": saved[0]}, separators=(",", ":"))
        connection.execute(
            sa.text(
                "UPDATE allocations SET parting = :hints "
                "WHERE request_id = :id AND attempt = :attempt"
            ),
            {"hints": text, "id": request_id, "attempt": attempt},
        )
