"""The tables of the ledger. `migrations/` makes them; a test holds the two together.

Names carry a prefix because a PostgreSQL ledger may share its database with other tables.
"""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum

import sqlalchemy as sa

HEAD = "0005"  # the newest migration
VERSION_TABLE = "tallymark_schema_version"

metadata = sa.MetaData()


class ContentKind(StrEnum):
    """Of a content. A batch has the kind of its contents; that of a window is QUERY."""

    FILES = "files"
    QUERY = "query"  # the whole result of a transform
    FRAME = "frame"  # a DataFrame given to the library
    REPLAY = "replay"  # rows of the quarantine
    WINDOW = "window"  # the result of a transform for a window


class UtcDateTime(sa.types.TypeDecorator[datetime]):
    """Aware UTC in and out. SQLite keeps no time zone, so a naive value would silently shift there."""

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: sa.Dialect) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError("times in the ledger are timezone-aware")
        return value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: sa.Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


runs = sa.Table(
    "tallymark_runs",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("project", sa.Text, nullable=False),
    sa.Column("command", sa.Text, nullable=False),
    sa.Column("host", sa.Text, nullable=False),
    sa.Column("pid", sa.BigInteger, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("started_at", UtcDateTime, nullable=False),
    sa.Column("finished_at", UtcDateTime),
    sa.Column("summary", sa.JSON(none_as_null=True)),
)

batches = sa.Table(
    "tallymark_batches",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("pipeline", sa.Text, nullable=False),
    sa.Column("table_key", sa.Text, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("sequence", sa.BigInteger, nullable=False),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("as_of", UtcDateTime, nullable=False),
    sa.Column("run_id", sa.Text, sa.ForeignKey("tallymark_runs.id")),  # of the last attempt; null: adopted
    sa.Column("fence", sa.BigInteger),  # of the attempt that committed, else of the last; null: adopted
    sa.Column("created_at", UtcDateTime, nullable=False),
    sa.Column("finished_at", UtcDateTime),
    sa.Column("strategy", sa.Text),
    sa.Column("receipt", sa.JSON(none_as_null=True)),
    sa.Column("error_code", sa.Text),
    sa.Column("error_text", sa.Text),
    sa.Column("error_hint", sa.Text),
    sa.Column("error_retry_safe", sa.Boolean),
    sa.Column("error_facts", sa.JSON(none_as_null=True)),
    sa.Column("quality", sa.JSON(none_as_null=True)),  # what gates found; null: there were none
    sa.Index("tallymark_batches_by_table", "table_key", "sequence"),
    sa.Index("tallymark_batches_by_pipeline", "pipeline", "state", "finished_at"),
)

# The record that will load, loads or has loaded a content into a table: one, whatever processes race.
HOLDS_CONTENT = "state IN ('PROCESSING', 'COMMITTED') OR (state IN ('PENDING', 'FAILED') AND gone_at IS NULL)"
# What a source offers under a name now: one record, so that a file is known without hashing it.
OFFERED = "gone_at IS NULL AND kind IN ('files', 'query', 'window')"

contents = sa.Table(
    "tallymark_files",
    metadata,
    sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True),
    sa.Column("pipeline", sa.Text, nullable=False),
    sa.Column("table_key", sa.Text, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("path", sa.Text, nullable=False),  # of a file; else the name that reports show
    sa.Column("size", sa.BigInteger, nullable=False),  # of a file in bytes; of a replay in rows
    sa.Column("modified_ns", sa.BigInteger, nullable=False),  # of a query: when it was first requested
    sa.Column("content_hash", sa.Text, nullable=False),  # its identity
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("attempts", sa.Integer, nullable=False),
    sa.Column("error", sa.Text, nullable=False),
    sa.Column("duplicate_of", sa.Text),  # path
    sa.Column("batch_id", sa.Text, sa.ForeignKey("tallymark_batches.id")),  # the last it was in
    sa.Column("registered_at", UtcDateTime, nullable=False),
    sa.Column("gone_at", UtcDateTime),  # when the source no longer offered this content under this name
    sa.Column("details", sa.Text),  # JSON: what else a content of this kind consists of; null for files
    sa.Column("returned", sa.Integer, nullable=False, server_default="0"),  # of a file: `SourceFile.returned`
    sa.Column("bytes_hash", sa.Text),  # of a file that returned; null: the identity is the hash of the bytes
    sa.Index("tallymark_files_identity", "table_key", "content_hash", "path", "pipeline", unique=True),
    sa.Index(
        "tallymark_files_content",
        "table_key",
        "content_hash",
        unique=True,
        sqlite_where=sa.text(HOLDS_CONTENT),
        postgresql_where=sa.text(HOLDS_CONTENT),
    ),
    sa.Index(
        "tallymark_files_at_path",
        "pipeline",
        "path",
        unique=True,
        sqlite_where=sa.text(OFFERED),
        postgresql_where=sa.text(OFFERED),
    ),
    sa.Index("tallymark_files_by_state", "pipeline", "state"),
    sa.Index(
        "tallymark_files_returned",
        "table_key",
        "bytes_hash",
        sqlite_where=sa.text("bytes_hash IS NOT NULL"),
        postgresql_where=sa.text("bytes_hash IS NOT NULL"),
    ),
)

# Also of failed batches, whose contents are in other batches now.
batch_members = sa.Table(
    "tallymark_batch_files",
    metadata,
    sa.Column("batch_id", sa.Text, sa.ForeignKey("tallymark_batches.id"), primary_key=True),
    sa.Column("position", sa.Integer, primary_key=True),
    sa.Column("file_id", contents.c.id.type, sa.ForeignKey("tallymark_files.id"), nullable=False),
    sa.Index("tallymark_batch_files_by_file", "file_id"),
)

leases = sa.Table(
    "tallymark_leases",
    metadata,
    sa.Column("table_key", sa.Text, primary_key=True),
    sa.Column("fence", sa.BigInteger, nullable=False),
    sa.Column("holder", sa.Text),  # null: released
    sa.Column("expires_at", UtcDateTime),
)
