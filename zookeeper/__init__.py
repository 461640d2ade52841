"""ZooKeeper as both a broker and a controller see it: the client, and what stands in which node."""
