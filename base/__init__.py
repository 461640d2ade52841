"""Shared basics: types, tasks with an owner, clocks, declared options, state machines as tables."""
