"""Plain integer counters: cheap to increment on the hot path, exported elsewhere.

Left to others: names and meanings for Prometheus (docs/operations.md), histograms, rates.
"""

from dataclasses import fields

from ...base.values import dataclass


@dataclass(slots=True)
class Metrics:
    """Counts since the start of this process."""

    requests: int = 0
    refused: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    connections_opened: int = 0
    connections_closed: int = 0
    malformed: int = 0
    reading_paused: int = 0
    deadlines_passed: int = 0
    handler_tasks: int = 0
    forwarded: int = 0

    def snapshot(self) -> dict[str, int]:
        """All counters by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}
