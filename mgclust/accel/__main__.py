"""Entry point of ``python -m mgclust.accel``; the script later takes the place of this module ``__main__``."""

from mgclust.accel.command import main

main()
