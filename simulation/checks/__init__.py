"""Invariants: what must hold in every world, while it runs and at its end."""
