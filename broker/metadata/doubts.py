"""Which parts of the cluster picture are probably stale, and until when it pays to wait for the controller.

A client that is told of a dead leader, or of none, does not ask again at once: it sleeps, with some clients
for a second. So an answer from a doubtful part of the picture is held until the controller's next update.
Each doubt begins with an event and ends at most `HOLD_S` later, however often clients ask, so a partition
that stays without a leader delays nobody. A wrong doubt costs no more than that wait.
A dying process closes its connections one by one, so a client may ask before our connection breaks. So a
client that has not asked for a while waits `GLANCE_S` even if nothing is doubtful, if the answer names a
leader whose death we would notice.
Pure: times are the loop's.
Left to others: the answers that wait (held_answers.py), the picture (cache.py).
"""

from collections.abc import Iterable, Mapping

from ...base.types import NO_EPOCH, NO_LEADER, BrokerId, TopicPartition
from ...protocol.messages.control import UpdateMetadataPartitionState, UpdateMetadataRequest
from .cache import LEADER_IS_DELETED, Picture, PicturedTopic

HOLD_S = 0.5
GLANCE_S = 0.03  # a dying broker's connections all break within this time, ours too, with a margin
PAST = 0.0  # "until when is it worth a wait": not at all


class Doubts:
    """What may be stale: a leader out of reach, an old epoch, a topic or a leader that is about to come."""

    def __init__(self, now: float) -> None:
        """A broker that starts has no picture yet, and expects one soon."""
        self._begun_until = self._last = now + HOLD_S
        self._lost: dict[BrokerId, float] = {}
        self._reached: set[BrokerId] = set()  # we are connected, so we would notice their death
        self._creating: dict[str, float] = {}
        self._leaderless: dict[str, float] = {}
        self._told: dict[str, float] = {}
        self._epochs: dict[str, dict[int, int]] = {}  # by topic and partition, as LeaderAndIsr told them

    # Events.

    def lost(self, broker: BrokerId, now: float) -> None:
        """Our connection to this broker broke, or cannot be made. Counts once, until it is `back`."""
        self._reached.discard(broker)
        if broker not in self._lost:
            self._lost[broker] = self._hold(now)

    @property
    def lost_brokers(self) -> frozenset[BrokerId]:
        """Whose connection broke and is not back."""
        return frozenset(self._lost)

    def back(self, broker: BrokerId) -> bool:
        """We are connected to this broker. Returns whether that ends a doubt."""
        self._reached.add(broker)
        return self._lost.pop(broker, None) is not None

    def left(self, broker: BrokerId) -> None:
        """We closed our connection to this broker, because we need nothing from it."""
        self._reached.discard(broker)

    def glance(self, now: float) -> "Doubts":
        """Doubts as if every broker we are connected to might just have died; they end after GLANCE_S."""
        glance = Doubts(now - HOLD_S)
        glance._lost = dict.fromkeys(self._reached, now + GLANCE_S)
        glance._last = now + GLANCE_S
        return glance

    def told(self, partition: TopicPartition, epoch: int, now: float) -> None:
        """LeaderAndIsr told us of this leader epoch. The picture has it only after the next update."""
        self._told[partition.topic] = self._hold(now)
        self._epochs.setdefault(partition.topic, {})[partition.partition] = epoch

    def creating(self, topic: str, now: float) -> None:
        """The controller is being asked to create this topic. Counts once, until it is `created`."""
        if topic not in self._creating:
            self._creating[topic] = self._hold(now)

    def created(self, topic: str) -> bool:
        """The controller has answered, even if it refused. Returns whether that ends a doubt."""
        return self._creating.pop(topic, None) is not None

    def pictured(self, before: Picture, update: UpdateMetadataRequest, now: float) -> None:
        """An update has come. A partition that has just lost its leader may soon have another.

        So may one that has been without a leader for long, if a broker with a replica of it has just come.
        """
        live = {one.id for one in update.live_brokers}
        came, left = live - before.brokers.keys(), before.brokers.keys() - live
        for known in before.topics.values() if before.brokers and (came or left) else ():
            if _may_be_led_by(before, known, came) or not left.isdisjoint(_leaders(before, known, None)):
                self._leaderless[known.name] = self._hold(now)
        for topic in update.topic_states:
            name, states = topic.topic_name, topic.partition_states
            if any(_is_newly_leaderless(before, name, state, live) for state in states):
                self._leaderless[name] = self._hold(now)
            if any(state.leader == LEADER_IS_DELETED for state in states):
                self._told.pop(name, None)
                self._epochs.pop(name, None)

    # Questions. Each returns the time until which it pays to hold the answer, or `PAST`.

    def until(self, picture: Picture, topics: Iterable[str], now: float) -> float:
        """For an answer about these topics."""
        if now >= self._last:
            return PAST
        if not picture.brokers:
            return self._begun_until
        return max((self._until_of(picture, topic, now) for topic in topics), default=PAST)

    def until_of_all(self, picture: Picture, now: float) -> float:
        """For an answer about all topics."""
        return self.until(picture, picture.topics, now)

    def until_of_partition(self, picture: Picture, tp: TopicPartition, now: float) -> float:
        """For an answer about one partition."""
        if now >= self._last:
            return PAST
        if not picture.brokers:
            return self._begun_until
        return self._until_of(picture, tp.topic, now, tp.partition)

    def until_of_cluster(self, picture: Picture, now: float) -> float:
        """For an answer about the brokers, and which of them is the controller."""
        if now >= self._last:
            return PAST
        if not picture.brokers:
            return self._begun_until
        return self._lost.get(BrokerId(picture.controller_id), PAST)

    def _until_of(self, picture: Picture, topic: str, now: float, partition: int | None = None) -> float:
        known = picture.topics.get(topic)
        if known is None:
            return max(self._creating.get(topic, PAST), self._told.get(topic, PAST))
        until = PAST
        leaders = _leaders(picture, known, partition)
        for broker, lost_until in self._lost.items():
            if lost_until > now and broker in leaders:
                until = max(until, lost_until)
        if NO_LEADER in leaders:
            until = max(until, self._leaderless.get(topic, PAST))
        if topic in self._told and self._is_behind(known, partition):
            until = max(until, self._told[topic])
        return until

    def _is_behind(self, known: PicturedTopic, partition: int | None) -> bool:
        """Whether LeaderAndIsr told us of a newer epoch than the picture has."""
        told = self._epochs[known.name]
        asked = told if partition is None else told.keys() & {partition}
        return any(told[each] > _epoch(known.partitions, each) for each in asked)

    def _hold(self, now: float) -> float:
        """The end of a doubt that begins now. Drops old ones if all have ended."""
        if now >= self._last:
            self._leaderless.clear()
            self._told.clear()
            self._epochs.clear()
        self._last = now + HOLD_S
        return self._last


def _is_newly_leaderless(
    before: Picture, topic: str, state: UpdateMetadataPartitionState, live: set[int]
) -> bool:
    """A leader that is not registered counts as none: clients are not told of it."""
    if state.leader in live or state.leader == LEADER_IS_DELETED:
        return False
    known = before.partition(topic, state.partition_index)
    return known is None or known.leader in before.brokers


def _may_be_led_by(before: Picture, topic: PicturedTopic, brokers: set[int]) -> bool:
    """Whether one of them has a replica of a partition without a leader."""
    states = topic.partitions.values()
    return any(s.leader not in before.brokers and not brokers.isdisjoint(s.replicas) for s in states)


def _epoch(partitions: Mapping[int, UpdateMetadataPartitionState], partition: int) -> int:
    known = partitions.get(partition)
    return NO_EPOCH if known is None else known.leader_epoch


def _leaders(picture: Picture, topic: PicturedTopic, partition: int | None) -> frozenset[int]:
    """Of one partition or of all (cached in the picture); with `NO_LEADER` if a leader is not registered."""
    if partition is not None:
        state = topic.partitions.get(partition)
        return frozenset() if state is None else _with_none(picture, {state.leader})
    known = picture.described.get((None, topic.name))
    if known is None:
        leaders = {state.leader for state in topic.partitions.values()}
        known = picture.described[None, topic.name] = _with_none(picture, leaders)
    found: frozenset[int] = known
    return found


def _with_none(picture: Picture, leaders: set[int]) -> frozenset[int]:
    return frozenset(leaders if leaders <= picture.brokers.keys() else leaders | {NO_LEADER})
