"""A broker's log directories: opening and closing all logs, checkpoints, incarnations, deletions."""
