"""Compaction: keeping the last record of each key, in a process of its own."""
