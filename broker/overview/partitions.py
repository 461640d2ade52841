"""The partitions that this broker leads, with its view of each follower; and facts about the broker itself.

Values that change although nothing happens are rounded, so that the page of an idle cluster does not change.
Left to others: which partitions a page shows (web/api_partitions.py).
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ...base.types import TopicPartition
from ...protocol.errors import InvalidRequest
from ...replication.isr import Settled
from ..replicas.isr_notes import follower_values

if TYPE_CHECKING:
    from ...replication.leader import Leader
    from ..context import BrokerContext
    from ..replicas.partition import Partition

PARTITIONS_MAX = 5_000  # in one question
RECENTLY_S = 2.0  # followers fetch twice a second at least: not worth telling


def partitions_in(asked: Mapping[str, Any]) -> list[TopicPartition]:
    """The partitions of a question, as `[topic, number]` pairs. Raises InvalidRequest."""
    pairs = asked.get("partitions", [])
    if not isinstance(pairs, list) or len(pairs) > PARTITIONS_MAX:
        raise InvalidRequest(f"expected a list of at most {PARTITIONS_MAX} partitions")
    return [TopicPartition(str(topic), int(number)) for topic, number in pairs]


def broker_facts(broker: "BrokerContext") -> dict[str, Any]:
    """The broker as a whole. `suspected` is known on the controller only."""
    view = broker.controller.view
    return {
        "incarnation": broker.incarnation,
        "zookeeper": broker.controller.is_informed,
        "controller": None if view is None else view.controller_epoch,
        "suspected": [] if view is None else sorted(each for each in view.brokers if view.is_suspected(each)),
        "web": broker.web,
        "may_create": broker.config.web.create_topics,
    }


def led_rows(broker: "BrokerContext", partitions: Iterable[TopicPartition]) -> list[dict[str, Any]]:
    """Those of these partitions that this broker leads."""
    now = broker.shared.loop.time()
    rows = []
    for tp in partitions:
        partition = broker.replicas.find(tp)
        if partition is not None and partition.leading is not None:
            rows.append(_led(partition, partition.leading, now))
    return rows


def _led(partition: "Partition", leader: "Leader", now: float) -> dict[str, Any]:
    isr = leader.isr
    others = sorted((frozenset(leader.replicas) | isr.must_ack) - {leader.me})
    return {
        "topic": partition.tp.topic,
        "partition": partition.tp.partition,
        "epoch": leader.epoch,
        "isr": sorted(isr.members),
        "proposed": None if isinstance(isr, Settled) else sorted(isr.proposed),
        "min_isr": leader.min_isr,
        "under_min_isr": leader.under_min_isr,
        "recovering": partition.recovering,
        "full": partition.full,
        "start": partition.log.start_offset,
        "end": leader.end_offset,
        "watermark": partition.high_watermark,
        "stable": partition.last_stable_offset,
        "followers": [_follower(leader, broker, now) for broker in others],
    }


def _follower(leader: "Leader", broker: int, now: float) -> dict[str, Any]:
    """`caught_up_s`: whole seconds since it had everything; 0 for a moment ago, None for never."""
    known = follower_values(leader, broker, now)  # type: ignore[arg-type]
    ago = known["caught_up_ago_s"]
    has_all = known["has_fetched"] and known["behind"] == 0
    recently = has_all or (ago is not None and ago < RECENTLY_S)
    return {
        "broker": broker,
        "end": known["end"] if known["has_fetched"] else None,
        "lag": known["behind"] if known["has_fetched"] else None,
        "caught_up_s": 0 if recently else None if ago is None else int(ago),
        "in_isr": known["in_isr"],
        "registered": known["registered"],
    }


def bounds(broker: "BrokerContext", partitions: Iterable[TopicPartition]) -> list[list[Any]]:
    """`[topic, partition, log start, high watermark]` of those that this broker leads, for groups' lag."""
    rows: list[list[Any]] = []
    for tp in partitions:
        partition = broker.replicas.find(tp)
        if partition is not None and partition.leading is not None:
            rows.append([*tp, partition.log.start_offset, partition.high_watermark])
    return rows
