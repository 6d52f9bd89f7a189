"""Alembic: how older tables become those of `mgclust.service.models`; Alembic runs `env`."""
