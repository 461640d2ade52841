"""Who uses a world's cluster: producers, consumers, groups, administrators."""
