"""The command line: brokers, a local cluster, topics, records, groups, inspection and the demo."""
