"""The broker's picture of the cluster, what it doubts in it, and the answers that wait for the truth."""
