"""Following: one fetcher for each leader, one round for each request."""
