"""Rows of similarities and availabilities that a rank stores, in three forms with bitwise identical results.

`row_choice` chooses the form: all elements (`message_rows`, from a `similarity_matrix`), neighbour lists
(`listed_rows`, with `list_storage` and `list_pace`), or some columns (`column_rows`). `sparse_pairs` has the pairs that
the caller gives, always as lists. `computed_similarities` computes similarities for lists and columns without a matrix.
`similarity_quantiles` computes the median and other quantiles, for preferences.
"""
