"""The system's clock and random source, for a client that is given no others.

Only this file of the client uses the system's clock and random source. Every part that needs one takes it as
a parameter, so that the simulator can pass its own.
"""

import random
import time


class SystemClock:
    """The machine's wall clock: stamps records, never measures durations."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC."""
        return time.time_ns() // 1_000_000


def system_random() -> random.Random:
    """A random source seeded by the operating system: jitter of retries, first sticky partition."""
    return random.Random()
