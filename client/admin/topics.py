"""Creates, grows and deletes topics, for `Admin`: asks the controller until it is done or the time is over.

If the first answer was lost, a creation that then finds its topic counts as done; so does a deletion that
finds none. A controller that does not finish in time answers REQUEST_TIMED_OUT, which is no network error: it
goes on with the work.
Left to others: the requests (admin.py), how often to try (network/cluster.py).
"""

from collections.abc import Callable, Iterable
from typing import Any

from ...protocol.errors import ApiError, ErrorCode, NetworkException, error_for
from ..network.cluster import Cluster

Request = Callable[[int], Any]  # made for each attempt, from the milliseconds that the controller has
Results = Callable[[Any], Iterable[Any]]


async def change(
    cluster: Cluster,
    request: Request,
    results: Results,
    deadline: float,
    done_already: ErrorCode | None = None,
) -> list[Any]:
    """Ask until nothing is refused, and return the last results. `done_already` counts as done if an earlier
    attempt may have worked."""
    is_uncertain = False
    late: ApiError | None = None  # a broker's own answer tells more than a last attempt that was cut short

    told: list[Any] = []

    async def attempt() -> ApiError | None:
        nonlocal is_uncertain, late, told
        controller, asked = cluster.view.controller_id, request(cluster.patience_ms(deadline))
        try:
            if controller in cluster.view.brokers:
                answer = await cluster.request(controller, asked, deadline)
            else:
                answer = await cluster.ask_any(asked, deadline)
        except (OSError, ApiError):
            is_uncertain = True
            raise
        told = list(results(answer))
        refusals = [one for one in told if one.error_code]
        if is_uncertain:
            refusals = [one for one in refusals if one.error_code != done_already]
        if not refusals:
            return None
        refusal = error_for(refusals[0].error_code, refusals[0].error_message or refusals[0].name)
        if any(one.error_code == ErrorCode.REQUEST_TIMED_OUT for one in refusals):
            is_uncertain, late = True, refusal
        if refusal.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return refusal  # the controller knows every topic: asking again would not help
        raise refusal

    try:
        refusal = await cluster.persist(attempt, deadline)
    except NetworkException:
        if late is None:
            raise
        refusal = late
    if refusal is not None:
        raise refusal
    return told
