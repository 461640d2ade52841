"""A small blocking client for Spark's Python workers: metadata, offsets by time, connections that are kept.

Workers have no event loop and live longer than their tasks, so connections are cached for the process. Only
one reader uses a connection at a time. It is kept only if no answer is outstanding when the reader gives it
back.
Left to others: the fetch loop (fetch.py), what is asked and why (snapshot.py).
"""

import os
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

from ...base.types import TopicPartition
from ...protocol.apis import Api
from ...protocol.connection import ClientEnd
from ...protocol.errors import ApiError, NotLeaderOrFollower, UnsupportedVersion, error_for
from ...protocol.messages.api_versions import ApiVersionsRequest
from ...protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ...protocol.messages.offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ...protocol.primitives import Malformed
from ...protocol.schema import spec_of
from .options import ClusterOptions

SPOKEN = {
    Api.API_VERSIONS: range(1),
    Api.METADATA: range(4, 13),
    Api.LIST_OFFSETS: range(1, 8),
    Api.FETCH: range(4, 14),  # from 13 on a topic is named by its id, so a new one of its name is never read
}
FRAME_BYTES_MAX = 256 << 20
CONNECT_SECONDS_MAX = 3.0
IDLE_SECONDS_MAX = 60.0
BACKOFF_FIRST = 0.05
BACKOFF_MAX = 1.0
SETTLE_SECONDS_MAX = 60.0  # for leaders to be found and to answer

Address = tuple[str, int]


class PartitionLeader(NamedTuple):
    """A partition's leader and leader epoch."""

    address: Address
    epoch: int


class ListedOffset(NamedTuple):
    """An answer of ListOffsets. Offset -1: no record is that new."""

    offset: int
    epoch: int


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


@dataclass(slots=True)
class View:
    """Brokers, leaders and partitions as of the last metadata."""

    brokers: dict[int, Address] = field(default_factory=dict)
    leaders: dict[TopicPartition, PartitionLeader] = field(default_factory=dict)
    topic_ids: dict[str, UUID] = field(default_factory=dict)  # NO_UUID: this cluster has none


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
        self._refreshes = 0

    def take(self, address: Address) -> Wire:
        """A connection for one reader, which must give it back or close it."""
        idle = self._idle.get(address, [])
        while idle:
            wire = idle.pop()
            if time.monotonic() - wire.used_at < IDLE_SECONDS_MAX:
                return wire
            wire.close()
        return Wire(address, self.options)

    def give(self, wire: Wire) -> None:
        """Give a connection back, with no answer outstanding."""
        self._idle.setdefault(wire.address, []).append(wire)

    def close(self) -> None:
        """Close the connections that are not in use."""
        for wires in self._idle.values():
            for wire in wires:
                wire.close()
        self._idle.clear()

    def ask(self, address: Address, request: object) -> Any:
        """Send one request to one broker, and wait for the answer."""
        wire = self.take(address)
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
            raise NotLeaderOrFollower(f"{partition} has no leader")
        return leader

    def refresh(self, topics: Iterable[str] | None) -> dict[str, list[int]]:
        """Refresh metadata from any broker; the partitions of those topics (None: all) that exist."""
        wanted = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        trouble: OSError | None = None
        addresses = list(dict.fromkeys((*self.view.brokers.values(), *self.options.bootstrap)))
        turn = self._refreshes % len(addresses)  # another one each time: one broker may be behind the others
        self._refreshes += 1
        for address in (*addresses[turn:], *addresses[:turn]):
            try:
                return self._learn(self.ask(address, request))
            except OSError as error:
                trouble = error
                for wire in self._idle.pop(address, ()):
                    wire.close()
        raise ConnectionError(f"no broker can be reached; the last error: {trouble}") from trouble

    def list_offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, ListedOffset]:
        """Offsets by time (or EARLIEST, LATEST), one request per leader; waits for leaders to be found."""
        found: dict[TopicPartition, ListedOffset] = {}
        deadline = self.now() + SETTLE_SECONDS_MAX
        backoff = BACKOFF_FIRST
        while True:
            trouble = self._list_once({tp: ms for tp, ms in wanted.items() if tp not in found}, found)
            if trouble is None:
                return found
            if self.now() > deadline:
                raise trouble
            self.sleep(backoff)
            backoff = min(2 * backoff, BACKOFF_MAX)
            with suppress(OSError):
                self.refresh({tp.topic for tp in wanted})

    def _list_once(
        self, wanted: Mapping[TopicPartition, int], found: dict[TopicPartition, ListedOffset]
    ) -> Exception | None:
        """Fill `found` as far as leaders answer; returns why the rest is still missing."""
        trouble: Exception | None = None
        by_leader: dict[Address, dict[str, list[ListOffsetsPartition]]] = {}
        for tp, ms in wanted.items():
            try:
                leader = self.leader(tp)
            except NotLeaderOrFollower as error:
                trouble = error
                continue
            asked = ListOffsetsPartition(
                partition_index=tp.partition, current_leader_epoch=leader.epoch, timestamp=ms
            )
            by_leader.setdefault(leader.address, {}).setdefault(tp.topic, []).append(asked)
        for address, topics in by_leader.items():
            request = ListOffsetsRequest(
                isolation_level=self.options.isolation,
                topics=[ListOffsetsTopic(name=name, partitions=parts) for name, parts in topics.items()],
            )
            try:
                answered = self.ask(address, request).topics
            except OSError as error:
                trouble = error
                continue
            for topic in answered:
                for part in topic.partitions:
                    if part.error_code == 0:
                        tp = TopicPartition(topic.name, part.partition_index)
                        found[tp] = ListedOffset(part.offset, part.leader_epoch)
                    else:
                        trouble = passing(error_for(part.error_code))
        return trouble

    def _learn(self, response: MetadataResponse) -> dict[str, list[int]]:
        brokers = {broker.node_id: (broker.host, broker.port) for broker in response.brokers}
        self.view.brokers = brokers or self.view.brokers
        partitions: dict[str, list[int]] = {}
        for topic in response.topics:
            if topic.error_code or topic.name is None:
                continue
            self.view.topic_ids[topic.name] = topic.topic_id
            partitions[topic.name] = sorted(part.partition_index for part in topic.partitions)
            for part in topic.partitions:
                tp = TopicPartition(topic.name, part.partition_index)
                address = brokers.get(part.leader_id)
                if address is None:
                    self.view.leaders.pop(tp, None)
                else:
                    self.view.leaders[tp] = PartitionLeader(address, part.leader_epoch)
        return partitions


def passing(error: ApiError) -> ApiError:
    """Return the error if it may pass by itself, else raise it."""
    if not error.retriable:
        raise error
    return error


_CLUSTERS: dict[tuple[int, ClusterOptions], SparkCluster] = {}


def cluster_for(options: ClusterOptions) -> SparkCluster:
    """This process's cluster: a forked worker does not use its parent's sockets."""
    key = (os.getpid(), options)
    if key not in _CLUSTERS:
        _CLUSTERS[key] = SparkCluster(options)
    return _CLUSTERS[key]
