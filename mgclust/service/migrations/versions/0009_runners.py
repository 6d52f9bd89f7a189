"""Add the runner of an attempt, and signs of life of runners."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Add them."""
    op.add_column("jobs", sa.Column("runner", sa.String(16)))
    op.create_table(
        "signs", sa.Column("runner", sa.String(16), primary_key=True), sa.Column("count", sa.Integer, nullable=False)
    )
