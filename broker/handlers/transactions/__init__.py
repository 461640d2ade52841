"""Requests about transactions: of producers to coordinators, of coordinators to partitions, of tools."""
