"""`strandline why`: explains the state of a partition by what brokers decided."""
