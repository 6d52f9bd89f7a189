"""Names, tags and sweeps of jobs, the text that a search reads, and uploads by their content."""

import sqlalchemy as sa
from alembic import op

from mgclust.service.queue.models import search_text, summarize

revision = "lists"
down_revision = "0001"

BATCH = 1000  # jobs that are in memory at a time


def upgrade() -> None:
    """Add the columns, and fill them for the jobs that exist."""
    op.add_column("jobs", sa.Column("name", sa.String(100)))
    op.add_column("jobs", sa.Column("tags", sa.JSON, nullable=False, server_default="[]"))
    op.add_column("jobs", sa.Column("sweep", sa.String(32)))
    op.add_column("jobs", sa.Column("search", sa.Text, nullable=False, server_default=""))
    jobs = sa.table(
        "jobs", sa.column("id"), sa.column("method"), sa.column("request", sa.JSON), sa.column("summary", sa.JSON),
        sa.column("search"),
    )  # fmt: skip
    connection, last = op.get_bind(), ""
    while rows := connection.execute(
        sa.select(jobs.c.id, jobs.c.method, jobs.c.request).where(jobs.c.id > last).order_by(jobs.c.id).limit(BATCH)
    ).all():
        for row in rows:
            summary = summarize(row.request)
            text = search_text(row.id, None, [], row.method, summary, None)
            connection.execute(jobs.update().where(jobs.c.id == row.id).values(summary=summary, search=text))
        last = rows[-1].id
    op.create_index("jobs_of_sweep", "jobs", ["sweep", "created", "id"])
    op.create_index("jobs_search", "jobs", ["created", "id", "state", "search"])
    op.create_index("jobs_search_of_owner", "jobs", ["owner", "created", "id", "state", "search"])
    op.create_index("uploads_by_content", "uploads", ["owner", "sha256", "name"])
