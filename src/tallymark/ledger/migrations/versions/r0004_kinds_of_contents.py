"""What a content is, in `kind` and `details` instead of a prefix of its path."""

from __future__ import annotations

import json

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

_INDEX = "tallymark_files_at_path"
_OFFERED = "gone_at IS NULL AND kind IN ('files', 'query', 'window')"
_PREFIXES = {
    "replay": ("quarantine:", "batch_id"),
    "frame": ("frame:", "id"),
}  # kind → prefix, key in details


def upgrade() -> None:
    """1. `inputs`, the pin of a query as JSON, becomes `details`.
    2. Results of queries, which were registered as files, get kinds of their own.
    3. What follows the prefix in the names of replays and frames goes into `details`.
    4. The index of what sources offer covers the new kinds.
    """
    op.execute("ALTER TABLE tallymark_files RENAME COLUMN inputs TO details")
    op.drop_index(_INDEX, "tallymark_files")
    files = sa.table("tallymark_files", *map(sa.column, ("id", "kind", "path", "details")))
    results = files.update().where(files.c.details.is_not(None))
    op.execute(results.where(files.c.path.startswith("window:")).values(kind="window"))
    op.execute(results.where(sa.not_(files.c.path.startswith("window:"))).values(kind="query"))
    connection = op.get_bind()
    for kind, (prefix, key) in _PREFIXES.items():
        found = connection.execute(sa.select(files.c.id, files.c.path).where(files.c.kind == kind)).all()
        for row in found:
            details = json.dumps({key: row.path.removeprefix(prefix)})
            connection.execute(files.update().where(files.c.id == row.id).values(details=details))
    op.create_index(
        _INDEX,
        "tallymark_files",
        ["pipeline", "path"],
        unique=True,
        sqlite_where=sa.text(_OFFERED),
        postgresql_where=sa.text(_OFFERED),
    )
