"""What must hold between the replicas of a partition: pure rules, events in, effects out."""
