"""Reading of untrusted content, within limits.

`rooted_files` opens files under a root folder, each only once. `json_text` limits nesting, `zarr_store` limits the size
of chunks, and `inflation` limits the memory that a file can take. `streams` decompresses files within these limits.
`quoting` decides whether a message may quote content of a file.
"""
