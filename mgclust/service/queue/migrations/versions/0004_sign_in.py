"""Tokens of links, sessions and one-time codes; users of an OpenID provider; webhooks."""

import sqlalchemy as sa
from alembic import op

revision = "sign_in"
down_revision = "administration"


def upgrade() -> None:
    """Add the columns and tables."""
    for column in (
        sa.Column("kind", sa.String(16), nullable=False, server_default="token"),
        sa.Column("origin", sa.String(32)),
        sa.Column("job", sa.String(32)),
    ):
        op.add_column("tokens", column)
    op.create_index("tokens_of_job", "tokens", ["job"])
    op.create_index("tokens_of_origin", "tokens", ["origin"])
    op.add_column("users", sa.Column("identity", sa.String(64)))
    op.create_index("users_by_identity", "users", ["identity"], unique=True)
    op.create_table(
        "webhooks",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("owner", sa.String(64), sa.ForeignKey("users.name"), nullable=False),
        sa.Column("url", sa.String(1024), nullable=False),
        sa.Column("secret", sa.String(64), nullable=False),
        sa.Column("created", sa.Float, nullable=False),
        sa.Column("since", sa.Float, nullable=False),
        sa.Column("last", sa.Text),
    )
    op.create_table(
        "deliveries",
        sa.Column("webhook", sa.String(32), sa.ForeignKey("webhooks.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("job", sa.String(32), primary_key=True),
        sa.Column("finished", sa.Float, primary_key=True),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("failures", sa.Integer, nullable=False),
        sa.Column("due", sa.Float),
    )
    op.create_index("deliveries_due", "deliveries", ["due"])
    op.create_index("jobs_by_end", "jobs", ["finished", "id"])
