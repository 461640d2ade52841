"""Who leads: cluster state, elections and plans (pure), ZooKeeper and the elected service round them."""
