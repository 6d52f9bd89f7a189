"""Add sizes of jobs, indexes for their sums by user, and folders that are still to be removed."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Add them."""
    op.add_column("jobs", sa.Column("size", sa.BigInteger))
    op.create_index("jobs_sizes_of_owner", "jobs", ["owner", "size"])
    op.create_index("uploads_of_owner", "uploads", ["owner", "created", "id", "size"])
    op.create_table("removals", sa.Column("path", sa.String(64), primary_key=True))
