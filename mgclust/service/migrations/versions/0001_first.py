"""The first tables: users, tokens, uploads, jobs."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make them."""
    op.create_table(
        "users",
        sa.Column("name", sa.String(64), primary_key=True),
        sa.Column("role", sa.String(16), nullable=False),
    )
    op.create_table(
        "tokens",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("user", sa.String(64), sa.ForeignKey("users.name"), nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False, unique=True),
        sa.Column("created", sa.Float, nullable=False),
        sa.Column("revoked", sa.Float),
    )
    op.create_table(
        "uploads",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("owner", sa.String(64), sa.ForeignKey("users.name"), nullable=False),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("created", sa.Float, nullable=False),
    )
    op.create_table(
        "jobs",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("owner", sa.String(64), sa.ForeignKey("users.name"), nullable=False),
        sa.Column("method", sa.String(64), nullable=False),
        sa.Column("request", sa.JSON, nullable=False),
        sa.Column("priority", sa.Integer, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("created", sa.Float, nullable=False),
        sa.Column("started", sa.Float),
        sa.Column("finished", sa.Float),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("heartbeat", sa.Float),
        sa.Column("cancel", sa.Boolean, nullable=False),
        sa.Column("progress", sa.JSON),
        sa.Column("scores", sa.JSON),
        sa.Column("error", sa.Text),
        sa.Column("fault", sa.String(16)),
    )
    op.create_index("jobs_queue", "jobs", ["state", "priority", "created"])
    op.create_index("jobs_of_owner", "jobs", ["owner", "created", "id"])
    op.create_index("jobs_by_age", "jobs", ["created", "id"])
