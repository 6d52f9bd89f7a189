"""A file in, a folder of results out.

`file_run` opens the file, runs a method and saves the result; `label_output` writes labels in the form of their source;
`report` is the page.
"""
