"""Closed log directories of one or more replicas, read with no broker running."""
