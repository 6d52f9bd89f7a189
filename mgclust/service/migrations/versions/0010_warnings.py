"""Add the warnings of results."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """Add them."""
    op.add_column("jobs", sa.Column("warnings", sa.JSON))
