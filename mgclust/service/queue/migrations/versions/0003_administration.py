"""Disabled users, limits and totals of users, and pinned jobs and uploads."""

import sqlalchemy as sa
from alembic import op

revision = "administration"
down_revision = "lists"


def upgrade() -> None:
    """Add the columns."""
    for column in (
        sa.Column("disabled", sa.Float),
        sa.Column("disk_limit", sa.BigInteger),
        sa.Column("jobs_limit", sa.Integer),
        sa.Column("attempts", sa.Integer, nullable=False, server_default="0"),
        sa.Column("seconds", sa.Float, nullable=False, server_default="0"),
        sa.Column("gpu_seconds", sa.Float, nullable=False, server_default="0"),
    ):
        op.add_column("users", column)
    op.add_column("jobs", sa.Column("gpus", sa.Integer, nullable=False, server_default="0"))
    for table in ("jobs", "uploads"):
        op.add_column(table, sa.Column("pinned", sa.Boolean, nullable=False, server_default=sa.false()))
