"""Answers held until the controller's next update, because this broker knows that its picture is stale.

Without this, clients are told of a dead leader and sleep before they ask again. A held answer waits in the
timer wheel, without a task or a timer of its own, and is looked at again when the picture or a doubt changes.
At most `HELD_MAX` wait; beyond that a client gets what the picture says. A connection that has not asked for
`ANEW_S` waits a moment even if nothing is doubtful (doubts.py, `glance`): it may have just lost its leader. A
client that asks more often will ask again soon anyway.
Left to others: what is doubtful and for how long (doubts.py), what is answered (handlers/metadata.py,
handlers/groups/coordinators.py).
Why: docs/decisions/0045-an-answer-waits-for-what-is-about-to-be-known.md
"""

from collections.abc import Callable
from typing import Any

from ...base.types import BrokerId, TopicPartition
from ...protocol.messages.control import UpdateMetadataRequest
from ..network.exchange import Exchange
from ..replicas.purgatory import Waiter
from ..replicas.shared import ReplicaShared
from .cache import Picture
from .doubts import HOLD_S, Doubts

HELD_MAX = 1000
LONGEST_S = 2 * HOLD_S  # for one answer: doubts about many topics may follow each other without end
ANEW_S = 1.0

Until = Callable[[Doubts, Picture, float], float]
Respond = Callable[[], Any]


class HeldAnswers:
    """The held answers, and the doubts that hold them."""

    def __init__(self, shared: ReplicaShared, picture: Callable[[], Picture]) -> None:
        self.doubts = Doubts(shared.loop.time())
        self._loop = shared.loop
        self._deadlines = shared.deadlines
        self._picture = picture
        self._held: dict[_Held, None] = {}
        shared.told.subscribe(self.told)
        shared.lost.subscribe(self.lost)
        shared.back.subscribe(self.back)
        shared.left.subscribe(self.doubts.left)

    def __len__(self) -> int:
        return len(self._held)

    def hold(self, exchange: Exchange, until: Until, respond: Respond) -> bool:
        """Hold this exchange until the time that `until` returns; then `respond` makes the answer. False if
        there is nothing to wait for, or if too many wait.
        """
        now, channel = self._loop.time(), exchange.channel
        deadline = until(self.doubts, self._picture(), now)
        if deadline <= now and now - channel.asked_at >= ANEW_S:
            deadline = until(self.doubts.glance(now), self._picture(), now)
        channel.asked_at = now
        if deadline <= now or len(self._held) >= HELD_MAX:
            return False
        held = _Held(self, exchange, until, respond, now + LONGEST_S)
        if not self._deadlines.add(held, deadline):
            return False
        self._held[held] = None
        return True

    # Events: of our connections, then of the controller.

    def lost(self, broker: BrokerId) -> None:
        """Our connection to this broker broke, or it cannot be made."""
        self.doubts.lost(broker, self._loop.time())

    def back(self, broker: BrokerId) -> None:
        """We are connected to this broker."""
        if self.doubts.back(broker):
            self._look_again()

    def told(self, partition: TopicPartition, epoch: int) -> None:
        """LeaderAndIsr gives us a role in this leader epoch."""
        known = self._picture().partition(*partition)
        if known is None or known.leader_epoch < epoch:
            self.doubts.told(partition, epoch, self._loop.time())

    def pictured(self, before: Picture, update: UpdateMetadataRequest) -> None:
        """There is a new picture."""
        self.doubts.pictured(before, update, self._loop.time())
        self._look_again()

    # Topics that clients want.

    def creating(self, topic: str) -> None:
        """The controller is being asked to create this topic."""
        self.doubts.creating(topic, self._loop.time())

    def created(self, topic: str) -> None:
        """The controller has answered, or could not be reached."""
        if self.doubts.created(topic):
            self._look_again()

    def _look_again(self) -> None:
        if not self._held:
            return
        picture, now = self._picture(), self._loop.time()
        for held in [each for each in self._held if each.until(self.doubts, picture, now) <= now]:
            self._deadlines.remove(held)
            self._answer(held)

    def _expired(self, held: "_Held") -> None:
        """Answer, unless a new doubt has begun: a partition lost its leader, and then a broker came."""
        now = self._loop.time()
        deadline = min(held.until(self.doubts, self._picture(), now), held.latest)
        if deadline <= now or not self._deadlines.add(held, deadline):
            self._answer(held)

    def _answer(self, held: "_Held") -> None:
        del self._held[held]
        held.answer()


class _Held(Waiter):
    """One held answer."""

    __slots__ = ("_all", "_exchange", "_respond", "latest", "until")

    def __init__(
        self, all_: HeldAnswers, exchange: Exchange, until: Until, respond: Respond, latest: float
    ) -> None:
        super().__init__()
        self.until = until
        self.latest = latest  # it waits no longer than this, whatever is doubtful then
        self._all = all_
        self._exchange = exchange
        self._respond = respond

    def answer(self) -> None:
        """Answer from the picture as it is now."""
        self._exchange.answer(self._respond())

    def expire(self) -> None:
        self._all._expired(self)
