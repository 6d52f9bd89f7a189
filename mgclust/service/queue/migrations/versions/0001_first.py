"""First migration: creates all tables."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "users",
        sa.Column("name", sa.String(64), primary_key=True),
        sa.Column("role", sa.String(16), nullable=False),
        sa.Column("used", sa.Float, nullable=False),
    )
    op.create_table(
        "tokens",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("user", sa.String(64), sa.ForeignKey("users.name"), nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False, unique=True),
        sa.Column("created", sa.Float, nullable=False),
        sa.Column("revoked", sa.Float),
        sa.Column("expires", sa.Float),
        sa.Column("scopes", sa.String(64), nullable=False),
        sa.Column("used", sa.Float),
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
    op.create_table("folders", sa.Column("id", sa.String(32), primary_key=True))
    op.create_table(
        "tallies",
        sa.Column("kind", sa.String(16), primary_key=True),
        sa.Column("method", sa.String(64), primary_key=True),
        sa.Column("state", sa.String(16), primary_key=True),
        sa.Column("bucket", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("number", sa.BigInteger, nullable=False),
        sa.Column("seconds", sa.Float, nullable=False),
    )
    op.create_table(
        "signs", sa.Column("runner", sa.String(16), primary_key=True), sa.Column("count", sa.Integer, nullable=False)
    )
    op.create_table("removals", sa.Column("path", sa.String(64), primary_key=True))
    op.create_table(
        "jobs",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("owner", sa.String(64), sa.ForeignKey("users.name"), nullable=False),
        sa.Column("method", sa.String(64), nullable=False),
        sa.Column("request", sa.JSON, nullable=False),
        sa.Column("summary", sa.JSON, nullable=False),
        sa.Column("priority", sa.Integer, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("created", sa.Float, nullable=False),
        sa.Column("started", sa.Float),
        sa.Column("finished", sa.Float),
        sa.Column("queued", sa.Float, nullable=False),
        sa.Column("claimed", sa.Float),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("begun_before", sa.Integer, nullable=False),
        sa.Column("heartbeat", sa.Float),
        sa.Column("runner", sa.String(16)),
        sa.Column("cancel", sa.Boolean, nullable=False),
        sa.Column("progress", sa.JSON),
        sa.Column("scores", sa.JSON),
        sa.Column("warnings", sa.JSON),
        sa.Column("error", sa.Text),
        sa.Column("fault", sa.String(16)),
        sa.Column("size", sa.BigInteger),
    )
    for name, table, *columns in (
        ("tokens_of_user", "tokens", "user", "created"),
        ("uploads_of_owner", "uploads", "owner", "created", "id", "size"),
        ("jobs_queue", "jobs", "state", "priority", "created", "id"),
        ("jobs_queue_of_owner", "jobs", "owner", "state", "priority", "created", "id"),
        ("jobs_of_owner", "jobs", "owner", "created", "id"),
        ("jobs_of_owner_by_state", "jobs", "owner", "state", "created", "id"),
        ("jobs_by_state", "jobs", "state", "created", "id"),
        ("jobs_by_age", "jobs", "created", "id"),
        ("jobs_sizes_of_owner", "jobs", "owner", "size"),
    ):
        op.create_index(name, table, columns)
