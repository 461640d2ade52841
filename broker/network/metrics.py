"""Plain integer counters: cheap to increment on the hot path, exported elsewhere.

Left to others: names and meanings for Prometheus (broker/web/metrics/), durations (timings.py), rates.
"""

from dataclasses import field, fields

from ...base.values import dataclass
from ...protocol.apis import Api


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
    errors: dict[tuple[Api, int], int] = field(default_factory=dict)
    """By API and error code: requests refused as a whole, and partitions of Produce and Fetch."""

    def failed(self, api: Api, code: int) -> None:
        """A request of this API, or one of its partitions, is answered with an error."""
        self.errors[api, code] = self.errors.get((api, code), 0) + 1

    def refuse(self, api: Api, code: int) -> None:
        """A request is answered with an error as a whole."""
        self.refused += 1
        self.failed(api, code)

    def snapshot(self) -> dict[str, int]:
        """All counters by name."""
        return {each.name: getattr(self, each.name) for each in fields(self) if each.name != "errors"}
