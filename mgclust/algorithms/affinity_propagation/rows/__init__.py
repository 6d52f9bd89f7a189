"""The rows that a rank keeps of the similarities and availabilities, in three forms with the same bits.

`row_choice` decides: all elements (`message_rows`, from a `similarity_matrix`), neighbour lists (`listed_rows`, with
`list_storage` and `list_pace`), or some columns (`column_rows`). `sparse_pairs` are given pairs, which are lists by
nature. `similarity_quantiles` finds the median preference.
"""
