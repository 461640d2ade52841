"""The simulator: a whole cluster in virtual time, with network, disk and ZooKeeper in memory."""
