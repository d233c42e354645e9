"""Pools of the preset `fair_share` rank by nothing: fair shares alone decide between policies.

Settings are stored whole, and until now the preset had `rank: priority`.

Revision ID: 0009
"""

from __future__ import annotations

import json

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    connection = op.get_bind()
    pools = sa.table("pools", sa.column("id"), sa.column("preset"), sa.column("settings"))
    fair = sa.select(pools.c.id, pools.c.settings).where(pools.c.preset == "fair_share")
    for id_, stored in connection.execute(fair).all():
        settings = json.loads(stored)
        if settings.get("rank", "priority") == "priority":
            text = json.dumps({**settings, "rank": "none"}, separators=(",", ":"))
            connection.execute(sa.update(pools).where(pools.c.id == id_).values(settings=text))
