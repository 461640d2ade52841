"""What the controller orders: LeaderAndIsr and StopReplica, carried out for all replicas here."""
