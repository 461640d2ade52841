"""Asks the cluster, once, where the partitions of a read begin and end.

One Metadata request, then one ListOffsets per leader and question: earliest, latest (the high watermark, or
the last stable offset for committed readers), and times if there are any.
Left to others: what follows from the answers (plan.py).
"""

from ...protocol.messages.offsets import EARLIEST, LATEST
from . import plan
from .client import SparkCluster
from .options import SourceOptions, Topics


def take(cluster: SparkCluster, options: SourceOptions) -> list[plan.Span]:
    """The spans to read, with fixed ends: later records are not in them."""
    partitions = plan.select(options.topics, _topics(cluster, options.topics))
    ids = {tp: cluster.view.topic_ids[tp.topic] for tp in partitions}  # from before anything else is asked
    earliest = cluster.list_offsets(dict.fromkeys(partitions, EARLIEST))
    latest = cluster.list_offsets(dict.fromkeys(partitions, LATEST))
    start_times = cluster.list_offsets(plan.times(options.start, partitions))
    end_times = cluster.list_offsets(plan.times(options.end, partitions))
    logs = {
        tp: plan.PartitionBounds(
            earliest=earliest[tp].offset,
            latest=latest[tp].offset,
            leader_epoch=latest[tp].epoch,
            start_by_time=start_times[tp].offset if tp in start_times else -1,
            end_by_time=end_times[tp].offset if tp in end_times else -1,
            topic_id=ids[tp],
        )
        for tp in partitions
    }
    return plan.split(plan.resolve(options, logs), options.partitions_min, options.partition_records_max)


def _topics(cluster: SparkCluster, topics: Topics) -> dict[str, list[int]]:
    """The topics' partitions. Missing topics are asked for again: not every broker may know a new one yet."""
    named = set(topics.names) | {tp.topic for tp in topics.partitions}
    for attempt in range(cluster.options.retries + 1):
        if attempt:
            cluster.sleep(cluster.options.retry_seconds)
        there = cluster.refresh(sorted(named) if topics.pattern is None else None)
        if named <= there.keys():
            break
    return there
