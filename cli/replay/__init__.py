"""`strandline replay`: any moment of a failover again, from what the brokers' flight recorders hold."""
