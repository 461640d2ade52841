"""What clients and tools ask of the controller: topics, configurations, elections, reassignments."""
