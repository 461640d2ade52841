"""Which handler serves which (API, version) on a listener: one dictionary look-up per request.

A version that is not served is absent; so is, on a client listener, an API that only brokers may use.
Left to others: the table itself (handlers/table.py), frames and answers in order (connection.py).
"""

from collections.abc import Iterator, Mapping
from inspect import iscoroutinefunction
from typing import Any

from ...base.tasks import Tasks
from ...base.values import dataclass
from ...protocol.apis import APIS, Api, ApiSpec
from .exchange import Handler, HandlerEntry, Refuse
from .metrics import Calls

ADMINISTRATION = frozenset(
    {
        Api.CREATE_TOPICS, Api.DELETE_TOPICS, Api.CREATE_PARTITIONS, Api.DESCRIBE_CONFIGS, Api.ALTER_CONFIGS,
        Api.INCREMENTAL_ALTER_CONFIGS, Api.ALTER_PARTITION_REASSIGNMENTS, Api.LIST_PARTITION_REASSIGNMENTS,
        Api.ELECT_LEADERS, Api.UPDATE_FEATURES,
    }
)  # fmt: skip
"""Requests that change ZooKeeper in one write or not at all. An unexpected exception leaves nothing half
done, so it is the answer; ending the broker would have the next controller meet the same request.
Why: docs/decisions/0070-a-question-of-an-administrator-ends-no-broker.md"""


@dataclass(frozen=True, slots=True)
class Route:
    """Everything needed to serve one version of one API. No tuple: each request reads all of its fields."""

    api: Api
    version: int
    request: type
    handle: Handler[Any]
    refuse: Refuse
    is_coroutine: bool
    survives: bool  # an unexpected exception of its handler is told to who asked, and ends nothing
    calls: Calls


def route_key(api_key: int, version: int) -> int:
    """The first four bytes of a request header as a number."""
    return api_key << 16 | version


def versions_served(spec: ApiSpec, internal: bool) -> Iterator[int]:
    """The versions that this kind of listener serves, in order, each once."""
    served = set(spec.served)
    if internal and spec.internal is not None:
        served |= set(spec.internal)
    return iter(sorted(served))


def routes(internal: bool, handlers: Mapping[Api, HandlerEntry[Any]]) -> dict[int, Route]:
    """What is served on a listener, by `route_key`."""
    found = {}
    for api, entry in handlers.items():
        is_coroutine = iscoroutinefunction(entry.handle)
        for version in versions_served(APIS[api], internal):
            found[route_key(api, version)] = Route(
                api, version, APIS[api].request, entry.handle, entry.refuse, is_coroutine,
                is_coroutine and api in ADMINISTRATION, Calls(api, version),
            )  # fmt: skip
    return found


class Service:
    """What executes the requests of all connections: routes, the broker behind them, tasks for coroutines."""

    __slots__ = ("broker", "calls", "routes", "tasks")

    def __init__(self, handlers: Mapping[Api, HandlerEntry[Any]], tasks: Tasks) -> None:
        self.routes = {internal: routes(internal, handlers) for internal in (False, True)}
        self.tasks = tasks
        self.calls = [route.calls for table in self.routes.values() for route in table.values()]
        self.broker: Any  # what handlers work on, once the server is open; not looked into here
