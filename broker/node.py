"""One broker, built from its parts and run: started in order, stopped in the reverse.

The world (disk, registry, clock, chance, boot id) is handed to `build`, so that the simulator runs this
file unchanged; `serve` hands in the real one. A stop is a controlled shutdown: leadership is handed over,
then listeners, fetchers and waiters end, logs are flushed and closed, the clean marker is written, the
session ends. What cannot be true (`fail`) ends the broker at once and leaves its files as they are.
Left to others: signals, exit status, the watchdog of the loop (cli/serve.py).
"""

import asyncio
import gc
import os
import resource
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from random import Random
from typing import Any
from uuid import UUID

import structlog

from ..client.clock import SystemClock
from ..client.tasks import Tasks
from ..controller.admin import Defaults
from ..controller.lifeline import Patience
from ..controller.registry import Registry, RegistryError
from ..controller.service import Controller, ControllerConfig
from ..protocol.errors import InvalidConfig
from ..protocol.kinds import Clock, TopicPartition
from ..storage.config import InvalidConfig as BadTopicConfig
from ..storage.config import TopicConfig
from ..storage.disk import Disk, RealDisk
from ..storage.incarnation import Incarnations
from ..storage.logs import Logs
from .config import BrokerConfig
from .context import Broker
from .disk_failures import DiskFailures
from .dispatch import HANDLERS
from .forward import Forwarder
from .groups import GroupCoordinator
from .metadata import Picture
from .metrics import Metrics
from .offsets_topic import OffsetsTopic
from .producer_ids import ProducerIds
from .registration import Registration, RegistryFactory, SessionKeeper, connect, lock_directories, unreachable
from .registries import Registries
from .replicas import Replicas
from .server import Server
from .shutdown import hand_over
from .trouble import BrokenInvariant, StartFailed
from .upkeep import Upkeep

__all__ = ["Node", "StartFailed", "build", "serve"]

log = structlog.get_logger(__name__)

BOOT_ID = "/proc/sys/kernel/random/boot_id"
CONNECTIONS_SHARE = 0.75  # of the open files that the system allows; the rest is for logs and peers


class Node:
    """A broker that can be started and stopped once."""

    def __init__(
        self,
        config: BrokerConfig,
        disk: Disk,
        registry: RegistryFactory,
        clock: Clock,
        random: Random,
        boot_id: str,
    ) -> None:
        self.config = config
        self.broker: Broker
        self.ports: dict[str, int] = {}
        self.failure: BaseException | None = None
        self._disk = disk
        self._registry_factory = registry
        self._clock = clock
        self._random = random
        self._boot_id = boot_id
        self._parts = AsyncExitStack()
        self._failed = asyncio.Event()
        self._stopping = False
        self._logs_untouched = True
        self.incarnations: Incarnations
        self._registration: Registration
        self._server: Server

    @property
    def is_ready(self) -> bool:
        """Whether the controller has told this broker about the cluster, with itself in it."""
        return self.config.broker_id in self.broker.metadata.brokers

    async def start(self) -> None:
        """Start everything. StartFailed says why it cannot be; what was started is stopped then."""
        async with AsyncExitStack() as undo:
            undo.push_async_callback(self._abandon)
            try:
                await self._start()
            except RegistryError as error:
                raise StartFailed(unreachable(self.config, error)) from error
            undo.pop_all()

    async def _abandon(self) -> None:
        self._stopping = True
        await self._parts.aclose()

    async def stop(self, *, controlled: bool = True) -> None:
        """Stop everything, after handing leadership over. Called twice it does nothing more."""
        if self._stopping:
            return
        self._stopping = True
        if controlled and self.failure is None and self.config.controlled_shutdown_enable:
            await hand_over(self.broker)
        known = (
            () if self.failure is None else (type(self.failure),)
        )  # run_until tells it; parts tell it again
        with suppress(*known):
            await self._parts.aclose()
        log.info("broker_stopped", broker=self.config.broker_id)

    async def run_until(self, stop: asyncio.Event) -> None:
        """Run until `stop` is set; raises what made the broker fail, if that comes first."""
        waiting = [asyncio.ensure_future(event.wait()) for event in (stop, self._failed)]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waiting:
                wait.cancel()
        if self.failure is not None:
            raise BrokenInvariant(f"{type(self.failure).__name__}: {self.failure}") from self.failure

    def fail(self, failure: BaseException) -> None:
        """What cannot be true has happened: nothing more is executed, whoever runs the node ends it."""
        if self.failure is None and not self._stopping:
            self.failure = failure
            self._server.is_open = False
            log.critical("broker_failed", broker=self.config.broker_id, exc_info=failure)
            self._failed.set()

    # In order.

    async def _start(self) -> None:
        config, parts = self.config, self._parts
        self.incarnations = lock_directories(config, self._disk, self._boot_id)
        parts.callback(self.incarnations.release)
        parts.callback(self._leave_as_found)
        metrics = Metrics()
        self._server = Server(config, metrics, HANDLERS, self.fail)
        parts.push_async_callback(self._server.stop)
        self.ports = await self._server.bind(config.endpoints)
        registry = await connect(config, self._registry_factory, self.incarnations)
        parts.push_async_callback(registry.close)
        self._registration = Registration(config, self.incarnations, registry, self._clock, self._random)
        await self._registration.identify()
        loop = asyncio.get_running_loop()
        self._logs_untouched = False
        logs = await loop.run_in_executor(None, self._registration.open_logs, self._disk, self._clock)
        parts.push_async_callback(self._close_logs, logs)
        await self._registration.register(config.advertised(self.ports))
        await self._run(registry, logs, metrics)
        log.info(
            "broker_started", broker=config.broker_id, ports=self.ports, incarnation=self.broker.incarnation
        )

    async def _run(self, registry: Registry, logs: Logs, metrics: Metrics) -> None:
        config, parts = self.config, self._parts
        tasks = Tasks("node", self.fail)
        failures = DiskFailures(config.id, self.incarnations, logs, registry, self.fail)
        parts.push_async_callback(failures.stop)
        replicas = Replicas(
            config,
            self._registration.incarnation,
            logs,
            registry,
            self._clock,
            self._server.wake,
            is_known=self._is_known,
            is_unknown_topic=self._is_unknown_topic,
            on_failure=self.fail,
            on_disk_failed=failures.happened,
        )
        forwarder = Forwarder(Tasks("forwarder", self.fail))
        topic = OffsetsTopic(config.groups, lambda: self.broker.metadata, forwarder.submit)
        groups = GroupCoordinator(
            config.groups, replicas.append_local, self._clock, self._random, topic, self.fail
        )
        replicas.on_leading.append(groups.on_leading)
        replicas.on_resigned.append(groups.on_resigned)
        self.broker = Broker(
            config=config,
            clock=self._clock,
            cluster_id=self._registration.cluster_id,
            incarnation=self._registration.incarnation,
            metadata=Picture(),
            metrics=metrics,
            replicas=replicas,
            groups=groups,
            controller=self._controller(registry),
            forwarder=forwarder,
            producer_ids=ProducerIds(registry, config.id),
            wake=self._server.wake,
            fail=self.fail,
        )
        forwarder.broker = self.broker
        upkeep = Upkeep(logs, replicas, self._clock, self.fail)
        replicas.start()
        parts.push_async_callback(replicas.stop)
        groups.start()
        parts.push_async_callback(groups.stop)
        upkeep.start()
        parts.push_async_callback(upkeep.stop)
        parts.push_async_callback(tasks.stop)

        def again() -> None:
            tasks.spawn(self._register_again(), "registration")

        parts.callback(SessionKeeper(registry, again).stop)
        self._server.open(self.broker)
        await self.broker.controller.start()
        parts.push_async_callback(self.broker.controller.stop)
        parts.push_async_callback(forwarder.stop)
        parts.push_async_callback(self._server.stop)

    # Hooks of the parts.

    def _is_known(self, tp: TopicPartition) -> bool:
        return self.broker.metadata.partition(tp.topic, tp.partition) is not None

    def _is_unknown_topic(self, topic_id: UUID, controller_epoch: int) -> bool:
        picture = self.broker.metadata
        return picture.controller_epoch == controller_epoch and topic_id not in picture.names

    async def _register_again(self) -> None:
        await self._registration.register_again()
        self.broker.incarnation = self._registration.incarnation
        self.broker.replicas.reborn(self._registration.incarnation)

    async def _close_logs(self, logs: Logs) -> None:
        loop = asyncio.get_running_loop()
        is_clean = self.failure is None
        whole = await loop.run_in_executor(None, logs.close, is_clean)
        if whole and is_clean:
            await loop.run_in_executor(None, self.incarnations.mark_clean)

    def _leave_as_found(self) -> None:
        """A start that fails before it opens a log has changed none: what was clean stays clean."""
        if self._logs_untouched and self.incarnations.clean:
            self.incarnations.mark_clean()

    def _controller(self, registry: Registry) -> Controller:
        config = self.config
        told = ControllerConfig(
            config.broker_id,
            config.inter_broker_listener,
            Defaults(
                partitions=config.controller.num_partitions,
                replication_factor=config.controller.default_replication_factor,
            ),
            Patience(answer_within_s=config.controller.socket_timeout_ms / 1000),
            session_timeout_s=config.zookeeper.session_timeout_ms / 1000,
            check_configs=self._check_topic_configs,
        )
        return Controller(told, registry, self._clock, self._random.randbytes, self.fail)

    def _check_topic_configs(self, names: Mapping[str, str]) -> None:
        try:
            TopicConfig.from_names(names, self.config.storage)
        except BadTopicConfig as error:
            raise InvalidConfig(str(error)) from error


def build(
    config: BrokerConfig, disk: Disk, registry: RegistryFactory, clock: Clock, random: Random, boot_id: str
) -> Node:
    """A broker in the given world, not started yet."""
    return Node(config, disk, registry, clock, random, boot_id)


async def serve(config: BrokerConfig, stop: asyncio.Event, started: asyncio.Event | None = None) -> None:
    """Run a broker in the real world until `stop` is set. Raises StartFailed, or what made it fail."""
    registries = Registries(config)
    node = build(
        within_limits(config),
        RealDisk(),
        registries.new,
        SystemClock(),
        Random(os.urandom(16)),
        read_boot_id(),
    )
    registries.on_fatal = node.fail
    asyncio.get_running_loop().set_exception_handler(lambda _, context: stray(node, context))
    await node.start()
    gc.collect()
    gc.freeze()
    if started is not None:
        started.set()
    try:
        await node.run_until(stop)
    finally:
        await node.stop()


def stray(node: Node, context: dict[str, Any]) -> None:
    """An exception that nobody awaited: a broken invariant stops the node, everything else is told."""
    error = context.get("exception")
    if isinstance(error, AssertionError):
        node.fail(error)
    else:
        log.error("stray_exception", message=context.get("message"), exc_info=error)


def within_limits(config: BrokerConfig) -> BrokerConfig:
    """Raise the limit of open files as far as it goes, and take no more connections than that bears."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    bearable = int(hard * CONNECTIONS_SHARE) if hard != resource.RLIM_INFINITY else config.max_connections
    return config.model_copy(update={"max_connections": min(config.max_connections, bearable)})


def read_boot_id() -> str:
    """Which boot of the machine this is: what was written in it is still in the page cache."""
    with open(BOOT_ID, encoding="ascii") as file:
        return file.read().strip()
