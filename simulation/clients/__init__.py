"""The clients of a world's cluster: producers, consumers, groups, administrators."""
