"""Fetch requests of consumers and followers: sessions, reads, and fetches that wait for records."""
