"""What a simulated process runs on: an event loop, threads, network, disk and ZooKeeper, all in memory."""
