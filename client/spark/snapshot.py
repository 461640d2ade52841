"""Asks the cluster, once, where the partitions of a read begin and end.

One Metadata request, then one request per leader and question: earliest, latest (the high watermark, or the
last stable offset for committed readers), times and sizes if there is a use for them. A snapshot can be
written down as JSON, and a read of that reads the same records again, or says that they are gone.
Left to others: what follows from the answers (plan.py).
"""

import json
from collections.abc import Mapping, Sequence
from uuid import UUID

from ...base.logger import get_logger
from ...base.types import TopicPartition
from ...protocol.errors import ApiError
from ...protocol.messages.offsets import EARLIEST, LATEST
from . import plan
from .client import SparkCluster
from .leaders import ListedOffset, list_offsets, log_sizes
from .option_values import Topics
from .options import SourceOptions

log = get_logger(__name__)

FORMAT = "strandline.snapshot"


def take(cluster: SparkCluster, options: SourceOptions) -> list[plan.Span]:
    """The spans to read, with fixed ends: later records are not in them."""
    if options.snapshot.startswith("{"):
        return cut(cluster, options, of_json(options.snapshot))
    return cut(cluster, options, bounds(cluster, options))


def check(cluster: SparkCluster, options: SourceOptions) -> None:
    """Raise for topics that are not there, and bounds of such partitions, before anything is planned.

    Partitions without a bound are no trouble yet: a stream that goes on from its checkpoint needs none, and
    its topic may have grown since it began.
    """
    if options.snapshot.startswith("{"):
        of_json(options.snapshot)
        return
    partitions = plan.select(options.topics, topics_of(cluster, options.topics), cluster.view.internal)
    plan.check_named(options, partitions, all_of_them=False)


def bounds(cluster: SparkCluster, options: SourceOptions) -> list[plan.Span]:
    """One span for each partition that has something to read."""
    return plan.resolve(options, logs_of(cluster, options))


def logs_of(cluster: SparkCluster, options: SourceOptions) -> dict[TopicPartition, plan.PartitionBounds]:
    """The partitions to read, as their leaders have them."""
    partitions = plan.select(options.topics, topics_of(cluster, options.topics), cluster.view.internal)
    ids = {tp: cluster.view.topic_ids[tp.topic] for tp in partitions}  # from before anything else is asked
    earliest = list_offsets(cluster, dict.fromkeys(partitions, EARLIEST))
    latest = list_offsets(cluster, dict.fromkeys(partitions, LATEST))
    start_times = list_offsets(cluster, plan.times(options.start, partitions))
    end_times = list_offsets(cluster, plan.times(options.end, partitions))
    none = ListedOffset(-1, -1)
    return {
        tp: plan.PartitionBounds(
            earliest=earliest[tp].offset,
            latest=latest[tp].offset,
            leader_epoch=max(latest[tp].epoch, start_times.get(tp, none).epoch),
            start_by_time=start_times.get(tp, none).offset,
            end_by_time=end_times.get(tp, none).offset,
            topic_id=ids[tp],
        )
        for tp in partitions
    }


def cut(cluster: SparkCluster, options: SourceOptions, spans: Sequence[plan.Span]) -> list[plan.Span]:
    """The spans of tasks: the whole ones, split as the options ask."""
    density: Mapping[TopicPartition, float] | None = None
    if options.split_bytes is not None:
        try:
            density = densities(cluster, {span.partition for span in spans})
        except ApiError as trouble:  # of a topic that is gone, say: what becomes of that, the tasks will tell
            log.warning("not_split_by_bytes", reason=str(trouble))
    return plan.split(
        spans, options.partitions_min, options.partition_records_max, options.split_bytes, density
    )


def densities(cluster: SparkCluster, partitions: set[TopicPartition]) -> Mapping[TopicPartition, float]:
    """The bytes of one offset in each log, on average."""
    if not partitions <= cluster.view.leaders.keys():
        cluster.refresh({tp.topic for tp in partitions})
    sizes = log_sizes(cluster, partitions)
    earliest = list_offsets(cluster, dict.fromkeys(partitions, EARLIEST))
    latest = list_offsets(cluster, dict.fromkeys(partitions, LATEST))
    return {tp: sizes[tp] / max(1, latest[tp].offset - earliest[tp].offset) for tp in partitions}


def topics_of(cluster: SparkCluster, topics: Topics) -> dict[str, list[int]]:
    """The topics' partitions. Missing topics are asked for again: not every broker may know a new one yet."""
    named = set(topics.names) | {tp.topic for tp in topics.partitions}
    for attempt in range(cluster.options.retries + 1):
        if attempt:
            cluster.sleep(cluster.options.retry_seconds)
        there = known_topics(cluster, topics)
        if named <= there.keys():
            break
    return there


def known_topics(cluster: SparkCluster, topics: Topics) -> dict[str, list[int]]:
    """The partitions of those topics that one broker knows."""
    if topics.pattern is not None:
        return cluster.refresh(None)
    return cluster.refresh(sorted(set(topics.names) | {tp.topic for tp in topics.partitions}))


def to_json(spans: Sequence[plan.Span]) -> str:
    """The spans as text that `of_json` reads, and that option `snapshot` takes."""
    listed = [
        {
            "topic": span.partition.topic,
            "partition": span.partition.partition,
            "start": span.start,
            "end": span.end,
            "leaderEpoch": span.leader_epoch,
            "topicId": str(span.topic_id),
        }
        for span in spans
    ]
    return json.dumps({FORMAT: 1, "partitions": listed}, separators=(",", ":"))


def of_json(text: str) -> list[plan.Span]:
    """What `to_json` made; PlanError for anything else."""
    try:
        document = json.loads(text)
        if document[FORMAT] != 1:
            raise ValueError(f"version {document[FORMAT]} is not known")
        return [
            plan.Span(
                TopicPartition(str(each["topic"]), int(each["partition"])),
                int(each["start"]),
                int(each["end"]),
                int(each["leaderEpoch"]),
                UUID(each["topicId"]),
            )
            for each in document["partitions"]
        ]
    except (ValueError, KeyError, TypeError) as trouble:
        raise plan.PlanError(f"snapshot is not JSON of a snapshot: {trouble!r}") from trouble
