"""Evidence for parcels, and the choice of their number.

Parcels of one half of a series are judged by the other half, so that parcels that follow the noise of their own half
score lower.

::

    number_choice.py   a table of scores for several numbers of parcels, and the choice of one number
      null_parcels.py  parcels that ignore the series, for comparison
      scores.py        homogeneity, silhouettes, connected pieces, agreement of halves
      boundaries.py    the distance-controlled boundary coefficient (DCBC)
        given_data.py  checks of series and labels, and progress

The graph of neighbours is in compressed form: the neighbours of row i are ``columns[starts[i]:starts[i + 1]]``,
ascending, and each edge is in the lists of both its rows. An island is a connected component of this graph.
"""
