"""What every room uses: types, tasks with an owner, clocks, options with their meaning, state machines as
tables.
"""
