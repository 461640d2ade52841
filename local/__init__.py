"""Processes on this machine: clusters for `up`, the demo and tests, and an embedded ZooKeeper."""
