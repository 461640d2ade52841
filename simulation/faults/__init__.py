"""Faults: what goes wrong in a world, and when."""
