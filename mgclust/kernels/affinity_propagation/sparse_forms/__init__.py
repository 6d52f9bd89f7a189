"""Message passing that stores only some pairs of each row: neighbour lists (`listed`) or some columns (`columns`)."""
