"""The token that added a webhook, and the messages of each webhook in the order in which they are due."""

import sqlalchemy as sa
from alembic import op

revision = "webhook_origins"
down_revision = "sign_in"


def upgrade() -> None:
    """Add the column, and replace the index."""
    op.add_column("webhooks", sa.Column("origin", sa.String(32)))
    op.drop_index("deliveries_due", "deliveries")
    op.create_index("deliveries_due", "deliveries", ["webhook", "due"])
