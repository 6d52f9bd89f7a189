"""What several methods share: rows made ready, and the arithmetic that their distances can afford."""
