"""ZooKeeper for brokers and controllers: the client, and the paths and content of its nodes."""
