"""Run by Alembic. The connection comes from `migrations.migrate`, inside its transaction and lock."""

from __future__ import annotations

from alembic import context

from tallymark.ledger.schema import VERSION_TABLE, metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=VERSION_TABLE,
)
context.run_migrations()
