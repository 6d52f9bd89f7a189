"""Messages of rows that keep only some pairs: neighbour lists (`listed`) or some columns (`columns`)."""
