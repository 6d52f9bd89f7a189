"""The queue in the database: users, jobs, attempts, and the files that belong to them."""
