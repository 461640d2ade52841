"""Which topics brokers may create because this client asks for their metadata. Pure.

Brokers that are set so create a topic when somebody asks for its metadata. But a client asks for all that it
has had to do with, again and again: without a rule it would make a topic anew as often as it is deleted. So a
look may create only what somebody wants to have now. A consumer wants what it was told to read, until that
has been there once; a producer wants what is sent to (producer/producer.py says so); and whoever waits for
the partitions of a topic wants it.
Left to others: when metadata is asked for (cluster.py).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

from .metadata import TopicView


class Creation:
    """What a client's looks may create; nothing unless it is `allowed`."""

    def __init__(self, allowed: bool) -> None:
        self.is_wanted: Callable[[str], bool] = lambda topic: topic not in self._were_there
        self._allowed = allowed
        self._were_there: set[str] = set()
        self._waited_for: dict[str, int] = {}  # so many callers

    @contextmanager
    def awaited(self, topic: str) -> Iterator[None]:
        """Within this, somebody waits for the topic."""
        self._waited_for[topic] = self._waited_for.get(topic, 0) + 1
        try:
            yield
        finally:
            self._waited_for[topic] -= 1
            if not self._waited_for[topic]:
                del self._waited_for[topic]

    def told(self, topics: Mapping[str, TopicView]) -> None:
        """This is what there is now."""
        self._were_there.update(name for name, one in topics.items() if _is_there(one))

    def split(self, names: Iterable[str], known: Mapping[str, TopicView]) -> tuple[list[str], list[str]]:
        """Those of the names that may be created, and the others, which are only asked for."""
        may_be: list[str] = []
        others: list[str] = []
        for name in names:
            there = name in known and _is_there(known[name])
            wanted = self._allowed and not there and (name in self._waited_for or self.is_wanted(name))
            (may_be if wanted else others).append(name)
        return may_be, others


def _is_there(topic: TopicView) -> bool:
    return bool(topic.partitions) and not topic.is_gone
