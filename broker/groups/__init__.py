"""The group coordinator: members, rebalances, committed offsets, and their records in __consumer_offsets."""
