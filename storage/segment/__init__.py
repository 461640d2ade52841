"""One segment: its file and indexes, what of it is in memory, and reading it batch by batch."""
