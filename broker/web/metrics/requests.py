"""Requests and connections: counts, errors, how long they take and where.

Quantiles are of the last minute or so, as far as it was scraped; histograms count since the start.
Left to others: taking the times (broker/network/timings.py), the format (page.py).
"""

from collections import Counter, deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ....protocol.apis import APIS, Api
from ....protocol.errors import ErrorCode
from ...fetch.parked import ParkedFetch
from ...handlers.produce import PendingProduce
from ...network.admission import Admission
from ...network.metrics import Metrics
from ...network.timings import BUCKETS, RequestTimes, Timings
from ..view import View
from . import declared as m
from .page import Page, quantiles_of

if TYPE_CHECKING:
    from ...context import BrokerContext

WINDOW_S, SNAPSHOT_EVERY_S = 60.0, 10.0
CONSUMER, FOLLOWER = "FetchConsumer", "FetchFollower"
IN_PHASES = ("Produce", CONSUMER, FOLLOWER)

Snapshot = dict[tuple[str, str], list[int]]  # by request and phase


def name_of(api: Api) -> str:
    """Kafka's name of a request."""
    return APIS[api].request.__name__.removesuffix("Request") if api in APIS else f"Api{int(api)}"


class Recent:
    """What durations were at earlier scrapes, so that quantiles can be told of the time since."""

    def __init__(self) -> None:
        self._snapshots: deque[tuple[float, Snapshot]] = deque()

    def since(self, now: float, counts: Snapshot) -> Snapshot:
        """What has been added within the window. At the first scrape: since the start."""
        kept = self._snapshots
        while len(kept) > 1 and kept[1][0] <= now - WINDOW_S:
            kept.popleft()
        before = kept[0][1] if kept else {}
        none = [0] * BUCKETS
        found = {
            key: [now_there - then for now_there, then in zip(all, before.get(key, none), strict=True)]
            for key, all in counts.items()
        }
        if not kept or now - kept[-1][0] >= SNAPSHOT_EVERY_S:
            kept.append((now, counts))
        return found


def requests(view: View, page: Page, recent: Recent, now: float) -> Iterator[None]:
    """How long requests take, by API; and flushes, whose times are kept beside."""
    timings = view.timings
    if timings is None:
        return
    named = list(_named(timings))
    counts: Snapshot = {
        (name, phase): list(all) for name, times in named for phase, (all, _) in times.phases().items()
    }
    counts["", "flush"] = list(timings.flushes.counts)
    lately = recent.since(now, counts)
    for name, times in named:
        for phase, (all, sum_ns) in times.phases().items():
            page.summary(
                m.TIMES[phase], sum(all), sum_ns / 1e6, quantiles_of(lately[name, phase]), request=name
            )
            if name in IN_PHASES:
                page.histogram(m.REQUEST_S, all, sum_ns / 1e9, request=name, phase=phase)
        yield
    flushes = timings.flushes
    total_ms = flushes.sum_ns / 1e6
    page.summary(m.FLUSHES, sum(flushes.counts), total_ms, quantiles_of(lately["", "flush"]))
    page.histogram(m.FLUSH_S, flushes.counts, flushes.sum_ns / 1e9)


def _named(timings: Timings) -> Iterator[tuple[str, RequestTimes]]:
    for api, times in sorted(timings.items()):
        yield CONSUMER if api == Api.FETCH else name_of(api), times
    yield FOLLOWER, timings.of_followers


def calls(metrics: Metrics, page: Page) -> Iterator[None]:
    """Requests by API and version."""
    counts: Counter[tuple[str, int]] = Counter()
    for each in metrics.calls:
        counts[CONSUMER if each.api == Api.FETCH else name_of(each.api), each.version] += each.count
    for version, count in metrics.follower_fetches.items():
        counts[CONSUMER, version] -= count
        counts[FOLLOWER, version] += count
    for (name, version), count in sorted(counts.items()):
        if count:
            page.put(m.REQUESTS, count, request=name, version=version)
    yield


def errors(broker: "BrokerContext", page: Page) -> Iterator[None]:
    """Errors that were answered."""
    failed: Counter[Api] = Counter()
    for (api, code), count in sorted(broker.metrics.errors.items()):
        failed[api] += count
        page.put(m.ERRORS, count, request=name_of(api), error=_error_name(code))
    page.put(m.FAILED_PRODUCES, failed[Api.PRODUCE])
    page.put(m.FAILED_FETCHES, failed[Api.FETCH])
    yield


def _error_name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)


def waiting(broker: "BrokerContext", page: Page) -> Iterator[None]:
    """What waits in the purgatory."""
    kinds = Counter({"Produce": 0, "Fetch": 0, "Other": 0})
    for number, waiter in enumerate(broker.shared.deadlines.waiting(), 1):
        if isinstance(waiter, PendingProduce):
            kinds["Produce"] += 1
        else:
            kinds["Fetch" if isinstance(waiter, ParkedFetch) else "Other"] += 1
        if number % 1000 == 0:
            yield
    for kind, count in kinds.items():
        page.put(m.PURGATORY, count, delayedOperation=kind)


def connections(view: View, page: Page) -> Iterator[None]:
    """Connections by listener and by type, and what passes through them."""
    admission = view.admission
    if admission is None:
        return
    by_listener, by_type = _counted(admission)
    for name, count in sorted(by_listener.items()):
        page.put(m.CONNECTIONS, count, listener=name, networkProcessor=0)
    broker = view.broker
    by_type["controller"] = 0 if broker is None else broker.controller.channel_count
    by_type["web"] = view.connections
    for kind, count in by_type.items():
        page.put(m.CONNECTIONS_OF, count, type=kind)
    counts = admission.metrics
    page.put(m.OPENED, counts.connections_opened)
    page.put(m.CLOSED, counts.connections_closed)
    page.put(m.EXPIRED, counts.deadlines_passed)
    page.put(m.MALFORMED, counts.malformed)
    page.put(m.NETWORK_IN, counts.bytes_in)
    page.put(m.NETWORK_OUT, counts.bytes_out)
    page.put(m.PAUSED, counts.reading_paused)
    page.put(m.REQUEST_MEMORY, admission.intake.bytes)
    page.put(m.REQUESTS_WAITING, admission.intake.waiting)
    yield


def _counted(admission: Admission) -> tuple[Counter[str], Counter[str]]:
    by_listener = Counter({endpoint.listener: 0 for endpoint in admission.config.endpoints})
    by_type = Counter({"clients": 0, "brokers": 0})
    for connection in admission.connections:
        by_listener[connection.listener.name] += 1
        by_type["brokers" if connection.listener.internal else "clients"] += 1
    return by_listener, by_type
