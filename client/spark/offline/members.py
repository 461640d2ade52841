"""Which partitions a read of closed logs has, and which replicas are of the topic that is meant.

No file in a log directory says how many partitions a topic has. Checkpoints and the directories of other
brokers may tell of more than there are folders; what they do not tell of is not seen.
Topic ids tell a topic from one that had its name before. A log without one (`partition.metadata` is missing,
or Kafka before 2.8) may be of either: epochs begin anew with a topic, so equal histories prove nothing.
Left to others: what the replicas prove (storage/offline/proof.py), the read itself (planning.py).
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from uuid import UUID

from ....base.types import TopicPartition
from ....protocol.primitives import NO_UUID
from ....storage.log.checkpoints import PARTITION_METADATA
from ....storage.offline.directories import ClosedDirectories, ClosedReplica
from .. import plan
from ..option_values import Topics
from ..options import SourceOptions
from .reading import tell_once

INTERNAL = frozenset({"__consumer_offsets", "__transaction_state", "__cluster_metadata"})
LISTED_MAX = 10

Replicas = Mapping[TopicPartition, Sequence[ClosedReplica]]


# ------------------------------------------------------------ partitions


def selected(options: SourceOptions, found: ClosedDirectories) -> list[TopicPartition]:
    """The partitions to read. One that is known and not here is an error: its broker was forgotten."""
    only = options.closed.replica if options.closed is not None else None
    there: dict[str, list[int]] = {}
    for tp, brokers in found.partitions.items():
        if only is None or only in brokers:
            there.setdefault(tp.topic, []).append(tp.partition)
    chosen = plan.select(options.topics, there, INTERNAL)
    absent = absent_of(options.topics, found, chosen)
    if only is None and options.fail_on_data_loss and absent:
        raise plan.PlanError(
            f"{_listed(absent)}: add the log directories of their brokers, "
            "or name those to be read with assign"
        )
    return chosen


def absent_of(
    topics: Topics, found: ClosedDirectories, chosen: Collection[TopicPartition]
) -> dict[str, list[int]]:
    """By topic, the partitions that something here tells of, and that are not to be read."""
    if topics.partitions:
        return {}
    known, here = dict[str, int](), set(chosen)
    for tp in (*found.partitions, *found.named):
        known[tp.topic] = max(tp.partition, known.get(tp.topic, 0))
    meant = {tp.topic for tp in plan.select(topics, {name: [0] for name in known}, INTERNAL, missing_ok=True)}
    missing = {
        topic: [n for n in range(known[topic] + 1) if TopicPartition(topic, n) not in here]
        for topic in sorted(meant)
    }
    return {topic: numbers for topic, numbers in missing.items() if numbers}


def tell_absent(options: SourceOptions, found: ClosedDirectories, chosen: Collection[TopicPartition]) -> None:
    """Tell which partitions are not read, and that there may be more."""
    if options.topics.partitions:
        return
    absent = absent_of(options.topics, found, chosen)
    if absent:
        tell_once(
            "partitions_not_read",
            partitions=_listed(absent),
            reason="no directory that is read has a replica of them",
        )
    highest: dict[str, int] = {}
    for tp in chosen:
        highest[tp.topic] = max(tp.partition, highest.get(tp.topic, 0))
    tell_once(
        "partition_count_not_known",
        highest=_shortened(f"{topic}-{number}" for topic, number in sorted(highest.items())),
        reason="no file in a log directory says how many partitions a topic has: further ones, and topics, "
        "of which these directories have no replica are not seen",
    )


# ------------------------------------------------------------ replicas


def of_one_topic(options: SourceOptions, replicas: Replicas) -> tuple[dict[str, UUID], Replicas]:
    """The id of each topic, NO_UUID if it has none; and the replicas of it. PlanError if ids differ."""
    only = options.closed.replica if options.closed is not None else None
    ids = topic_ids(replicas, only)
    refused = only is None and options.fail_on_data_loss
    same = {tp: _of_this_id(tp, ids[tp.topic], listed, refused) for tp, listed in replicas.items()}
    for topic in sorted(topic for topic, each in ids.items() if each == NO_UUID):
        brokers = {each.broker for tp, listed in same.items() if tp.topic == topic for each in listed}
        if len(brokers) > 1:
            tell_once(
                "topic_without_id",
                topic=topic,
                brokers=", ".join(map(str, sorted(brokers))),
                reason=f"no replica has {PARTITION_METADATA}: if the topic was deleted and created again "
                "while one of these brokers was down, its log is of another topic, and nothing tells",
            )
    return ids, same


def _of_this_id(
    tp: TopicPartition, topic_id: UUID, replicas: Sequence[ClosedReplica], refused: bool
) -> list[ClosedReplica]:
    """The replicas with this id. One without any is refused, or left out and told, if it has records."""
    wanted = None if topic_id == NO_UUID else topic_id
    same = [each for each in replicas if each.topic_id == wanted]
    for each in replicas:
        if each.topic_id is None and wanted is not None and each.facts.epochs:
            doubt = (
                f"{each.directory} has no topic id ({PARTITION_METADATA} is missing), and others of "
                f"{tp.topic} have {topic_id}: nothing tells whether it is of this topic, or of one that had "
                "the name before"
            )
            if refused:
                raise plan.PlanError(
                    f"{doubt}. Leave the directory out, read one broker with the option replica, or set "
                    "failOnDataLoss=false, which leaves this replica out"
                )
            tell_once("replica_left_out", partition=str(tp), broker=each.broker, reason=doubt)
    return same


def topic_ids(replicas: Replicas, only: int | None) -> dict[str, UUID]:
    """The id of each topic; PlanError if replicas differ. With `only`, this broker's id counts."""
    found: dict[str, dict[UUID, ClosedReplica]] = {}
    for tp, listed in replicas.items():
        known = found.setdefault(tp.topic, {})
        for each in listed:
            if each.topic_id is not None and only in (None, each.broker):
                known.setdefault(each.topic_id, each)
    for topic, known in found.items():
        if len(known) > 1:
            differing = ", ".join(f"{each.directory} has {topic_id}" for topic_id, each in known.items())
            raise plan.PlanError(
                f"topic {topic} was deleted and created again, its ids differ: {differing}; leave out the "
                "directories of one of them, or read one broker with the option replica"
            )
    return {topic: next(iter(known), NO_UUID) for topic, known in found.items()}


def _listed(absent: Mapping[str, Sequence[int]]) -> str:
    return _shortened(
        f"{topic} lacks partitions {', '.join(map(str, numbers))}" for topic, numbers in absent.items()
    )


def _shortened(names: Iterable[str]) -> str:
    every = list(names)
    more = len(every) - LISTED_MAX
    return ", ".join(every[:LISTED_MAX]) + (f" and {more} more" if more > 0 else "")
