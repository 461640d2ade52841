"""Plain integer counters: cheap to increment on the hot path, exported elsewhere.

Left to others: names and meanings for Prometheus (broker/web/metrics/), durations (timings.py), rates.
"""

from dataclasses import field, fields

from ...base.values import dataclass
from ...protocol.apis import Api


class Calls:
    """How often one version of one API was called, on one kind of listener."""

    __slots__ = ("api", "count", "version")

    def __init__(self, api: Api, version: int) -> None:
        self.api = api
        self.version = version
        self.count = 0


@dataclass(slots=True)
class Metrics:
    """Counts since the start of this process."""

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
    calls: list[Calls] = field(default_factory=list)
    """Of every route of the server."""
    follower_fetches: dict[int, int] = field(default_factory=dict)
    """Fetches of followers, by version. They are among the calls, too."""
    errors: dict[tuple[Api, int], int] = field(default_factory=dict)
    """By API and error code: requests refused as a whole, and partitions of Produce and Fetch."""

    @property
    def requests(self) -> int:
        """All requests."""
        return sum(each.count for each in self.calls)

    def failed(self, api: Api, code: int) -> None:
        """A request of this API, or one of its partitions, is answered with an error."""
        self.errors[api, code] = self.errors.get((api, code), 0) + 1

    def refuse(self, api: Api, code: int) -> None:
        """A request is answered with an error as a whole."""
        self.refused += 1
        self.failed(api, code)

    def snapshot(self) -> dict[str, int]:
        """All counters by name."""
        counters = {each.name: getattr(self, each.name) for each in fields(self)}
        return {"requests": self.requests, **{k: v for k, v in counters.items() if isinstance(v, int)}}
