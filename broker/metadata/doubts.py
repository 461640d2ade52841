"""What this broker knows better than its picture of the cluster, and until when that is worth waiting for.

A client that is told of a dead leader, or of none, does not ask again at once: it sleeps, for a second with
some. So an answer that would be drawn from a doubtful part of the picture is held back until the controller
has spoken. Each doubt begins with an event and ends `HOLD_S` later at the latest, however often clients ask:
a partition that stays without a leader delays nobody. To doubt in vain costs no more than that wait.
A process that dies closes its connections one by one: a client may ask before ours has broken. So who asks
anew waits `GLANCE_S` although nothing is doubtful, if the answer names a leader whose end we would notice.
Pure: times are the loop's.
Left to others: the answers that wait (held_answers.py), the picture (cache.py).
"""

from collections.abc import Iterable, Mapping

from ...base.types import NO_LEADER, BrokerId, TopicPartition
from ...protocol.messages.control import UpdateMetadataPartitionState, UpdateMetadataRequest
from .cache import LEADER_IS_DELETED, Picture, PicturedTopic

HOLD_S = 0.5
GLANCE_S = 0.03  # from the first connection of a dying broker that breaks to ours, and some
PAST = 0.0  # the answer "not at all" to "until when"
NO_EPOCH = -1


class Doubts:
    """What may be wrong in the picture: a leader out of reach, an old epoch, a topic or a leader to come."""

    def __init__(self, now: float) -> None:
        """A broker that begins has no picture yet, and expects one."""
        self._begun_until = self._last = now + HOLD_S
        self._lost: dict[BrokerId, float] = {}
        self._reached: set[BrokerId] = set()  # whose end we would notice
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

    def back(self, broker: BrokerId) -> bool:
        """We are connected to this broker. Whether that ends a doubt."""
        self._reached.add(broker)
        return self._lost.pop(broker, None) is not None

    def left(self, broker: BrokerId) -> None:
        """We are connected to this broker no more, for we want nothing of it."""
        self._reached.discard(broker)

    def glance(self, now: float) -> "Doubts":
        """As if whoever we are connected to might be lost: until when is that worth a wait?"""
        glance = Doubts(now - HOLD_S)
        glance._lost = dict.fromkeys(self._reached, now + GLANCE_S)
        glance._last = now + GLANCE_S
        return glance

    def told(self, partition: TopicPartition, epoch: int, now: float) -> None:
        """The controller has told us of this leader epoch. All others hear of it with the next picture."""
        self._told[partition.topic] = self._hold(now)
        self._epochs.setdefault(partition.topic, {})[partition.partition] = epoch

    def creating(self, topic: str, now: float) -> None:
        """The controller is being asked to make this topic. Counts once, until it is `created`."""
        if topic not in self._creating:
            self._creating[topic] = self._hold(now)

    def created(self, topic: str) -> bool:
        """The controller has answered, be it with a refusal. Whether that ends a doubt."""
        return self._creating.pop(topic, None) is not None

    def pictured(self, before: Picture, update: UpdateMetadataRequest, now: float) -> None:
        """The controller has spoken. A partition that has no leader from now on may soon have another.

        So may one that has had none for long, when a broker that has a replica of it has come.
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

    # Questions. Each is answered with the time until which an answer is worth holding back, or with `PAST`.

    def until(self, picture: Picture, topics: Iterable[str], now: float) -> float:
        """Of an answer about these topics."""
        if now >= self._last:
            return PAST
        if not picture.brokers:
            return self._begun_until
        return max((self._until_of(picture, topic, now) for topic in topics), default=PAST)

    def until_of_all(self, picture: Picture, now: float) -> float:
        """Of an answer about whatever there is."""
        return self.until(picture, picture.topics, now)

    def until_of_partition(self, picture: Picture, tp: TopicPartition, now: float) -> float:
        """Of an answer about one partition."""
        if now >= self._last:
            return PAST
        if not picture.brokers:
            return self._begun_until
        return self._until_of(picture, tp.topic, now, tp.partition)

    def until_of_cluster(self, picture: Picture, now: float) -> float:
        """Of an answer about the brokers and which of them is the controller."""
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
        """Whether we were told of a newer epoch than the picture has."""
        told = self._epochs[known.name]
        asked = told if partition is None else told.keys() & {partition}
        return any(told[each] > _epoch(known.partitions, each) for each in asked)

    def _hold(self, now: float) -> float:
        """The end of a doubt that begins now. What is long past is forgotten on the way."""
        if now >= self._last:
            self._leaderless.clear()
            self._told.clear()
            self._epochs.clear()
        self._last = now + HOLD_S
        return self._last


def _is_newly_leaderless(
    before: Picture, topic: str, state: UpdateMetadataPartitionState, live: set[int]
) -> bool:
    """A leader that is not registered is told to nobody: it is none, as in the first picture of a start."""
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
    """Of one partition or of all, found once for each picture; with `NO_LEADER` if one is not registered."""
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
