"""``python -m mgclust.accel``: the names of this module go when the script becomes ``__main__``."""

from mgclust.accel.command import main

main()
