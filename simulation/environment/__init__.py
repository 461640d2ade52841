"""What simulated processes run on: an event loop, threads, network, disk and ZooKeeper, all in memory."""
