"""Connections: bytes in, requests cut and executed in order, answers out, and who may connect."""
