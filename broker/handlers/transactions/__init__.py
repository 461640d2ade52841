"""Requests about transactions in partitions: markers that end them, and who is writing."""
