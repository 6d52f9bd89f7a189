"""The result of a run: its arrays as files, its provenance, and the agreement of two labellings."""
