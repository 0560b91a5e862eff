"""A content that returns to a table after another one is a delivery of its own."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"

_ONLY = "bytes_hash IS NOT NULL"


def upgrade() -> None:
    """`content_hash` is the identity of a delivery: for those that are there already, the hash of the bytes,
    as before. Of one that returned, `bytes_hash` keeps that hash."""
    op.add_column("tallymark_files", sa.Column("returned", sa.Integer, nullable=False, server_default="0"))
    op.add_column("tallymark_files", sa.Column("bytes_hash", sa.Text))
    op.create_index(
        "tallymark_files_returned",
        "tallymark_files",
        ["table_key", "bytes_hash"],
        sqlite_where=sa.text(_ONLY),
        postgresql_where=sa.text(_ONLY),
    )
