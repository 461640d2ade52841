"""The follower side of replication: one fetcher per leader, which fetches in rounds."""
