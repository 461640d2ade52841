"""`/metrics`: gathers a page in slices of a few milliseconds, so that the broker serves in between.

One page is made at a time. Who asks within PAGE_S of one gets that one, so many scrapers, or one that asks
without a pause, cost little more than one scrape. Prometheus's own client tells of the process (CPU, memory,
descriptors, garbage collection).
Left to others: what is gathered (cluster.py, replicas.py, requests.py, coordinators.py), names and types
(declared.py).
"""

import asyncio
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from prometheus_client import GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.registry import CollectorRegistry

from ...handlers.log_dirs import volumes
from ...network.timings import TicksNs
from ..answer import Answer, Asked
from ..view import View
from . import cluster, coordinators, replicas, requests
from . import declared as m
from .page import OPEN_METRICS, TEXT, Page, heading, labels_text

if TYPE_CHECKING:
    from ...context import BrokerContext

SLICE_NS = 2_000_000  # the event loop is not kept for longer, as far as a step goes
PAGE_S = 0.5
VOLUMES_S = 0.2  # for the file systems; of one that hangs the last sizes are told


async def metrics(view: View, asked: Asked) -> Answer:
    """All metrics, as text or as OpenMetrics."""
    if view.exposition is None:
        view.exposition = Exposition(view)
    exposition = view.exposition
    assert isinstance(exposition, Exposition)
    is_open = wants_open_metrics(asked.accept)
    return Answer(await exposition.page(is_open), OPEN_METRICS if is_open else TEXT)


def wants_open_metrics(accept: str) -> bool:
    """Whether a client that accepts this reads OpenMetrics. Prometheus does, and prefers it."""
    for part in accept.split(","):
        name, *parameters = (each.strip() for each in part.split(";"))
        if name == "application/openmetrics-text":
            return not any(each.replace(" ", "") in ("q=0", "q=0.0") for each in parameters)
    return False


class Exposition:
    """The scrapes of one broker."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._loop = asyncio.get_running_loop()
        self._recent = requests.Recent()
        self._busy = asyncio.Lock()
        self._made_at = float("-inf")
        self._page = Page()
        self._written: dict[bool, bytes] = {}
        timings = view.timings
        self._ticks_ns: TicksNs = self._loop_ns if timings is None else timings.ticks_ns
        self._registry = CollectorRegistry()
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self._registry)
        self._volumes: Mapping[str, tuple[int, int]] = {}
        self._asking: asyncio.Future[Mapping[str, tuple[int, int]]] | None = None

    async def page(self, is_open: bool) -> bytes:
        """The page, at most PAGE_S old."""
        async with self._busy:
            if self._loop.time() - self._made_at > PAGE_S:
                self._page = await self._gathered()
                self._made_at = self._loop.time()
                self._written.clear()
            if is_open not in self._written:
                pieces: list[bytes] = []
                await self._in_slices(self._write(is_open, pieces))
                self._written[is_open] = b"".join(pieces)
            return self._written[is_open]

    def _write(self, is_open: bool, pieces: list[bytes]) -> Iterator[None]:
        for piece in self._page.written(is_open):
            pieces.append(piece)
            yield
        pieces += _of_process(self._registry, is_open)
        if is_open:
            pieces.append(b"# EOF\n")

    def _loop_ns(self) -> int:
        return int(self._loop.time() * 1e9)

    async def _gathered(self) -> Page:
        view, page, began = self._view, Page(), self._ticks_ns()
        await self._in_slices(cluster.process(view, page))
        await self._in_slices(requests.connections(view, page))
        if view.admission is not None:
            await self._in_slices(requests.calls(view.admission.metrics, page))
        await self._in_slices(requests.requests(view, page, self._recent, self._loop.time()))
        broker = view.broker
        if broker is not None:
            await self._ask_volumes(broker)
            await self._in_slices(self._of_broker(broker, page))
        page.put(m.SCRAPE, round((self._ticks_ns() - began) / 1e9, 6))
        return page

    def _of_broker(self, broker: "BrokerContext", page: Page) -> Iterator[None]:
        each_max = broker.config.web.metrics_partitions_max
        yield from replicas.replicas(broker, page, each_max)
        yield from replicas.disks(broker, page, self._volumes)
        yield from requests.errors(broker, page)
        yield from requests.waiting(broker, page)
        yield from coordinators.groups(broker, page, each_max)
        yield from coordinators.transactions(broker, page)
        yield from cluster.controller(broker, page, each_max)

    async def _in_slices(self, steps: Iterator[None]) -> None:
        until = self._ticks_ns() + SLICE_NS
        for _ in steps:
            if self._ticks_ns() >= until:
                await asyncio.sleep(0)
                until = self._ticks_ns() + SLICE_NS

    async def _ask_volumes(self, broker: "BrokerContext") -> None:
        """Sizes of the file systems, from a thread: one that hangs must not hold up more than a moment."""
        if self._asking is None:
            logs = broker.logs
            self._asking = self._loop.run_in_executor(None, volumes, logs.disk, logs.places.usable)
        done, _ = await asyncio.wait((self._asking,), timeout=VOLUMES_S)
        if done:
            asked, self._asking = self._asking, None
            self._volumes = asked.result()


def _of_process(registry: CollectorRegistry, is_open: bool) -> Iterator[bytes]:
    """What prometheus_client tells of this process."""
    for family in registry.collect():
        name = f"{family.name}_total" if family.type == m.Kind.COUNTER else family.name
        lines = [f"{each.name}{labels_text(each.labels)} {each.value}\n" for each in family.samples]
        yield heading(name, family.type, family.documentation, is_open) + "".join(lines).encode()
