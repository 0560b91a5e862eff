"""Runs, batches, files and leases."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    moment = sa.DateTime(timezone=True)
    row_id = sa.BigInteger().with_variant(sa.Integer, "sqlite")

    op.create_table(
        "tallymark_runs",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("project", sa.Text, nullable=False),
        sa.Column("command", sa.Text, nullable=False),
        sa.Column("host", sa.Text, nullable=False),
        sa.Column("pid", sa.BigInteger, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("started_at", moment, nullable=False),
        sa.Column("finished_at", moment),
        sa.Column("summary", sa.JSON),
    )
    op.create_table(
        "tallymark_batches",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("pipeline", sa.Text, nullable=False),
        sa.Column("table_key", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("sequence", sa.BigInteger, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("as_of", moment, nullable=False),
        sa.Column("run_id", sa.Text, sa.ForeignKey("tallymark_runs.id")),
        sa.Column("fence", sa.BigInteger),
        sa.Column("created_at", moment, nullable=False),
        sa.Column("finished_at", moment),
        sa.Column("strategy", sa.Text),
        sa.Column("receipt", sa.JSON),
        sa.Column("error_code", sa.Text),
        sa.Column("error_text", sa.Text),
        sa.Column("error_hint", sa.Text),
        sa.Column("error_retry_safe", sa.Boolean),
        sa.Column("error_facts", sa.JSON),
    )
    op.create_index("tallymark_batches_by_table", "tallymark_batches", ["table_key", "sequence"])
    op.create_index(
        "tallymark_batches_by_pipeline", "tallymark_batches", ["pipeline", "state", "finished_at"]
    )

    op.create_table(
        "tallymark_files",
        sa.Column("id", row_id, primary_key=True),
        sa.Column("pipeline", sa.Text, nullable=False),
        sa.Column("table_key", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("path", sa.Text, nullable=False),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("modified_ns", sa.BigInteger, nullable=False),
        sa.Column("content_hash", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("error", sa.Text, nullable=False),
        sa.Column("duplicate_of", sa.Text),
        sa.Column("batch_id", sa.Text, sa.ForeignKey("tallymark_batches.id")),
        sa.Column("registered_at", moment, nullable=False),
        sa.Column("gone_at", moment),
    )
    op.create_index(
        "tallymark_files_identity",
        "tallymark_files",
        ["table_key", "content_hash", "path", "pipeline"],
        unique=True,
    )
    holds_content = sa.text(
        "state IN ('PROCESSING', 'COMMITTED') OR (state IN ('PENDING', 'FAILED') AND gone_at IS NULL)"
    )
    op.create_index(
        "tallymark_files_content",
        "tallymark_files",
        ["table_key", "content_hash"],
        unique=True,
        sqlite_where=holds_content,
        postgresql_where=holds_content,
    )
    at_path = sa.text("gone_at IS NULL AND kind = 'files'")
    op.create_index(
        "tallymark_files_at_path",
        "tallymark_files",
        ["pipeline", "path"],
        unique=True,
        sqlite_where=at_path,
        postgresql_where=at_path,
    )
    op.create_index("tallymark_files_by_state", "tallymark_files", ["pipeline", "state"])

    op.create_table(
        "tallymark_batch_files",
        sa.Column("batch_id", sa.Text, sa.ForeignKey("tallymark_batches.id"), primary_key=True),
        sa.Column("position", sa.Integer, primary_key=True),
        sa.Column("file_id", row_id, sa.ForeignKey("tallymark_files.id"), nullable=False),
    )
    op.create_index("tallymark_batch_files_by_file", "tallymark_batch_files", ["file_id"])

    op.create_table(
        "tallymark_leases",
        sa.Column("table_key", sa.Text, primary_key=True),
        sa.Column("fence", sa.BigInteger, nullable=False),
        sa.Column("holder", sa.Text),
        sa.Column("expires_at", moment),
    )
