"""Logs on disk: segments, indexes, checkpoints, recovery. All file calls go through `disk.py`."""
