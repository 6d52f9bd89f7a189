"""Alembic migrations from older tables to the tables of `mgclust.service.queue.models`; Alembic runs `env`."""
