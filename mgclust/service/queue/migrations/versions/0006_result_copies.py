"""Copies of results in stores: their state, and when they are due."""

import sqlalchemy as sa
from alembic import op

revision = "result_copies"
down_revision = "webhook_origins"


def upgrade() -> None:
    """Add the columns and the index."""
    op.add_column("jobs", sa.Column("result_copy", sa.JSON))
    op.add_column("jobs", sa.Column("copy_due", sa.Float))
    due = sa.text("copy_due IS NOT NULL")
    op.create_index("jobs_to_copy", "jobs", ["copy_due"], sqlite_where=due, postgresql_where=due)
