"""What happens without a request: retention, checkpoints, compaction, full and failed disks."""
