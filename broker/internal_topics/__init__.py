"""What the coordinators of groups and of transactions share: the topics in which they keep their state."""
