"""What quality gates found in a batch."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.add_column("tallymark_batches", sa.Column("quality", sa.JSON))
