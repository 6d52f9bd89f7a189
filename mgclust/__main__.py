"""``python -m mgclust`` runs the command ``mgclust``."""

from mgclust.cli import main

main()
