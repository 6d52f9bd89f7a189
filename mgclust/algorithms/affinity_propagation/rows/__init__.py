"""The rows of similarities and availabilities that a rank keeps, in three forms with bitwise identical results.

`row_choice` chooses the form: all elements (`message_rows`, from a `similarity_matrix`), neighbour lists
(`listed_rows`, with `list_storage` and `list_pace`), or some columns (`column_rows`). `sparse_pairs` keeps pairs that
the caller gives, always as lists. `computed_similarities` stores no matrix for the sparse forms.
`similarity_quantiles` computes the median preference.
"""
