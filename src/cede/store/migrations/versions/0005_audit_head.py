"""The head of the audit chain, kept beside the chain: without it, deleting the newest entries
would leave a shorter chain that verifies.

Databases that exist already start from the newest entry that they have.

Revision ID: 0005
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.add_column("meta", sa.Column("audit_number", NUMBER, nullable=True))
    op.add_column("meta", sa.Column("audit_hash", sa.Text(), nullable=True))
    meta = sa.table("meta", sa.column("audit_number"), sa.column("audit_hash"))
    audit = sa.table("audit", sa.column("number"), sa.column("hash"))
    newest = sa.select(audit.c.number, audit.c.hash).order_by(audit.c.number.desc()).limit(1)
    found = op.get_bind().execute(newest).first()
    # The hash before the first entry is 64 zeros.
    number, hash_ = (0, "0" * 64) if found is None else found
    op.execute(sa.update(meta).values(audit_number=number, audit_hash=hash_))
