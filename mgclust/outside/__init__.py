"""Untrusted content, read within bounds.

`rooted_files` opens files under a root folder, once; `json_text` limits nesting, `zarr_store` the size of chunks, and
`inflation` the memory that a file can claim. `quoting` decides whether a message may quote what was read.
"""
