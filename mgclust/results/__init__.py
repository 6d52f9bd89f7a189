"""The result of a run.

`result` has labels, arrays, scores and provenance (`versions`), and is saved as a folder, whole or not at all
(`atomic_directory`), with a file for each array (`array_files`). `label_agreement` compares two labellings.
"""
