"""The further fields of a policy, the terms of a request, and the instant at which a node last had
other amounts.

Stored rows have none of these: new columns are NULL, which means the default, or 0.

Revision ID: 0002
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")

NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.add_column("policies", sa.Column("further", sa.Text(), nullable=True))
    op.add_column("nodes", sa.Column("edited", NUMBER, nullable=False, server_default=sa.text("0")))
    op.add_column(
        "nodes", sa.Column("claimed_by", sa.Text(), nullable=False, server_default=sa.text("''"))
    )
    # SQLite takes a check only together with its column, and alembic gives it afterwards.
    op.execute(
        "ALTER TABLE requests ADD COLUMN class SMALLINT "
        "CONSTRAINT ck_requests_class CHECK (class BETWEEN 0 AND 10)"
    )
    op.add_column("requests", sa.Column("tenant", NAME, nullable=True))
    op.add_column("requests", sa.Column("terms", sa.Text(), nullable=True))
    op.create_index(
        "ix_requests_tenant",
        "requests",
        ["tenant", "at_index"],
        unique=False,
        sqlite_where=sa.text("tenant IS NOT NULL"),
        postgresql_where=sa.text("tenant IS NOT NULL"),
    )
