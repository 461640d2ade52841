"""Why writes to partitions of this broker are not acknowledged: what `/ready` is made of.

All replicas that are assigned to this broker are looked at, which may be thousands. So it is done in steps,
at most once in FRESH_S however often it is asked for, and at once only after the controller has announced
something new: a broker that was given replicas a moment ago must not seem ready without them.
Left to others: what is answered (health.py).
"""

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import field
from heapq import nsmallest
from typing import TYPE_CHECKING, Any

from ...base.types import TopicPartition
from ...base.values import dataclass
from ..replicas.shared import Role

if TYPE_CHECKING:
    from ..context import BrokerContext
    from ..metadata.cache import Picture
    from ..replicas.partition import Partition

FRESH_S = 1.0
STEP = 500  # partitions between two pauses
NAMED_MAX = 20  # partitions that are named for one reason; further ones are counted
OUT_OF_SYNC = "out_of_sync"


@dataclass(frozen=True, slots=True)
class Trouble:
    """What is wrong with some partitions, and the first of them."""

    why: str
    count: int = 0
    partitions: tuple[TopicPartition, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """For the answer."""
        return {"why": self.why, "count": self.count, "partitions": [str(each) for each in self.partitions]}


NO_TROUBLE: Mapping[str, Trouble] = {}


@dataclass(slots=True)
class Readiness:
    """What was found when partitions were last looked at."""

    _busy: asyncio.Lock = field(default_factory=asyncio.Lock)
    _picture: "Picture | None" = None
    _looked_at: float = 0.0
    _found: Mapping[str, Trouble] = field(default_factory=lambda: NO_TROUBLE)

    async def look(self, broker: "BrokerContext") -> tuple[Mapping[str, Trouble], float]:
        """The troubles by their names, and how many seconds ago they were looked for: less than FRESH_S."""
        loop = asyncio.get_running_loop()
        async with self._busy:
            picture = broker.metadata
            if picture is not self._picture or loop.time() - self._looked_at >= FRESH_S:
                began = loop.time()
                named: dict[str, list[TopicPartition]] = {}
                for _ in _walked(broker, picture, named):
                    await asyncio.sleep(0)
                self._found = {
                    why: Trouble(why, len(some), tuple(nsmallest(NAMED_MAX, some)))
                    for why, some in named.items()
                }
                self._picture, self._looked_at = picture, began
            return self._found, loop.time() - self._looked_at


def _walked(
    broker: "BrokerContext", picture: "Picture", named: dict[str, list[TopicPartition]]
) -> Iterator[None]:
    """Name the partitions of each trouble, in steps."""
    me, count = broker.id, 0
    for name, topic in picture.topics.items():
        for number, state in topic.partitions.items():
            count += 1
            if me in state.replicas:
                partition = TopicPartition(name, number)
                why = _trouble(broker.replicas.find(partition))
                if why is None and me not in state.isr:
                    why = OUT_OF_SYNC
                if why is not None:
                    named.setdefault(why, []).append(partition)
            if count % STEP == 0:
                yield


def _trouble(replica: "Partition | None") -> str | None:
    if replica is None:
        return "not_hosted"
    if replica.role is Role.OFFLINE:
        return "offline"
    if replica.full is not None:
        return "disk_full"
    leader = replica.leading
    if leader is None:
        return "no_leader" if replica.role is Role.IDLE else None
    if replica.is_forsaken:  # without a session, and heard by none of the others: it refuses writes
        return "forsaken"
    if replica.recovering:
        return "recovering"
    return "under_min_isr" if leader.under_min_isr else None
