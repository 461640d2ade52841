"""`strandline reassign`: moves partitions to other brokers."""
