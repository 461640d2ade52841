"""Creates, grows and deletes topics, for `Admin`: asks the controller until it is done or the time is over.

What was done, or refused for good, is not asked for again: an answer may do some topics and put others off
(REQUEST_TIMED_OUT, THROTTLING_QUOTA_EXCEEDED). If the first answer was lost, a creation that then finds its
topic counts as done; so does a deletion that finds none, and a growth that finds as many partitions. A
controller that does not finish in time answers REQUEST_TIMED_OUT, which is no network error: it goes on with
the work.
Left to others: the requests (admin.py), how often to try (network/cluster.py).
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from ...base.types import TopicPartition
from ...protocol.errors import ApiError, ErrorCode, NetworkException, error_for
from ..network.cluster import Cluster

T = TypeVar("T")  # what is asked for one topic: its name, or what has one

Request = Callable[[list[T], int], Any]  # for each attempt: of what is left, and how long the controller has
Results = Callable[[Any], Iterable[Any]]
Look = Callable[[str], Awaitable[bool]]


async def _no_look(topic: str) -> bool:
    return True


async def change(
    cluster: Cluster,
    wanted: Sequence[T],
    request: Request[T],
    results: Results,
    deadline: float,
    done_already: ErrorCode | None = None,
    is_done: Look = _no_look,
) -> list[Any]:
    """Ask until each topic is done or refused; the results, or the first refusal. `done_already` counts as
    done for a topic that an earlier attempt may have done, if a look at it does not say otherwise."""
    done: dict[str, Any] = {}
    refused: dict[str, ApiError] = {}
    unsure: set[str] = set()
    late: ApiError | None = None  # a broker's own answer tells more than a last attempt that was cut short

    async def attempt() -> None:
        nonlocal late
        left = [one for one in wanted if _name(one) not in done and _name(one) not in refused]
        controller, asked = cluster.view.controller_id, request(left, cluster.patience_ms(deadline))
        try:
            if controller in cluster.view.brokers:
                answer = await cluster.request(controller, asked, deadline)
            else:
                answer = await cluster.ask_any(asked, deadline)
        except (OSError, ApiError):
            unsure.update(map(_name, left))
            raise
        put_off: ApiError | None = None
        for one in results(answer):
            again = one.error_code == done_already and one.name in unsure
            if not one.error_code or (again and await is_done(one.name)):
                done[one.name] = one
                continue
            refusal = error_for(one.error_code, one.error_message or one.name)
            if refusal.code == ErrorCode.REQUEST_TIMED_OUT:
                unsure.add(one.name)
                late = refusal
            # the controller knows every topic: to ask again for one that it does not know would not help
            if refusal.retriable and refusal.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                put_off = put_off or refusal
            else:
                refused[one.name] = refusal
        if put_off is not None:
            raise put_off

    trouble: ApiError | None = None
    try:
        await cluster.persist(attempt, deadline)
    except ApiError as failure:
        trouble = late if late is not None and isinstance(failure, NetworkException) else failure
    trouble = next(iter(refused.values()), trouble)
    if trouble is not None:
        raise trouble
    return [done[_name(one)] for one in wanted if _name(one) in done]


def has_grown(cluster: Cluster, counts: Mapping[str, int], deadline: float) -> Look:
    """Whether a topic has as many partitions as it was to have."""

    async def look(topic: str) -> bool:
        is_there = await cluster.has(TopicPartition(topic, counts[topic] - 1), deadline)
        return is_there and len(cluster.view.topics[topic].partitions) == counts[topic]

    return look


def _name(one: Any) -> str:
    return one if isinstance(one, str) else str(one.name)
