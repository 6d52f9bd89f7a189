"""The result of a run.

`result` holds labels, arrays, scores and provenance (`versions`). A result is saved as a directory that is either
complete or absent (`atomic_directory`), with one file per array (`array_files`). `label_agreement` compares two
labellings. `candidates` makes a result from each candidate of a scan.
"""
