"""Alembic migrations from older tables to those of `mgclust.service.queue.models`; Alembic runs `env`."""
