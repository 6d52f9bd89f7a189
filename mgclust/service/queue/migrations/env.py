"""Alembic runs this module with the connection that `mgclust.service.queue.models.migrate` passes."""

from alembic import context

from mgclust.service.queue.models import Base

context.configure(connection=context.config.attributes["connection"], target_metadata=Base.metadata)
context.run_migrations()
