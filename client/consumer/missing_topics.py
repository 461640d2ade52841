"""Topics that a consumer is to read and cannot: its caller is told, once for each. Pure.

A mistyped name looks like a topic without records. But a topic may also be created a little later, so its
absence counts only after a while, and the consumer goes on waiting for it after its caller was told. One that
can never be, for its name is not legal, say, is told of at once.
Left to others: what exists (network/metadata.py), who is told (consumer.py).
"""

from collections.abc import Collection, Iterable, Mapping

from ...protocol.errors import ApiError

MISSING_SECONDS = 5.0  # brokers that create topics automatically have done it by then


class MissingTopics:
    """Since when each topic has been missing."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}
        self._told: set[str] = set()
        self._refusals_told: set[str] = set()

    def refusal(self, refused: Mapping[str, ApiError]) -> ApiError | None:
        """These can never be read now. Returns the next error that the caller must be told of."""
        self._refusals_told &= refused.keys()
        for topic, error in refused.items():
            if topic not in self._refusals_told:
                self._refusals_told.add(topic)
                return error
        return None

    def look(self, missing: Collection[str], now: float) -> list[str]:
        """These are missing now. Returns those that the caller must be told of."""
        self._since = {topic: self._since.get(topic, now) for topic in missing}
        self._told &= set(missing)
        due = [topic for topic in self._waiting() if now - self._since[topic] >= MISSING_SECONDS]
        self._told.update(due)
        return due

    def wake_at(self) -> float:
        """When the caller must be told of the next one; infinity if of none."""
        return min((self._since[topic] + MISSING_SECONDS for topic in self._waiting()), default=float("inf"))

    def _waiting(self) -> Iterable[str]:
        return sorted(topic for topic in self._since if topic not in self._told)
