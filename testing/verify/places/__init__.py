"""Where the brokers of a run live, and what can be done to them there.

Left to others: choosing what is done (verify/nemesis.py).
"""

from .base import KAFKAS, Place, PlaceProblem

__all__ = ["KAFKAS", "Place", "PlaceProblem"]
