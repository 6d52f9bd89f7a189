"""Add the data folder of the database."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Add it."""
    op.create_table("folders", sa.Column("id", sa.String(32), primary_key=True))
