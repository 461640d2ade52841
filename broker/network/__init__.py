"""Connections: bytes in, frames executed in order, answers out, and which connections are accepted."""
