"""The broker's picture of the cluster, what may be stale in it, and the answers that wait for news."""
