"""What benchmarks share: records, point sets and networks, peers, functions that ranks run."""
