"""The result of a run.

`result` has labels, arrays, scores and provenance (`versions`). A result is saved as a directory that is either
complete or absent (`atomic_directory`), with a file for each array (`array_files`). `label_agreement` compares two
labellings.
"""
