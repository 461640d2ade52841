"""The replicas that this broker holds: their state, produce, ISR changes, truncation, what waits there."""
