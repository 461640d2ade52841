"""Fetch requests of consumers and followers: sessions, reading, and the fetches that wait for records."""
