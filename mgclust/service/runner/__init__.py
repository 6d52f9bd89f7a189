"""The runner: takes jobs from the queue and runs an attempt of each in a process of its own."""
