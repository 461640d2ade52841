"""Asks one broker who it is and what it knows: configs, log directories, its process, its clock.

A request that is not answered becomes an entry in `failed`, not the end of the rest.
Left to others: the connection (probe.py), topics and groups (ask_topics.py, ask_groups.py).
"""

import asyncio
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgpack

from ...base.clock import SystemClock
from ...base.types import TopicPartition
from ...client.admin.configs import ResourceType
from ...protocol.apis import Api
from ...protocol.errors import ApiError, ErrorCode, error_for
from ...protocol.messages.cluster import DescribeConfigsRequest, DescribeConfigsResource
from ...protocol.messages.inspection import InspectRequest
from ...protocol.messages.log_dirs import DescribeLogDirsRequest
from ...protocol.messages.metadata import MetadataRequest, MetadataResponse
from .facts import BrokerFacts, Clock, Dial, Directory, Opinion, Reach
from .probe import Failed, Place, Probe, address_of

BROKER_CONFIGS = (
    "min.insync.replicas", "default.replication.factor", "offsets.topic.replication.factor",
    "transaction.state.log.replication.factor", "transaction.state.log.min.isr", "zookeeper.connect",
    "process.roles", "inter.broker.protocol.version", "advertised.listeners", "listeners",
)  # fmt: skip
OTHER_BROKER = re.compile(r"(?:this is broker|expected) (\d+)")
"""How Strandline's and Kafka's brokers tell who they are, when a broker with another id is asked for."""
INSPECT_VERSION = 0
HOW = "now_ms of its answer to Inspect against the middle of the round trip"


@dataclass(slots=True)
class Asked:
    """One broker while it is being asked: its open probe, its view of the cluster, and facts."""

    id: int
    place: Place
    dial: Dial
    probe: Probe | None = None
    metadata: MetadataResponse | None = None
    configs: dict[str, str | None] = field(default_factory=dict)
    directories: tuple[Directory, ...] | None = None
    process: Mapping[str, Any] | None = None
    clock: Clock | None = None
    is_strandline: bool = False
    failed: dict[str, str] = field(default_factory=dict)
    unseen: dict[str, str] = field(default_factory=dict)
    """What was not looked at though it answers, by kind, in words."""

    def facts(self) -> BrokerFacts:
        """What came of it."""
        return BrokerFacts(
            self.id,
            self.dial,
            None if self.metadata is None else opinion_of(self.metadata),
            {} if self.probe is None else self.probe.apis,
            self.configs,
            self.directories,
            self.process,
            self.clock,
            self.is_strandline,
            self.failed,
        )


async def ask_broker(id: int, place: Place, wait_s: float) -> Asked:
    """Dial a broker at the address that it advertises, and ask it; its probe stays open."""
    address = address_of(*place)
    try:
        probe = await Probe.opened(place, wait_s)
    except Failed as failure:
        return Asked(id, place, failure.dial(address))
    asked = Asked(id, place, Dial(address, Reach.ANSWERS, ips=probe.ips, took_s=probe.took_s), probe)
    await asyncio.gather(
        _try(asked, "metadata", lambda: _metadata(asked)),
        _try(asked, "configs", lambda: _configs(asked)),
        _try(asked, "log directories", lambda: _directories(asked)),
        _inspect_process(asked, wait_s),
    )
    return asked


async def _try(asked: Asked, what: str, ask: Callable[[], Any]) -> None:
    try:
        await ask()
    except (OSError, ApiError) as error:
        asked.failed[what] = str(error) or type(error).__name__


async def _metadata(asked: Asked) -> None:
    assert asked.probe is not None
    told: MetadataResponse = await asked.probe.ask(
        MetadataRequest(topics=None, allow_auto_topic_creation=False)
    )
    asked.metadata = told
    asked.dial = _with(asked.dial, cluster_id=told.cluster_id)


async def _configs(asked: Asked) -> None:
    """The broker's own settings. A broker with another id refuses, and tells its own."""
    assert asked.probe is not None
    resource = DescribeConfigsResource(
        resource_type=ResourceType.BROKER,
        resource_name=str(asked.id),
        configuration_keys=list(BROKER_CONFIGS),
    )
    told = await asked.probe.ask(DescribeConfigsRequest(resources=[resource]))
    (result,) = told.results
    if result.error_code == ErrorCode.INVALID_REQUEST and (
        other := OTHER_BROKER.search(result.error_message or "")
    ):
        asked.dial = _with(asked.dial, broker=int(other[1]))
        return
    if result.error_code:
        raise error_for(result.error_code, result.error_message)
    asked.dial = _with(asked.dial, broker=asked.id)
    asked.configs = {one.name: one.value for one in result.configs}


async def _directories(asked: Asked) -> None:
    assert asked.probe is not None
    told = await asked.probe.ask(DescribeLogDirsRequest(topics=[]))
    if told.error_code:
        raise error_for(told.error_code)
    asked.directories = tuple(
        Directory(one.log_dir, one.error_code != 0, one.is_full, one.total_bytes, one.usable_bytes)
        for one in told.results
    )


async def _inspect_process(asked: Asked, wait_s: float) -> None:
    """Asked on a connection of its own: a Kafka broker closes it."""
    try:
        document, sent_ms, got_ms = await inspect(asked.place, InspectRequest(about="process"), wait_s)
    except ApiError:  # a Strandline broker that is older
        asked.is_strandline = True
        return
    except OSError:
        return
    asked.is_strandline = True
    asked.process = document
    if "now_ms" not in document:  # of another version
        return
    middle = (sent_ms + got_ms) / 2
    asked.clock = Clock(document["now_ms"] - middle, (got_ms - sent_ms) / 2 + 1, HOW)


async def inspect(
    place: Place, request: InspectRequest, wait_s: float
) -> tuple[dict[str, Any], float, float]:
    """A document of a Strandline broker, and when it was asked for and received. Raises OSError, ApiError."""
    clock = SystemClock()
    try:
        probe = await Probe.opened(place, wait_s)
    except Failed as failure:
        raise OSError(str(failure)) from None
    try:
        sent_ms = clock.wall_ms()
        told = await probe.ask(request, INSPECT_VERSION)
        got_ms = clock.wall_ms()
    finally:
        await probe.close()
    if told.error_code:
        raise error_for(told.error_code, told.error_message)
    document: dict[str, Any] = msgpack.unpackb(told.document, strict_map_key=False)
    return document, sent_ms, got_ms


def opinion_of(told: MetadataResponse) -> Opinion:
    """The cluster as this answer has it."""
    leaders = {
        TopicPartition(topic.name or "", one.partition_index): (one.leader_id, one.leader_epoch)
        for topic in told.topics
        for one in topic.partitions
    }
    return Opinion(told.controller_id, frozenset(one.node_id for one in told.brokers), leaders)


async def dial(address: str, place: Place, wait_s: float, expected: int | None = None) -> Dial:
    """Whether a Kafka broker answers at an address, of which cluster, and whether it is the expected one."""
    asked = Asked(-1 if expected is None else expected, place, Dial(address, Reach.ANSWERS))
    try:
        probe = await Probe.opened(place, wait_s)
    except Failed as failure:
        return failure.dial(address)
    asked.probe = probe
    asked.dial = Dial(address, Reach.ANSWERS, ips=probe.ips, took_s=probe.took_s)
    try:
        if Api.METADATA in probe.connection.versions:
            await _try(asked, "metadata", lambda: _metadata(asked))
        if expected is not None:
            await _try(asked, "configs", lambda: _configs(asked))
    finally:
        await probe.close()
    return asked.dial


def _with(one: Dial, *, broker: int | None = None, cluster_id: str | None = None) -> Dial:
    return Dial(
        one.address,
        one.reach,
        one.detail,
        one.ips,
        one.broker if broker is None else broker,
        one.cluster_id if cluster_id is None else cluster_id,
        one.took_s,
    )
