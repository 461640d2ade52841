"""One question about many partitions, sent to each leader; those whose leader moved are asked again.

`ask_leaders` retries until all have answered. `ask_briefly` returns what leaders can answer now, `ask_once`
makes one attempt.
Left to others: what is asked, and what an answer says (consumer/offsets.py, admin/record_deletion.py).
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ...base.types import TopicPartition
from ...protocol.errors import (
    ApiError,
    ErrorCode,
    LeaderNotAvailable,
    NetworkException,
    UnknownTopicOrPartition,
    error_for,
)
from .cluster import Cluster, telling

T = TypeVar("T")

BRIEF_TRIES = 2  # a leader may just have moved


@dataclass(frozen=True, slots=True)
class Question(Generic[T]):
    """How to ask one leader about some partitions, and how to read its answer."""

    request: Callable[[Mapping[TopicPartition, int]], Any]
    """From what is wanted of each partition."""
    results: Callable[[Any], Iterable[tuple[TopicPartition, int, T]]]
    """Partition, error code and result."""


async def ask_leaders(
    cluster: Cluster, wanted: Mapping[TopicPartition, int], question: Question[T], deadline: float
) -> dict[TopicPartition, T]:
    """A result for each partition. Raises an error that is not retriable, or at the deadline a `telling` one;
    UnknownTopicOrPartition soon if metadata lacks a partition."""
    for partition in wanted:
        if not await cluster.has(partition, deadline):
            raise UnknownTopicOrPartition(f"{TopicPartition(*partition)} does not exist")
    found: dict[TopicPartition, T] = {}
    before: ApiError | None = None
    attempt = 0
    while True:
        began = cluster.now()
        missing = {partition: what for partition, what in wanted.items() if partition not in found}
        trouble = await ask_once(cluster, missing, question, deadline, found)
        if len(found) == len(wanted):
            return found
        if trouble is not None and not trouble.retriable:
            raise trouble
        trouble = trouble or LeaderNotAvailable(", ".join(map(str, missing)))
        pause = cluster.pause(attempt)
        if cluster.now() + pause >= deadline:
            raise telling(trouble, before, deadline - began)
        before = trouble
        attempt += 1
        await asyncio.sleep(pause)


async def ask_briefly(
    cluster: Cluster, wanted: Mapping[TopicPartition, int], question: Question[T], deadline: float
) -> dict[TopicPartition, T]:
    """A result for each partition whose leader gives one now; the others are left out.

    A new leader may have to wait for a session to end before it knows its high watermark (decision 6), and a
    frozen one does not answer. Neither hides the answers of the others.
    """
    if cluster.track({partition.topic: None for partition in wanted}):
        with suppress(NetworkException):
            await cluster.refreshed(deadline)
    found: dict[TopicPartition, T] = {}
    for attempt in range(BRIEF_TRIES):
        missing = {partition: what for partition, what in wanted.items() if partition not in found}
        await ask_once(cluster, missing, question, deadline, found)
        pause = cluster.pause(attempt)
        if len(found) == len(wanted) or attempt + 1 == BRIEF_TRIES or cluster.now() + pause >= deadline:
            break
        await asyncio.sleep(pause)
    return found


async def ask_once(
    cluster: Cluster,
    wanted: Mapping[TopicPartition, int],
    question: Question[T],
    deadline: float,
    found: dict[TopicPartition, T],
) -> ApiError | None:
    """Ask every leader there is, once, and add the results to `found`. Returns an error met, if any,
    preferably one that is not retriable."""
    by_leader: dict[int, dict[TopicPartition, int]] = {}
    for partition, what in wanted.items():
        leader = cluster.leader(partition)
        if leader is not None:
            by_leader.setdefault(leader.leader, {})[partition] = what
    asked = [_ask(cluster, node, part, question, deadline, found) for node, part in by_leader.items()]
    troubles = [trouble for trouble in await asyncio.gather(*asked) if trouble is not None]
    fatal = [trouble for trouble in troubles if not trouble.retriable]
    return fatal[0] if fatal else (troubles[0] if troubles else None)


async def _ask(
    cluster: Cluster,
    node: int,
    wanted: Mapping[TopicPartition, int],
    question: Question[T],
    deadline: float,
    found: dict[TopicPartition, T],
) -> ApiError | None:
    epochs = {partition: cluster.view.epoch(partition) for partition in wanted}
    try:
        answer = await cluster.request(node, question.request(wanted), deadline)
    except OSError as lost:
        for partition, epoch in epochs.items():
            cluster.doubt(partition, node, epoch)
        return error_for(ErrorCode.NETWORK_EXCEPTION, str(lost))
    except ApiError as trouble:
        return trouble
    trouble_met: ApiError | None = None
    for partition, code, result in question.results(answer):
        if code:
            trouble_met = error_for(code, str(partition))
            cluster.doubt(partition, node, epochs.get(partition, -1))
        else:
            cluster.served(partition, node, epochs.get(partition, -1))
            found[partition] = result
    return trouble_met
