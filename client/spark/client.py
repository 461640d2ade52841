"""A small blocking client for Spark's Python workers: metadata, offsets by time, connections that are kept.

Workers have no event loop and live longer than their tasks, so connections are cached for the process. Only
one reader uses a connection at a time. It is kept only if no answer is outstanding when the reader gives it
back.
Left to others: the fetch loop (fetch.py), questions to leaders (leaders.py), and why they are asked.
"""

import os
import random
import select
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from ...base.types import TopicPartition
from ...protocol.apis import Api
from ...protocol.connection import ClientEnd
from ...protocol.errors import ApiError, ErrorCode, NotLeaderOrFollower, UnsupportedVersion, error_for
from ...protocol.messages.api_versions import ApiVersionsRequest
from ...protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ...protocol.primitives import Malformed
from ...protocol.schema import spec_of
from .options import ClusterOptions

SPOKEN = {
    Api.API_VERSIONS: range(1),
    Api.METADATA: range(4, 13),
    Api.LIST_OFFSETS: range(1, 8),
    Api.OFFSET_FOR_LEADER_EPOCH: range(2, 5),
    Api.DESCRIBE_LOG_DIRS: range(1, 5),
    Api.FIND_COORDINATOR: range(1, 4),
    Api.OFFSET_COMMIT: range(2, 9),
    Api.PRODUCE: range(3, 11),
    Api.INIT_PRODUCER_ID: range(5),
    Api.OFFSET_FETCH: range(7, 8),  # it says whether an offset is of an open transaction
    Api.ADD_PARTITIONS_TO_TXN: range(4),
    Api.ADD_OFFSETS_TO_TXN: range(4),
    Api.END_TXN: range(4),
    Api.TXN_OFFSET_COMMIT: range(4),
    Api.FETCH: range(4, 14),  # from 13 on a topic is named by its id, so a new one of its name is never read
}
FRAME_BYTES_MAX = 256 << 20
CONNECT_SECONDS_MAX = 3.0
IDLE_SECONDS_MAX = 60.0
BACKOFF_FIRST = 0.05
BACKOFF_MAX = 1.0
SETTLE_SECONDS_MAX = 60.0  # for brokers to be there, for leaders to be found and to answer
FAILED_RECENTLY_SECONDS = 60.0  # longer than brokers need to name no more the one of them that is gone

Address = tuple[str, int]
T = TypeVar("T")


class PartitionLeader(NamedTuple):
    """A partition's leader and leader epoch."""

    address: Address
    epoch: int
    broker: int


class PartitionReplicas(NamedTuple):
    """The brokers that have a partition, and those of them that keep up with its leader."""

    assigned: tuple[int, ...]
    in_sync: tuple[int, ...]


NO_REPLICAS = PartitionReplicas((), ())


class Unreachable(ConnectionError):
    """No connection to the address that a broker advertises: it is down, or this machine has no way to it."""


class Wire:
    """One socket to one broker, using the versions that both sides know."""

    def __init__(self, address: Address, options: ClusterOptions) -> None:
        self.address = address
        self.used_at = time.monotonic()
        self._end = ClientEnd(options.client_id)
        self._versions: dict[int, int] = {Api.API_VERSIONS: 0}
        self._socket = socket.create_connection(address, min(CONNECT_SECONDS_MAX, options.request_seconds))
        try:
            self._socket.settimeout(options.request_seconds)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            offered = self.ask(ApiVersionsRequest())
            for entry in offered.api_keys:
                ours = SPOKEN.get(entry.api_key, range(0))
                common = range(max(ours.start, entry.min_version), min(ours.stop - 1, entry.max_version) + 1)
                if common:
                    self._versions[entry.api_key] = common[-1]
        except BaseException:
            self.close()
            raise

    def ask(self, request: object) -> Any:
        """Send and wait for the answer."""
        self.send(request)
        return self.receive()

    def send(self, request: object, version_max: int | None = None) -> None:
        """Send, in no later version than `version_max`; `receive` must follow."""
        key = spec_of(type(request)).key
        version = self._versions.get(key)
        if version is None:
            raise UnsupportedVersion(f"{self.address} and this client share no version of {Api(key).name}")
        if version_max is not None:
            version = min(version, version_max)
        self._socket.sendall(b"".join(self._end.send(request, version)))

    def receive(self) -> Any:
        """The next answer. Bytes that are not an answer end the connection, as if it were lost."""
        size = int.from_bytes(self._exactly(4), "big")
        if size > FRAME_BYTES_MAX:
            raise ConnectionError(
                f"{self.address} sent a frame of {size} bytes: expected at most {FRAME_BYTES_MAX}"
            )
        try:
            _, response = self._end.receive(memoryview(self._exactly(size)))
        except Malformed as trouble:
            raise ConnectionError(f"{self.address}: {trouble}") from trouble
        self.used_at = time.monotonic()
        return response

    @property
    def has_ended(self) -> bool:
        """Whether the other side has closed the connection, or says what nobody asked for.

        For a connection without an answer outstanding.
        """
        return bool(answered([self], 0))

    def fileno(self) -> int:
        """For `answered`."""
        return self._socket.fileno()

    def close(self) -> None:
        """End the connection, whatever is still under way."""
        with suppress(OSError):
            self._socket.close()

    def _exactly(self, size: int) -> bytearray:
        data = bytearray(size)
        view = memoryview(data)
        while view:
            got = self._socket.recv_into(view)
            if not got:
                raise ConnectionError(f"{self.address} closed the connection")
            view = view[got:]
        return data


def answered(wires: Iterable[Wire], seconds: float) -> list[Wire]:
    """Those of the connections that have an answer, or have ended; waits for the first one."""
    by_socket = {wire.fileno(): wire for wire in wires}
    poll = select.poll()
    for descriptor in by_socket:
        poll.register(descriptor, select.POLLIN)
    return [by_socket[descriptor] for descriptor, _ in poll.poll(max(0, seconds) * 1000)]


@dataclass(slots=True)
class View:
    """Brokers, leaders and partitions as of the last metadata."""

    brokers: dict[int, Address] = field(default_factory=dict)
    leaders: dict[TopicPartition, PartitionLeader] = field(default_factory=dict)
    topic_ids: dict[str, UUID] = field(default_factory=dict)  # NO_UUID: this cluster has none
    internal: set[str] = field(default_factory=set)  # topics of the brokers' own
    replicas: dict[TopicPartition, PartitionReplicas] = field(default_factory=dict)


class SparkCluster:
    """The brokers of one cluster, and the connections to them."""

    def __init__(
        self,
        options: ClusterOptions,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.options = options
        self.now = now
        self.sleep = sleep
        self.view = View()
        self._idle: dict[Address, list[Wire]] = {}
        self._turn = random.randrange(1 << 16)  # not all workers begin with the same address
        self._failed_at: dict[Address, float] = {}  # of those that were to answer for any broker

    def take(self, address: Address) -> Wire:
        """A connection for one reader, which must give it back or close it."""
        idle = self._idle.get(address, [])
        while idle:
            wire = idle.pop()
            if time.monotonic() - wire.used_at < IDLE_SECONDS_MAX and not wire.has_ended:
                return wire
            wire.close()
        try:
            return Wire(address, self.options)
        except OSError as trouble:
            raise self._named(address, trouble) from trouble

    def _named(self, address: Address, trouble: OSError) -> OSError:
        """Trouble with a connection, with the broker's id and the remedy if the address came from metadata.

        An executor may lack a way that the driver has: it is told which machine could not connect.
        """
        broker = next((id for id, known in self.view.brokers.items() if known == address), None)
        if broker is None:
            return trouble
        return Unreachable(
            f"{socket.gethostname()} cannot connect to broker {broker} at {_name(address)}, the address that "
            f"this broker advertises ({trouble}). If the broker is running, set its advertised.listeners to "
            "an address that Spark's driver and every executor can reach"
        )

    def give(self, wire: Wire) -> None:
        """Give a connection back, with no answer outstanding."""
        self._idle.setdefault(wire.address, []).append(wire)

    def close(self, unused_seconds: float = 0.0) -> None:
        """Close the connections that are not in use, or that have not been for so long."""
        newest = time.monotonic() - unused_seconds
        for wires in self._idle.values():
            for wire in [wire for wire in wires if wire.used_at <= newest]:
                wire.close()
                wires.remove(wire)

    def ask(self, address: Address, request: object) -> Any:
        """Send one request to one broker, and wait for the answer.

        A connection that was kept may end at this moment, with its broker: then it is sent on a new one.
        """
        if self._idle.get(address):
            try:
                return self._ask(self.take(address), request)
            except TimeoutError:
                raise  # it is not dead but hung, and a new connection would wait as long
            except OSError:
                for wire in self._idle.pop(address, ()):
                    wire.close()
        return self._ask(self.take(address), request)

    def _ask(self, wire: Wire, request: object) -> Any:
        try:
            response = wire.ask(request)
        except BaseException:
            wire.close()
            raise
        self.give(wire)
        return response

    def leader(self, partition: TopicPartition) -> PartitionLeader:
        """The leader by the last metadata; raises NotLeaderOrFollower while there is none."""
        leader = self.view.leaders.get(partition)
        if leader is None:
            raise NotLeaderOrFollower(f"{partition} has no leader{self._gone_with(partition)}")
        return leader

    def _gone_with(self, partition: TopicPartition) -> str:
        """Which brokers are missed, if that may be why a partition has no leader."""
        replicas = self.view.replicas.get(partition, NO_REPLICAS)
        missed = [str(id) for id in replicas.assigned if id not in self.view.brokers]
        if not missed:
            return ""
        named = ", ".join(map(str, replicas.assigned))
        return f": its replicas are on brokers {named}, of which {', '.join(missed)} cannot be seen"

    def refresh(self, topics: Iterable[str] | None, create: bool = False) -> dict[str, list[int]]:
        """Refresh metadata from any broker; the partitions of those topics (None: all) that exist.

        `create` lets brokers that are set so create topics that do not.
        """
        wanted = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=create)
        return self._learn(self.ask_any(request))

    def ask_any(self, request: object) -> Any:
        """Send one request to any broker that answers: another one each time, for one may lag."""
        trouble: OSError | None = None
        addresses = self._anyone()
        for address in addresses:
            try:
                answer = self.ask(address, request)
            except OSError as error:
                trouble = error
                self._failed_at[address] = self.now()
            else:
                self._failed_at.pop(address, None)
                return answer
        raise ConnectionError(
            f"no broker can be reached at {', '.join(_name(address) for address in addresses)}, "
            f"the last error: {trouble}"
        ) from trouble

    def patiently(self, ask: Callable[[], T]) -> T:
        """Ask while no broker can be reached, for a while: a query outlives that."""
        deadline, backoff = self.now() + SETTLE_SECONDS_MAX, BACKOFF_FIRST
        while True:
            try:
                return ask()
            except OSError:
                if self.now() > deadline:
                    raise
                self.sleep(backoff)
                backoff = min(2 * backoff, BACKOFF_MAX)

    def _anyone(self) -> list[Address]:
        """Whom to ask in turn: the brokers of the last metadata, then those the options name.

        Each dead one would cost a wait: who failed recently comes last.
        """
        self._turn += 1
        least = self.now() - FAILED_RECENTLY_SECONDS
        known = _rotated(list(self.view.brokers.values()), self._turn)
        addresses = dict.fromkeys((*known, *_rotated(self.options.bootstrap, self._turn)))
        return sorted(addresses, key=lambda address: self._failed_at.get(address, least) > least)

    def _learn(self, response: MetadataResponse) -> dict[str, list[int]]:
        brokers = {broker.node_id: (broker.host, broker.port) for broker in response.brokers}
        self.view.brokers = brokers or self.view.brokers
        partitions: dict[str, list[int]] = {}
        for topic in response.topics:
            if topic.error_code or topic.name is None:
                _check_missing(topic.error_code, topic.name)
                continue
            self.view.topic_ids[topic.name] = topic.topic_id
            if topic.is_internal:
                self.view.internal.add(topic.name)
            partitions[topic.name] = sorted(part.partition_index for part in topic.partitions)
            for part in topic.partitions:
                tp = TopicPartition(topic.name, part.partition_index)
                address = brokers.get(part.leader_id)
                self.view.replicas[tp] = PartitionReplicas(tuple(part.replica_nodes), tuple(part.isr_nodes))
                if address is None:
                    self.view.leaders.pop(tp, None)
                else:
                    self.view.leaders[tp] = PartitionLeader(address, part.leader_epoch, part.leader_id)
        return partitions


def _check_missing(code: int, topic: str | None) -> None:
    """Raise for a topic that is there and refused: to leave it out would be to lose its records silently."""
    if code and code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        passing(error_about(code, f"topic {topic}"))


def _rotated(addresses: Sequence[Address], turn: int) -> list[Address]:
    first = turn % len(addresses) if addresses else 0
    return [*addresses[first:], *addresses[:first]]


def _name(address: Address) -> str:
    return f"{address[0]}:{address[1]}"


def error_about(code: int, what: object) -> ApiError:
    """The error, with what it is about in its message."""
    error = error_for(code)
    return error_for(code, f"{what}: {error.message}")


def passing(error: ApiError) -> ApiError:
    """Return the error if it may pass by itself, else raise it."""
    if not error.retriable:
        raise error
    return error


_CLUSTERS: dict[tuple[int, ClusterOptions], SparkCluster] = {}


def cluster_for(options: ClusterOptions) -> SparkCluster:
    """This process's cluster: a forked worker does not use its parent's sockets.

    A worker outlives queries, and brokers that move: what those have left behind is closed by whoever comes
    next, for nobody would ask for their addresses again.
    """
    for cluster in _CLUSTERS.values():
        cluster.close(IDLE_SECONDS_MAX)
    key = (os.getpid(), options)
    if key not in _CLUSTERS:
        _CLUSTERS[key] = SparkCluster(options)
    return _CLUSTERS[key]
