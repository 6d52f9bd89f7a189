"""Add usage of users, summaries of jobs, and sizes that include the row."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0004"

BLOCK = 4096


def upgrade() -> None:
    """Add them; priorities above 0 are for administrators from now on."""
    op.add_column("users", sa.Column("used", sa.Float, nullable=False, server_default="0"))
    for column in (sa.Column("summary", sa.JSON), sa.Column("queued", sa.Float), sa.Column("claimed", sa.Float)):
        op.add_column("jobs", column)
    plain = ("id", "owner", "priority", "state", "created", "started", "finished", "queued", "claimed", "size")
    json = (sa.column(name, sa.JSON) for name in ("request", "summary", "scores"))
    jobs = sa.table("jobs", *map(sa.column, plain), *json)
    users = sa.table("users", sa.column("name"), sa.column("role"))
    admins = sa.select(users.c.name).where(users.c.role == "admin")
    connection = op.get_bind()
    connection.execute(sa.update(jobs).where(jobs.c.priority > 0, jobs.c.owner.not_in(admins)).values(priority=0))
    connection.execute(sa.update(jobs).values(queued=jobs.c.created, claimed=jobs.c.started))
    row = BLOCK + sa.func.length(sa.cast(jobs.c.request, sa.Text))
    row += sa.func.coalesce(sa.func.length(sa.cast(jobs.c.scores, sa.Text)), 0)
    # Jobs that ended before there were sizes get theirs when the service starts.
    weighed = jobs.c.size.is_not(None) | jobs.c.finished.is_(None)
    connection.execute(sa.update(jobs).where(weighed).values(size=sa.func.coalesce(jobs.c.size, 0) + row))
    last = ""
    while found := connection.execute(
        sa.select(jobs.c.id, jobs.c.request).where(jobs.c.id > last).order_by(jobs.c.id).limit(100)
    ).all():
        last = found[-1].id
        summaries = [{"key": id_, "summary": _summary(request)} for id_, request in found]
        described = sa.update(jobs).where(jobs.c.id == sa.bindparam("key")).values(summary=sa.bindparam("summary"))
        connection.execute(described, summaries)
    op.drop_index("jobs_queue", "jobs")
    op.create_index("jobs_queue", "jobs", ["state", "priority", "created", "id"])
    op.create_index("jobs_queue_of_owner", "jobs", ["owner", "state", "priority", "created", "id"])
    op.create_table(
        "tallies",
        sa.Column("kind", sa.String(16), primary_key=True),
        sa.Column("method", sa.String(64), primary_key=True),
        sa.Column("state", sa.String(16), primary_key=True),
        sa.Column("bucket", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("number", sa.BigInteger, nullable=False),
        sa.Column("seconds", sa.Float, nullable=False),
    )


def _summary(request: dict) -> dict:
    sources = request.get("sources") or []
    named = [s.get("name") or s.get("path") or s.get("url") or f"upload {s.get('upload')}" for s in sources[:3]]
    return {"sources": [name[:255] for name in named], "n_sources": len(sources), "parent": request.get("parent")}
