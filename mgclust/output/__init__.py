"""From a file to a folder of results: the run of a method on a file, its labels as files, and its report."""
