"""``python -m mgclust`` is ``mgclust``."""

from mgclust.cli import main

main()
