"""Background work: retention, checkpoints, compaction, full and failed disks."""
