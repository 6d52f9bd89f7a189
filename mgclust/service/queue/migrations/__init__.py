"""Alembic: how older tables become those of `mgclust.service.queue.models`; Alembic runs `env`."""
