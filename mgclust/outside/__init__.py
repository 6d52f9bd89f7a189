"""Untrusted content, read within bounds.

`rooted_files` opens files under a root folder, each only once. `json_text` limits nesting, `zarr_store` limits the size
of chunks, and `inflation` limits the memory that reading a file can take. `quoting` decides whether a message may quote
the content.
"""
