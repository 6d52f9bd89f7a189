"""Add expiry, scopes and last use of tokens."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Add it; tokens that exist keep what their user's role allows, and do not expire."""
    op.add_column("tokens", sa.Column("expires", sa.Float))
    op.add_column("tokens", sa.Column("scopes", sa.String(64)))
    op.add_column("tokens", sa.Column("used", sa.Float))
    op.create_index("tokens_of_user", "tokens", ["user", "created"])
