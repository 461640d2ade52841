"""Connections to brokers, the cluster's metadata, requests by leader."""
