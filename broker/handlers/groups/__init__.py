"""Requests of groups: members, offsets, coordinators, administration."""
