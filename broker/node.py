"""Builds one broker from its parts and runs it: starts them in order, stops them in reverse.

Disk, ZooKeeper, clock, randomness and boot id are arguments of `build`, so that the simulator runs this file
unchanged; `serve` passes the real ones. A stop is a controlled shutdown: leadership is handed over, then
listeners, fetchers and waiters end, logs are flushed and closed, the clean shutdown marker is written, the
session ends. A broken invariant (`fail`) ends the broker at once and leaves its files as they are.
Left to others: signals, exit status, the event loop's watchdog (cli/serve.py).
"""

import asyncio
import os
from collections.abc import Callable, Collection
from contextlib import AsyncExitStack, suppress
from functools import partial
from random import Random
from time import perf_counter_ns
from typing import Any

import structlog

from ..base.clock import SystemClock
from ..base.tasks import FailureHook, Tasks
from ..base.types import Clock, TopicPartition
from ..controller.challenges import Respondent
from ..controller.controller import Controller
from ..controller.planning.decision_notes import DecisionNotes
from ..storage.decision_log import BROKER
from ..storage.directories.incarnation import Incarnations
from ..storage.directories.log_manager import Logs
from ..storage.directories.workers import Crew, in_threads, one_by_one
from ..storage.disk import Disk, RealDisk
from ..zookeeper.client import ZkClient, ZkError
from ..zookeeper.topic_lives import is_gone
from .config.broker import BrokerConfig
from .config.controller import controller_config
from .config.groups import GroupSettings
from .config.live import LiveConfig
from .config_watch import ConfigWatch
from .context import BrokerContext
from .errors import BrokenInvariant, StartFailed, StorageLost
from .forward import Forwarder
from .groups.coordinator import GroupCoordinator
from .handlers.table import HANDLERS
from .internal_topics.topic import InternalTopic, offsets_topic, transaction_state_topic
from .metadata.cache import MetadataCache
from .metadata.held_answers import HeldAnswers
from .network.early_listeners import Doors
from .network.metrics import Metrics
from .network.server import NO_DOORS, Server
from .network.timings import Timings
from .open_file_limits import within_limits
from .parts import ReplicaParts
from .producer_ids import ProducerIds
from .recorder import MakeRecorder, Recorder, in_memory, on_disk
from .registration import (
    Registration,
    SessionKeeper,
    ZkClientFactory,
    connect,
    disconnect,
    lock_directories,
    unreachable,
)
from .replicas.local_appends import append_local
from .replicas.marker_writes import write_marker
from .replicas.shared import ReplicaShared
from .replicas.sure_appends import append_surely, when_committed
from .shutdown import hand_over
from .transactions.coordinator import TransactionCoordinator
from .transactions.markers import MarkerSender
from .transactions.verification import Verification
from .turn import Turn
from .upkeep.cleaner_processes import Cleaners, HelperProcesses, ThreadCleaners
from .upkeep.compaction import Compactor
from .upkeep.disk_failures import DiskFailures
from .upkeep.log_dir_moves import LogDirMoves
from .upkeep.passes import Upkeep
from .web.listener import WebListener
from .zookeeper_sessions import ZkSessions

__all__ = ["Node", "StartFailed", "build", "serve"]

logger = structlog.get_logger(__name__)

BOOT_ID = "/proc/sys/kernel/random/boot_id"

MakeCleaners = Callable[[FailureHook], Cleaners]


class Node:
    """A broker that can be started and stopped once."""

    def __init__(
        self,
        config: BrokerConfig,
        disk: Disk,
        new_zk_client: ZkClientFactory,
        clock: Clock,
        random: Random,
        boot_id: str,
        crew: Crew = one_by_one,
        cleaners: MakeCleaners | None = None,
        recorder: MakeRecorder = in_memory,
    ) -> None:
        self.config = config  # what the broker was started with
        self.live = LiveConfig(config)
        self.broker: BrokerContext
        self.doors: Doors = {}  # listening sockets that the caller has bound already
        self.ports: dict[str, int] = {}
        self.failure: BaseException | None = None
        self._disk = disk
        self._new_zk_client = new_zk_client
        self._clock = clock
        self._random = random
        self._boot_id = boot_id
        self._crew = crew  # recovers and closes the logs
        self._cleaners = cleaners  # compact the logs; if None, a thread does
        self._make_recorder = recorder
        self._stops = AsyncExitStack()  # how each part that was started ends
        self._failed = asyncio.Event()
        self._stopping = False
        self._logs_untouched = True
        self.incarnations: Incarnations
        self.cleaning: Compactor
        self._registration: Registration
        self._respondent: Respondent
        self._server: Server
        self._turn: Turn
        self._parts: ReplicaParts
        self._watch: ConfigWatch
        self._group_settings: GroupSettings
        self._web = WebListener(config)

    @property
    def web_port(self) -> int | None:
        """The port of the HTTP server; None if there is none."""
        return None if self._web.place is None else self._web.place[1]

    @property
    def is_ready(self) -> bool:
        """Whether the controller has sent this broker metadata that includes the broker itself."""
        return self.config.broker_id in self.broker.metadata.brokers

    async def start(self) -> None:
        """Start everything. If that fails, stop what was started; StartFailed says why."""
        async with AsyncExitStack() as undo:
            undo.push_async_callback(self._abandon)
            try:
                await self._start()
            except ZkError as error:
                raise StartFailed(unreachable(self.config, error)) from error
            undo.pop_all()

    async def _abandon(self) -> None:
        self._stopping = self._web.view.stopping = True
        await self._stops.aclose()

    async def stop(self, *, controlled: bool = True) -> None:
        """Hand over leadership, then stop everything. A second call does nothing."""
        if self._stopping:
            return
        self._stopping = self._web.view.stopping = True
        if controlled and self.failure is None and self.config.controlled_shutdown_enable:
            await self._registration.leave()
            await hand_over(self.broker)
        known = () if self.failure is None else (type(self.failure),)  # run_until raises it; parts may, too
        with suppress(*known):
            await self._stops.aclose()
        logger.info("broker_stopped", broker=self.config.broker_id)

    async def run_until(self, stop: asyncio.Event) -> None:
        """Run until `stop` is set. If the broker fails first, raises why."""
        waiting = [asyncio.ensure_future(event.wait()) for event in (stop, self._failed)]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waiting:
                wait.cancel()
        if isinstance(self.failure, StorageLost):
            raise self.failure
        if self.failure is not None:
            raise BrokenInvariant(f"{type(self.failure).__name__}: {self.failure}") from self.failure

    def fail(self, failure: BaseException) -> None:
        """An invariant is broken or all storage is lost: execute nothing more; `run_until` ends the node."""
        if self.failure is None and not self._stopping:
            self.failure = self._web.view.failure = failure
            self._turn.is_open = False
            told = {"reason": str(failure)} if isinstance(failure, StorageLost) else {"exc_info": failure}
            logger.critical("broker_failed", broker=self.config.broker_id, **told)
            self._failed.set()

    # The start, in order.

    async def _start(self) -> None:
        config, stops = self.config, self._stops
        self.incarnations = lock_directories(config, self._disk, self._boot_id)
        stops.callback(self.incarnations.release)
        stops.callback(self._leave_as_found)
        self._turn, metrics = Turn(self.fail), Metrics()
        timings = None if config.web_endpoint is None else Timings(perf_counter_ns)
        self._server = Server(config, metrics, HANDLERS, self._turn, self.fail, timings)
        self._web.view.admission, self._web.view.timings = self._server.admission, timings
        stops.push_async_callback(self._server.stop)
        self.ports = await self._server.bind(config.endpoints, self.doors)
        stops.push_async_callback(self._web.stop)
        await self._web.open()
        zk = await connect(config, self._new_zk_client, self.incarnations)
        stops.push_async_callback(disconnect, zk, self.incarnations)
        self._web.view.zk = zk
        self._turn.before = zk.look  # a process that was paused must check its session first
        self._group_settings = GroupSettings(self.config.groups)
        self._watch = ConfigWatch(zk, self.live, self._group_settings, self.fail)
        await self._watch.read_own()
        await self._watch.read_groups()
        self._respondent = Respondent(zk, config.broker_id, self.fail)
        stops.push_async_callback(self._respondent.stop)
        self._registration = Registration(
            self.live.current, self.incarnations, zk, self._clock, self._random, self._respondent.begin
        )
        await self._registration.identify()
        loop = asyncio.get_running_loop()
        self._logs_untouched = False
        logs = await loop.run_in_executor(
            None, self._registration.open_logs, self._disk, self._clock, self._crew
        )
        stops.push_async_callback(self._close_logs, logs)
        await self._registration.register(self.live.current.advertised(self.ports))
        await self._run(zk, logs, metrics)
        self._web.view.broker = self.broker
        await self._web.opened()
        logger.info(
            "broker_started", broker=config.broker_id, ports=self.ports, incarnation=self.broker.incarnation
        )

    async def _run(self, zk: ZkClient, logs: Logs, metrics: Metrics) -> None:
        config, stops = self.config, self._stops
        tasks = Tasks("node", self.fail)
        recorder = await self._recorder(logs)
        cache = MetadataCache(config.id)
        parts = self._parts = self._replica_parts(zk, logs, cache, recorder)
        shared, replicas = parts.shared, parts.replicas
        parts.flushing.timings = self._web.view.timings
        held = HeldAnswers(shared, cache.current)
        controller = Controller(
            controller_config(self.live), zk, self._clock, self._random.randbytes, self.fail,
            DecisionNotes(recorder.series, wall_ms=self._clock.wall_ms),
        )  # fmt: skip
        forwarder = Forwarder(
            self.live, cache, controller, held, metrics, Tasks("forwarder", self.fail),
            self._random.randbytes,
        )  # fmt: skip
        producer_ids = ProducerIds(zk, config.id)
        transactions = self._transactions(zk, parts, cache, forwarder, producer_ids)
        verification = self._verification(shared, cache, transactions)
        groups = self._groups(parts, cache, forwarder, verification)
        cleaners = self._cleaners(self.fail) if self._cleaners else ThreadCleaners(self._disk)
        self.cleaning = Compactor(
            logs, replicas, self._clock, cleaners, self._random.randbytes, shared.on_disk_failed, self.fail
        )
        moves = LogDirMoves(logs, replicas, shared, self.fail)
        self.broker = BrokerContext(
            live=self.live, clock=self._clock, cluster_id=self._registration.cluster_id, cache=cache,
            metrics=metrics, logs=logs, shared=shared, replicas=replicas, settings=parts.settings,
            isr=parts.isr, parked=parts.parked, sessions=parts.sessions,
            client_sessions=parts.client_sessions, fetchers=parts.fetchers, deletions=parts.deletions,
            leader_throttle=parts.leader_throttle, roles=parts.roles, groups=groups,
            transactions=transactions, controller=controller, forwarder=forwarder,
            producer_ids=producer_ids, cleaning=self.cleaning, held=held, verification=verification,
            refresh=self._watch.refresh, group_settings=self._group_settings, moves=moves, fail=self.fail,
            web=self._web.place,
        )  # fmt: skip
        upkeep = Upkeep(
            logs, shared, replicas, parts.flushing, self._clock, self.fail, cache.current,
            parts.settings.are_read,
        )  # fmt: skip
        for part in (parts, groups, transactions, upkeep, self.cleaning, moves):
            part.start()
            stops.push_async_callback(part.stop)
        self._follow_changes(logs, tasks)
        stops.push_async_callback(self._watch.stop)
        stops.push_async_callback(tasks.stop)

        def again() -> None:
            tasks.spawn(self._register_again(), "registration")

        stops.callback(SessionKeeper(zk, again).stop)
        self._server.open(self.broker)
        await self.broker.controller.start()
        stops.push_async_callback(self.broker.controller.stop)
        stops.push_async_callback(forwarder.stop)
        stops.push_async_callback(self._server.stop)
        stops.push_async_callback(self._respondent.stop)  # who does not serve must not answer challenges

    async def _recorder(self, logs: Logs) -> Recorder:
        """The recorder of decisions for `strandline why`, in the first directory that works."""
        config, registration = self.config, self._registration
        place = logs.places.usable[0]
        kept = config.replication.recorder_bytes_max
        recorder = await self._make_recorder(self._disk, self._clock, kept, place, self.fail)
        recorder.note(BROKER, "started", incarnation=registration.incarnation, broker=config.broker_id)
        self._stops.push_async_callback(recorder.stop)
        return recorder

    def _replica_parts(
        self, zk: ZkClient, logs: Logs, cache: MetadataCache, recorder: Recorder
    ) -> ReplicaParts:
        """The replicas, all that works on them, and the handler of their disk failures."""
        parts = ReplicaParts(
            self.config, self._registration.incarnation, logs, zk, self._clock, self._turn,
            is_known=cache.has, is_elsewhere=cache.is_elsewhere, vouches=self._registration.vouches,
            recorder=recorder, on_failure=self.fail,
        )  # fmt: skip
        failures = DiskFailures(
            parts.shared, self.incarnations, logs, zk, parts.replicas, parts.fetchers,
            self._register_again, self.fail,
        )  # fmt: skip
        self._stops.push_async_callback(failures.stop)
        self._registration.on_disk_failed = failures.failed
        failures.room.begin()
        self._respondent.on_answered.subscribe(parts.shared.untold)
        parts.shared.on_roles_read.subscribe(cache.doubt)
        return parts

    def _groups(
        self, parts: ReplicaParts, cache: MetadataCache, forwarder: Forwarder, verification: Verification
    ) -> GroupCoordinator:
        config = self.config.groups
        topic = InternalTopic(offsets_topic(config), cache.current, forwarder.submit)
        append = partial(append_local, parts.replicas.get)
        groups = GroupCoordinator(
            config, append, partial(when_committed, parts.replicas.get), self._clock, self._random, topic,
            verification.ask, cache.current, self._group_settings, self.fail,
        )  # fmt: skip
        self._group_settings.on_change.subscribe(groups.on_configured)
        parts.shared.on_leading.subscribe(groups.on_leading)
        parts.shared.on_resigned.subscribe(groups.on_resigned)
        parts.shared.on_transaction_ended.subscribe(groups.on_transaction_ended)
        return groups

    def _transactions(
        self,
        zk: ZkClient,
        parts: ReplicaParts,
        cache: MetadataCache,
        forwarder: Forwarder,
        producer_ids: ProducerIds,
    ) -> TransactionCoordinator:
        topic = InternalTopic(
            transaction_state_topic(self.config.transactions), cache.current, forwarder.submit
        )
        find, live = parts.replicas.get, self.live
        gone = partial(is_gone, zk, deletes_topics=self.config.controller.delete_topic_enable)
        markers = MarkerSender(
            self.config.id, self.config.inter_broker_listener, cache.current, partial(write_marker, find),
            Tasks("markers", self.fail), gone,
        )  # fmt: skip
        transactions = TransactionCoordinator(
            lambda: live.current.transactions, partial(append_surely, find), partial(when_committed, find),
            self._clock, producer_ids.take, topic, markers, self.fail,
        )  # fmt: skip
        parts.shared.on_leading.subscribe(transactions.on_leading)
        parts.shared.on_resigned.subscribe(transactions.on_resigned)
        return transactions

    def _verification(
        self, shared: ReplicaShared, cache: MetadataCache, coordinator: TransactionCoordinator
    ) -> Verification:
        """Who asks coordinators. Whether replicas insist on that may change while the broker runs."""
        verification = Verification(self.live, cache, coordinator, Tasks("verification", self.fail))
        self._stops.push_async_callback(verification.stop)

        def changed() -> None:
            shared.verifies_transactions = self.live.current.transactions.partition_verification

        changed()
        self.live.on_change.subscribe(changed)
        return verification

    def _follow_changes(self, logs: Logs, tasks: Tasks) -> None:
        """Apply config changes to all parts while the broker runs."""
        broker = self.broker

        def changed() -> None:
            logs.configure(self.live.current.storage)
            self.cleaning.start()
            broker.controller.defaults_changed()
            tasks.spawn(self._parts.config_changed(self.live.current), "config-changed")
            tasks.spawn(self._registration.move(self.live.current.advertised(self.ports)), "move")

        self.live.on_change.subscribe(changed)
        self._watch.start(broker.settings, broker.controller.topic_configured)

    async def _register_again(self, doubts: Collection[TopicPartition] = ()) -> None:
        if not doubts:  # the session has ended: our controller must not go on
            await self.broker.controller.over()
        await self._registration.register_again(doubts)
        self._parts.shared.incarnation = self._registration.incarnation

    async def _close_logs(self, logs: Logs) -> None:
        loop = asyncio.get_running_loop()
        is_clean = self.failure is None
        whole = await loop.run_in_executor(None, logs.close, is_clean, self._crew)
        if whole and is_clean:
            try:
                await loop.run_in_executor(None, self.incarnations.mark_clean)
            except OSError as error:  # the next start takes longer
                logger.warning("clean_marker_not_written", reason=str(error))

    def _leave_as_found(self) -> None:
        """A start that failed before opening logs has changed none: keep their clean shutdown markers."""
        if self._logs_untouched:
            self.incarnations.put_markers_back()


def build(
    config: BrokerConfig,
    disk: Disk,
    new_zk_client: ZkClientFactory,
    clock: Clock,
    random: Random,
    boot_id: str,
    crew: Crew = one_by_one,
    cleaners: MakeCleaners | None = None,
    recorder: MakeRecorder = in_memory,
) -> Node:
    """A broker on these parts, not started yet."""
    return Node(config, disk, new_zk_client, clock, random, boot_id, crew, cleaners, recorder)


async def serve(config: BrokerConfig, stop: asyncio.Event, doors: Doors = NO_DOORS) -> None:
    """Run a broker on the real disk, ZooKeeper and clock until `stop` is set.

    Raises StartFailed, or what made it fail.
    """
    zk_sessions = ZkSessions(config)
    node = build(
        within_limits(config),
        RealDisk(),
        zk_sessions.new,
        SystemClock(),
        Random(os.urandom(16)),
        read_boot_id(),
        in_threads,
        HelperProcesses,
        on_disk,
    )
    node.doors = doors
    zk_sessions.on_fatal = node.fail
    asyncio.get_running_loop().set_exception_handler(lambda _, context: stray(node, context))
    await node.start()
    try:
        await node.run_until(stop)
    finally:
        await node.stop()


def stray(node: Node, context: dict[str, Any]) -> None:
    """An exception that nobody awaited: a broken invariant stops the node, anything else is logged."""
    error = context.get("exception")
    if isinstance(error, AssertionError):
        node.fail(error)
    else:
        logger.error("exception_unhandled", message=context.get("message"), exc_info=error)


def read_boot_id() -> str:
    """Which boot of the machine this is: data written in the same boot is still in the page cache."""
    with open(BOOT_ID, encoding="ascii") as file:
        return file.read().strip()
