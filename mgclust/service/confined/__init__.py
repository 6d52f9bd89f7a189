"""Confined processes that read users' data, and what the service reads of theirs."""
