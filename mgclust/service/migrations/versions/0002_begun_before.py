"""Move `begun_before` from requests to a column; add indexes for a user's jobs and for lists by state."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add them."""
    op.add_column("jobs", sa.Column("begun_before", sa.Integer, nullable=False, server_default="0"))
    jobs = sa.table("jobs", sa.column("id"), sa.column("request", sa.JSON), sa.column("begun_before"))
    connection = op.get_bind()
    hidden = sa.cast(jobs.c.request, sa.Text).like('%"begun_before"%')
    for id_, request in connection.execute(sa.select(jobs.c.id, jobs.c.request).where(hidden)).all():
        begun = request.pop("begun_before", 0)  # there may be a parameter of that name
        values = {"request": request, "begun_before": begun}
        connection.execute(sa.update(jobs).where(jobs.c.id == id_).values(values))
    op.create_index("jobs_of_owner_by_state", "jobs", ["owner", "state", "created", "id"])
    op.create_index("jobs_by_state", "jobs", ["state", "created", "id"])
