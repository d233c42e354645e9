"""How alembic runs here.

On the connection it is given, inside the caller's transaction, without an ini file.
"""

from __future__ import annotations

from alembic import context

from cede.store.migrate import VERSION_TABLE
from cede.store.schema import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=VERSION_TABLE,
    # SQLite cannot alter most things in place; a batch makes a new table and copies.
    render_as_batch=True,
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
