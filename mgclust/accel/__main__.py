"""Entry of ``python -m mgclust.accel``; the script later replaces this module ``__main__`` and its names."""

from mgclust.accel.command import main

main()
