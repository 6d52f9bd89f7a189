"""Alembic runs this with the connection that `mgclust.service.records.migrate` gives."""

from alembic import context

from mgclust.service.records import Base

context.configure(connection=context.config.attributes["connection"], target_metadata=Base.metadata)
context.run_migrations()
