"""The replicas that this broker holds: their roles, produce, ISR changes, truncation, what waits there."""
