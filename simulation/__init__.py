"""The world in which we test: virtual time, network, disk and ZooKeeper in memory."""
