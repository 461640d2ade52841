"""The consumer: positions, fetching, groups, commits."""
