"""The cluster as one client reaches it: metadata kept fresh, requests routed, failures waited out.

A leader's death should cost the caller nothing but time. So code that meets a lost connection or a deposed
leader reports it (`doubt`). Then metadata is fetched every 50-100 ms, from any broker that answers, until the
doubted partition has another leader or epoch, or its leader is reachable or serves it again. A broker that
accepts connections but never answers (a stopped process) is noticed by its silence; once the others no longer
list it, its connections are closed.
Left to others: what is sent (producer/producer.py, consumer/consumer.py, admin/admin.py), sockets
(connections.py), bookkeeping (metadata.py).
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from enum import IntEnum
from random import Random
from typing import Any, TypeVar

from ...base.clock import system_random
from ...base.event import Event
from ...base.logger import get_logger
from ...base.tasks import Tasks
from ...base.types import TopicPartition
from ...protocol.errors import (
    ApiError,
    BrokerNotAvailable,
    NetworkException,
    UnknownTopicOrPartition,
    error_for,
)
from ...protocol.messages.groups import FindCoordinatorRequest
from ...protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ..arguments import checked_topic
from ..config import ClientConfig
from .connection import Connection
from .connections import Links, backoff
from .creation import Creation
from .metadata import Address, ClusterView, PartitionView

log = get_logger(__name__)

T = TypeVar("T")

FAST_REFRESH_SECONDS = (0.05, 0.1)  # between two looks for a new leader
FAST_REFRESHES_MAX = 300  # after so many in vain, the usual backoff
METADATA_PATIENCE_SECONDS = 1.0  # then another broker is asked, the first keeps its connection
FAILURES_MAX = 3  # count no more of a broker: it still comes before one whose answer settled no doubt
PATIENCE_SHARE = 0.8  # of our own wait for the answer: the broker must answer earlier
SILENCE_SECONDS_MAX = 2.0  # of a connection with requests on it, before metadata is asked for elsewhere
PROPAGATION_SECONDS = 3.0  # every live broker has heard of a new topic, partition or broker by then
CLOSED = "the client is closed"
MAIN, DATA, GROUP = "main", "data", "group"


class CoordinatorKind(IntEnum):
    """What a coordinator is of, with Kafka's numbers."""

    GROUP = 0
    TRANSACTION = 1


class Cluster:
    """Shared by the parts of one client. `start` before use, `stop` afterwards."""

    def __init__(self, config: ClientConfig, random: Random | None = None) -> None:
        self.config = config
        self.random = random or system_random()
        self.view = ClusterView()
        self.tasks = Tasks("cluster")
        self.on_change = Event[[]]()
        self._backoff = (config.retry_backoff_ms / 1000, config.retry_backoff_max_ms / 1000)
        self.links = Links(
            self.tasks,
            self.random,
            client_id=config.client_id,
            ssl=config.ssl,
            connect_timeout=config.socket_connection_setup_timeout_ms / 1000,
            backoff_base=self._backoff[0],
            backoff_most=self._backoff[1],
        )
        self.links.on_lost = self._lost
        self.links.on_open = self._opened
        self.creation = Creation(config.allow_auto_create_topics)
        self._tracked: dict[str, None] = {}
        self._everything = False
        self._doubts: dict[TopicPartition, tuple[int, int]] = {}  # leader and epoch that did not work
        self._fruitless = 0
        self._stale: Address | None = None  # the last to answer, if that settled no doubt
        self._wake = asyncio.Event()
        self._waiters: list[asyncio.Future[None]] = []
        self._coordinators: dict[tuple[CoordinatorKind, str], int] = {}
        self._missing: dict[str, float] = {}  # topics looked at in vain, and until when that counts
        self._troubles: dict[Address, Exception] = {}  # why each gave no metadata, since one last did

    async def start(self) -> None:
        """Begin to keep metadata fresh; raises NetworkException when no bootstrap server answers in time."""
        self.tasks.spawn(self._keep_fresh(), "metadata")
        self.tasks.spawn(self._listen_for_silence(), "silence")
        try:
            await self.refreshed(self.deadline())
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """End the background work, then close all connections: a dial still running would open another."""
        self.links.hush()
        try:
            await self.tasks.stop()
        finally:
            await self.links.close()
            for waiter in self._waiters:
                if not waiter.done():  # not cancelled: it would look as if somebody had cancelled the caller
                    waiter.set_exception(RuntimeError(CLOSED))
                    waiter.exception()  # seen here: nobody may be waiting

    def now(self) -> float:
        """Monotonic time."""
        return asyncio.get_running_loop().time()

    def deadline(self, timeout_ms: float | None = None) -> float:
        """The loop time at which an API call times out."""
        return self.now() + (self.config.default_api_timeout_ms if timeout_ms is None else timeout_ms) / 1000

    def heard_everywhere_at(self) -> float:
        """When every live broker has heard of the topics that there are now."""
        return self.now() + PROPAGATION_SECONDS

    def pause(self, attempt: int) -> float:
        """Seconds to wait before retry number `attempt` (from 0)."""
        return backoff(attempt, *self._backoff, self.random)

    # -- metadata

    def track(self, topics: Iterable[str]) -> bool:
        """Keep these topics' metadata fresh; True if some are not known yet (a refresh is then under way)."""
        missing = False
        for topic in topics:
            self._tracked.setdefault(checked_topic(topic))
            missing |= topic not in self.view.topics
        if missing:
            self.refresh_soon()
        return missing

    def track_everything(self) -> None:
        """Keep metadata of all topics fresh: for subscriptions by pattern."""
        self._everything = True
        self.refresh_soon()

    def refresh_soon(self) -> None:
        """Ask for metadata now (or as soon as the shortest interval has passed)."""
        self._wake.set()

    async def refreshed(self, deadline: float) -> None:
        """Wait for the next metadata; raises NetworkException when there is none before `deadline`, and
        RuntimeError if the client is closed."""
        if self.tasks.is_stopping:
            raise RuntimeError(CLOSED)
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        self.refresh_soon()
        try:
            async with asyncio.timeout_at(deadline):
                await waiter
        except TimeoutError:
            last = next(reversed(self._troubles.values()), None)
            raise NetworkException(f"no broker answered: {reasons(self._troubles)}") from last

    async def partitions(self, topic: str, deadline: float) -> list[int]:
        """The partitions of `topic`. Waits until it exists; raises at once if it never can."""
        with self.creation.awaited(topic):
            return await self._partitions(topic, deadline)

    async def _partitions(self, topic: str, deadline: float) -> list[int]:
        self.track([topic])
        attempt = 0
        while True:
            found = self.view.topics.get(topic)
            if found is not None and found.partitions:
                return list(found.partitions)
            if found is not None and found.error and not error_for(found.error).retriable:
                raise error_for(found.error, topic)
            if self.now() >= deadline:
                raise UnknownTopicOrPartition(f"topic {topic} does not exist")
            if found is not None:
                await asyncio.sleep(min(self.pause(attempt), max(deadline - self.now(), 0)))
                attempt += 1
            try:
                await self.refreshed(deadline)
            except NetworkException:
                if topic not in self.view.topics:
                    raise

    async def has(self, partition: TopicPartition, deadline: float) -> bool:
        """Whether there is such a partition. If metadata lacks it, it is waited for as long as brokers may
        take to hear of a new one; then the answer holds for as long again, so that many callers with the
        same mistake do not wait one after the other. Raises NetworkException when no broker answers."""
        self.track([partition.topic])
        until: float | None = None
        while not self._is_there(partition):
            topic = self.view.topics.get(partition.topic)
            if topic is not None and topic.error and not topic.is_gone:  # it may be about to be created
                trouble = error_for(topic.error, partition.topic)
                if not trouble.retriable or self.now() >= deadline:
                    raise trouble
            elif self._missing.get(partition.topic, 0.0) > self.now():
                return False
            elif until is not None and self.now() >= until:
                self._missing[partition.topic] = self.now() + PROPAGATION_SECONDS
                return False
            until = await self._look_again(until, deadline)
        return True

    def _is_there(self, partition: TopicPartition) -> bool:
        topic = self.view.topics.get(partition.topic)
        return topic is not None and not topic.is_gone and partition.partition in topic.partitions

    async def _look_again(self, until: float | None, deadline: float) -> float:
        """Wait for the next metadata; until when to look for what it lacks: `until` if that is known, else as
        long from now as brokers may take to hear of it. Raises NetworkException if there never was any.
        """
        try:
            await self.refreshed(deadline if until is None else until)
        except NetworkException:
            if until is None:
                raise
        return until or min(self.now() + PROPAGATION_SECONDS, deadline)

    async def listed(self, broker: int, deadline: float) -> None:
        """Return when metadata lists the broker. One that has just started is waited for as long as others
        may take to hear of it, and no longer: it may never come. Raises BrokerNotAvailable.
        """
        until: float | None = None
        while broker not in self.view.brokers:
            if until is not None and self.now() >= until:
                there = ", ".join(map(str, sorted(self.view.brokers)))
                raise BrokerNotAvailable(f"no broker {broker} is running: the cluster has {there}")
            until = await self._look_again(until, deadline)

    def doubt(self, partition: TopicPartition, leader: int, epoch: int) -> None:
        """This leader, at this epoch, did not serve the partition: look for another."""
        if self._stands(partition, leader, epoch) and self._doubts.get(partition) != (leader, epoch):
            self._doubts[partition] = (leader, epoch)
            self._fruitless = 0
        self.refresh_soon()

    def served(self, partition: TopicPartition, leader: int, epoch: int) -> None:
        """This leader has served the partition: if it had refused before, that has passed, and nobody else is
        to be looked for.
        """
        if self._doubts and self._doubts.get(partition) == (leader, epoch):
            del self._doubts[partition]

    def moved(
        self, partition: TopicPartition, leader: int, epoch: int, address: Address | None = None
    ) -> None:
        """A response has told, besides its answer, who leads now."""
        if self.view.moved(partition, leader, epoch, address):
            self._changed()

    # -- routing

    def leader(self, partition: TopicPartition) -> PartitionView | None:
        """The leader to ask, None while there is none (metadata is then being looked for)."""
        found = self.view.leader(partition)
        if found is None:
            self.refresh_soon()
        return found

    def ready(self, broker: int, channel: str = MAIN) -> Connection | None:
        """The open connection to a broker. If there is none, None; one is dialled unless that just failed."""
        known = self.view.brokers.get(broker)
        if known is None:
            return None
        connection = self.links.ready(known.address, channel)
        if connection is None and self.links.down_until(known.address) <= self.now():
            self.links.dial(known.address, channel)
        return connection

    def ready_at(self, broker: int) -> float:
        """When dialling this broker makes sense again."""
        known = self.view.brokers.get(broker)
        return self.links.down_until(known.address) if known else 0.0

    async def request(
        self, broker: int, message: Any, deadline: float, channel: str = MAIN, version: int | None = None
    ) -> Any:
        """Ask one broker, once. Raises OSError or ApiError; the caller must check the answer's own errors.

        `version` is given only where none was negotiated. No request waits longer than `request_timeout_ms`.
        """
        known = self.view.brokers.get(broker)
        if known is None:
            self.refresh_soon()
            raise NetworkException(f"broker {broker} is not in the cluster's metadata")
        connection = await self.links.get(known.address, channel, deadline)
        return await connection.request(message, deadline=self._request_deadline(deadline), version=version)

    async def ask_any(self, message: Any, deadline: float) -> Any:
        """Ask whichever broker is least loaded."""
        trouble: Exception | None = None
        for address in self._candidates():
            try:
                connection = await self.links.get(address, MAIN, deadline)
                return await connection.request(message, deadline=self._request_deadline(deadline))
            except OSError as failure:
                trouble = failure
        raise trouble or NetworkException("no broker is known")

    def agreed_version(self, broker: int, api: int) -> int | None:
        """The version of this request on the open connection to a broker; None if there is neither."""
        known = self.view.brokers.get(broker)
        connection = self.links.ready(known.address, MAIN) if known is not None else None
        return connection.versions.get(api) if connection is not None else None

    async def coordinator(
        self, key: str, deadline: float, kind: CoordinatorKind = CoordinatorKind.GROUP
    ) -> int:
        """The broker that coordinates this group or transactional id."""
        if (kind, key) in self._coordinators:
            return self._coordinators[kind, key]
        answer = await self.ask_any(FindCoordinatorRequest(key=key, key_type=kind), deadline)
        if answer.error_code:
            raise error_for(answer.error_code, answer.error_message)
        if answer.node_id not in self.view.brokers:
            await self.refreshed(deadline)
        self._coordinators[kind, key] = answer.node_id
        return int(answer.node_id)

    def forget_coordinator(self, key: str, kind: CoordinatorKind = CoordinatorKind.GROUP) -> None:
        """The coordinator has moved or cannot be reached: find it again next time."""
        self._coordinators.pop((kind, key), None)
        self.refresh_soon()

    async def persist(self, attempt: Callable[[], Awaitable[T]], deadline: float) -> T:
        """Try until it works, fails for good, or the time is up (then `telling` failure is raised)."""
        count = 0
        before: OSError | ApiError | None = None
        while True:
            began = self.now()
            try:
                return await attempt()
            except (OSError, ApiError) as trouble:
                retriable = trouble.retriable if isinstance(trouble, ApiError) else True
                pause = self.pause(count)
                if not retriable or self.now() + pause >= deadline:
                    told = telling(trouble, before, deadline - began)
                    raise _named(told) from told
                before = trouble
            count += 1
            self.refresh_soon()
            await asyncio.sleep(pause)

    async def everywhere(self, ask: Callable[[int], Awaitable[T]], deadline: float) -> dict[int, T]:
        """What every broker says. While one is silent, all that metadata names by then are asked again: it
        may have left, and another one may say by now what it had to say.
        """

        async def attempt() -> dict[int, T]:
            nodes = sorted(self.view.brokers)
            told = await asyncio.gather(*map(ask, nodes), return_exceptions=True)
            answers: dict[int, T] = {}
            for node, answer in zip(nodes, told, strict=True):
                if isinstance(answer, BaseException):
                    raise answer
                answers[node] = answer
            return answers

        return await self.persist(attempt, deadline)

    def patience_ms(self, deadline: float) -> int:
        """How long a broker may work on a request, so that its answer arrives before we stop waiting."""
        return max(int((self._request_deadline(deadline) - self.now()) * 1000 * PATIENCE_SHARE), 0)

    def _request_deadline(self, deadline: float) -> float:
        return min(deadline, self.now() + self.config.request_timeout_ms / 1000)

    # -- keeping fresh

    async def _keep_fresh(self) -> None:
        failures = 0
        while True:
            self._wake.clear()  # before asking: the answer may lack what is wanted from here on
            failures = 0 if await self._refresh() else failures + 1
            if failures:
                await asyncio.sleep(self.pause(failures - 1))
            else:
                await self._rest()

    async def _rest(self) -> None:
        """Wait until metadata is too old, wanted or in doubt; at least the fast interval."""
        least, most = FAST_REFRESH_SECONDS
        if self._doubts and self._fruitless < FAST_REFRESHES_MAX:
            self._fruitless += 1
            await asyncio.sleep(least + (most - least) * self.random.random() * 0.5)
            return
        age = 1.0 if self._doubts else self.config.metadata_max_age_ms / 1000
        await asyncio.sleep(least)
        try:
            async with asyncio.timeout(age):
                await self._wake.wait()
        except TimeoutError:
            pass

    async def _refresh(self) -> bool:
        wanted, others = self.creation.split(self._tracked, self.view.topics)
        requests = [_question(wanted, create=True)] if wanted and not self._everything else []
        if others or not requests:
            requests.append(_question(None if self._everything else others, create=False))
        waiters, self._waiters = self._waiters, []
        try:
            return await self._ask_round(requests, waiters)
        finally:
            self._waiters = [one for one in waiters if not one.done()] + self._waiters

    async def _ask_round(self, requests: list[MetadataRequest], waiters: list[asyncio.Future[None]]) -> bool:
        for address in self._candidates():
            try:
                answers = [await self._ask_for_metadata(address, request) for request in requests]
            except (OSError, ApiError) as trouble:
                self._troubles.pop(address, None)  # the latest stands last
                self._troubles[address] = trouble
                log.debug("metadata_failed", address=address, reason=str(trouble))
                continue
            if not all(answer.brokers for answer in answers):
                continue
            for answer in answers:
                self._absorb(answer)
            self._stale = address if self._doubts else None
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)
            return True
        return False

    async def _ask_for_metadata(self, address: Address, request: MetadataRequest) -> MetadataResponse:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(METADATA_PATIENCE_SECONDS):
            connection = await asyncio.shield(self.links.dial(address, MAIN))
            deadline = loop.time() + self.config.request_timeout_ms / 1000
            answer: MetadataResponse = await connection.request(request, deadline=deadline)
            return answer

    def _candidates(self) -> list[Address]:
        """Whom to ask, the best first: open and quiet connections, then brokers not known to be down.

        A broker whose answer settled no doubt comes later: it may be cut off, and would answer the same
        again.
        """
        now = self.now()
        known = [broker.address for broker in self.view.brokers.values()]
        known += [address for address in self.config.addresses if address not in known]

        def order(address: Address) -> tuple[float, float]:
            connection = self.links.ready(address, MAIN)
            if address == self._stale:
                return 5.0, 0.0
            if connection is None:
                failures = min(self.links.failures(address), FAILURES_MAX)  # it may be back by now
                return 1.0 + failures, self.random.random()
            silent = connection.silent_for(now) > METADATA_PATIENCE_SECONDS / 2
            return (9.0 if silent else 0.0), connection.waiting + self.random.random()

        return sorted(known, key=order)

    def _absorb(self, answer: MetadataResponse) -> None:
        changed = self.view.absorb(answer, everything=self._everything)
        self.creation.told(self.view.topics)
        self._troubles.clear()
        alive = {broker.address for broker in self.view.brokers.values()}
        for address, connection in self.links.all():
            if address not in alive and connection.silent_for(self.now()) > SILENCE_SECONDS_MAX / 2:
                connection.give_up("it is silent and no longer in the cluster's metadata")
        if changed:
            self._changed()

    def _changed(self) -> None:
        self._missing.clear()
        self._doubts = {
            partition: doubt for partition, doubt in self._doubts.items() if self._stands(partition, *doubt)
        }
        live = self.view.brokers
        self._coordinators = {key: node for key, node in self._coordinators.items() if node in live}
        self.on_change()

    def _stands(self, partition: TopicPartition, leader: int, epoch: int) -> bool:
        """Whether nothing newer is known than the leader that did not serve."""
        found = self.view.leader(partition)
        return found is None or (found.leader, found.leader_epoch) == (leader, epoch)

    async def _listen_for_silence(self) -> None:
        while True:
            await asyncio.sleep(SILENCE_SECONDS_MAX / 4)
            now = self.now()
            if any(one.silent_for(now) > SILENCE_SECONDS_MAX for _, one in self.links.all()):
                self.refresh_soon()

    def _lost(self, address: Address) -> None:
        """Doubt all partitions that this broker leads, until they have another leader or it is back."""
        for broker in self.view.brokers.values():
            if broker.address == address:
                self._doubt_broker(broker.node_id)
        self.refresh_soon()
        self.on_change()

    def _doubt_broker(self, node: int) -> None:
        for topic in self.view.topics.values():
            for index, one in topic.partitions.items():
                if one.leader == node and TopicPartition(topic.name, index) not in self._doubts:
                    self._doubts[TopicPartition(topic.name, index)] = (node, one.leader_epoch)
                    self._fruitless = 0

    def _opened(self, address: Address) -> None:
        nodes = {broker.node_id for broker in self.view.brokers.values() if broker.address == address}
        self._doubts = {one: doubt for one, doubt in self._doubts.items() if doubt[0] not in nodes}
        self.on_change()


def _question(topics: Iterable[str] | None, *, create: bool) -> MetadataRequest:
    asked = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
    return MetadataRequest(topics=asked, allow_auto_topic_creation=create)


def telling(trouble: T, before: T | None, seconds: float) -> T:
    """Which of the last two failures tells why time is up. The last attempt was cut short if our own deadline
    left it few `seconds`: then a missing answer says nothing of the broker, and hides what it said before."""
    if before is None or seconds >= METADATA_PATIENCE_SECONDS:
        return trouble
    return before if isinstance(trouble, (OSError, NetworkException)) else trouble


REASONS_MAX = 5


def reasons(troubles: Mapping[Address, Exception]) -> str:
    """Why each address failed, in one sentence; of many, the latest few."""
    latest = list(troubles.items())[-REASONS_MAX:]
    told = [f"{host}:{port}: {_reason(trouble)}" for (host, port), trouble in latest]
    return "; ".join(told) or "all timed out"


def _reason(trouble: Exception) -> str:
    if isinstance(trouble, TimeoutError) and not str(trouble):
        return f"no answer within {METADATA_PATIENCE_SECONDS:g} s"
    if isinstance(trouble, ConnectionRefusedError):
        return "connection refused"
    return str(trouble) or type(trouble).__name__


def _named(trouble: Exception) -> ApiError:
    """The error that a caller sees instead of a socket's: one with Kafka's name."""
    return trouble if isinstance(trouble, ApiError) else NetworkException(str(trouble) or repr(trouble))
