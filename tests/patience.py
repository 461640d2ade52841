"""How long a test waits for what must come, where nothing else says how long it may take.

Only a test that fails waits so long: the bound says that something hangs, and nothing of how fast it is. Four
files of tests share two cores, and what takes milliseconds has taken seconds there. How fast something is
must be measured; `tests/test_tidy.py` refuses shorter bounds.
"""

HANG_S = 20.0
"""Less than what ends by itself after a request's time (30 s): that would pass for an answer."""
