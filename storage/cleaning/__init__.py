"""Compaction: keeping the last record of each key, in its own process."""
