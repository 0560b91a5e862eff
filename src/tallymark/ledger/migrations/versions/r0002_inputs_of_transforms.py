"""What the result of a transform is made of."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.add_column("tallymark_files", sa.Column("inputs", sa.Text))
