"""Requests to create, grow and delete topics, and controlled shutdowns of brokers.

A topic is checked completely before anything is written. Then its znodes are written under the fence, and the
planner does the rest. The answer waits until leaders have been announced to every live broker, or until the
request times out; the topic is created all the same.
Left to others: names in the request that no topic may have at all are refused by the handler, too.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from dataclasses import field, replace
from typing import Any
from uuid import UUID

from ...base.types import NO_BROKER_EPOCH
from ...base.values import dataclass
from ...protocol.errors import (
    ApiError,
    InvalidConfig,
    InvalidPartitions,
    InvalidRequest,
    NotController,
    RequestTimedOut,
    StaleBrokerEpoch,
    TopicAlreadyExists,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from ...protocol.messages import control, topics
from ...protocol.primitives import NO_UUID
from ...zookeeper import documents
from ...zookeeper.client import Create, MultiFailed, NodeExists, NoNode, Op, SetData, Unknown
from ...zookeeper.znodes import create_if_absent
from ..planning import plans
from ..planning.assignment import Replicas, check_assignment, check_topic_name
from ..planning.placement import Racks, anywhere, spread, where_it_stopped
from ..planning.state import ClusterState, Topic
from .deadlines import by, deadline_in
from .election_requests import ElectionPolicy
from .node_sizes import check_settings, check_topic
from .reach import Reach

RETRY_S = 0.1
WRITE_MS = 10_000  # for the write alone, whatever the client allows
SHUTDOWN_WAIT_S = 10.0
HEARD_WITHIN_S = 3.0
"""How long a controlled shutdown waits for all brokers to be told: one may hang, and the asking broker waits
only 5 s (broker/shutdown.py)."""

ConfigCheck = Callable[[str, Mapping[str, str]], None]  # of a topic by name; raises InvalidConfig


@dataclass(frozen=True, slots=True)
class Defaults:
    """What a new topic gets where the request does not say."""

    partitions: int = 1
    replication_factor: int = 1
    elections: ElectionPolicy = field(default_factory=ElectionPolicy)
    min_isr: int = 1  # how many must hold a record before acks=all is answered


class TopicRequests:
    """The requests of clients during one term. Every method may raise `NotController`."""

    def __init__(
        self,
        reach: Reach,
        defaults: Callable[[], Defaults],
        check_configs: ConfigCheck,
        random_bytes: Callable[[int], bytes],
    ) -> None:
        self._reach = reach
        self._defaults = defaults
        self._check_configs = check_configs
        self._random_bytes = random_bytes

    @property
    def _state(self) -> ClusterState:
        return self._reach.state()

    @property
    def _racks(self) -> Racks:
        """The racks of the live brokers."""
        return {broker: self._state.brokers[broker].rack for broker in sorted(self._state.live)}

    # --- create ------------------------------------------------------------------------------------

    async def create_topics(self, request: topics.CreateTopicsRequest) -> topics.CreateTopicsResponse:
        """Create all topics of the request, concurrently."""
        deadline = deadline_in(request.timeout_ms)
        times = Counter(topic.name for topic in request.topics)
        wanted = {topic.name: topic for topic in request.topics}
        results = await asyncio.gather(
            *(
                self._created(topic, times[topic.name] > 1, request.validate_only, deadline)
                for topic in wanted.values()
            )
        )
        return topics.CreateTopicsResponse(topics=list(results))

    async def _created(
        self, wanted: topics.CreatableTopic, repeated: bool, validate_only: bool, deadline: float
    ) -> topics.CreatableTopicResult:
        try:
            if repeated:
                raise InvalidRequest(f"topic {wanted.name!r} is in the request more than once")
            topic = self._begun(wanted) or self._design(wanted)
            if not validate_only:
                await self._finish(
                    deadline, self._create(topic), self._announced(topic.name, topic.replicas.keys())
                )
        except NotController:
            raise
        except ApiError as error:
            return topics.CreatableTopicResult(
                name=wanted.name, error_code=error.code, error_message=error.message
            )
        return topics.CreatableTopicResult(
            name=topic.name,
            topic_id=NO_UUID if validate_only else topic.id,
            num_partitions=len(topic.replicas),
            replication_factor=len(topic.replicas[0]),
        )

    def _begun(self, wanted: topics.CreatableTopic) -> Topic | None:
        """The topic that this request has created before, if its answer was lost."""
        known = self._state.topics.get(wanted.name)
        is_ours = (
            known is not None and known.id == wanted.topic_id and known.name not in self._state.deletions
        )
        return known if is_ours else None

    def _design(self, wanted: topics.CreatableTopic) -> Topic:
        """The topic as it will be. Raises the client's error."""
        names = self._state.topics.keys() | self._state.deletions.keys()
        if wanted.name in names:
            raise TopicAlreadyExists(f"topic {wanted.name!r} already exists")
        check_topic_name(wanted.name, names)
        configs = {entry.name: entry.value for entry in wanted.configs if entry.value is not None}
        if len(configs) != len(wanted.configs):
            raise InvalidConfig("a config has no value or is given twice")
        self._check_configs(wanted.name, configs)
        id = wanted.topic_id if wanted.topic_id != NO_UUID else UUID(bytes=self._random_bytes(16))
        topic = Topic(wanted.name, id, self._replicas(wanted), configs)
        check_topic(_document(topic))
        check_settings(configs, beside=_document(topic))
        return topic

    def _replicas(self, wanted: topics.CreatableTopic) -> Replicas:
        if not wanted.assignments:
            partitions, factor, defaults = wanted.num_partitions, wanted.replication_factor, self._defaults()
            partitions = defaults.partitions if partitions == -1 else partitions
            factor = defaults.replication_factor if factor == -1 else factor
            racks = self._racks
            return spread(racks, range(partitions), factor, anywhere(len(racks), self._random_bytes))
        if wanted.num_partitions != -1 or wanted.replication_factor != -1:
            raise InvalidRequest(
                "with an assignment, the number of partitions and the replication factor must be -1"
            )
        chosen = {one.partition_index: one.broker_ids for one in wanted.assignments}
        if len(chosen) != len(wanted.assignments):
            raise InvalidRequest("a partition is assigned twice")
        return check_assignment(self._state.brokers, chosen)

    async def _create(self, topic: Topic) -> None:
        """Write the topic's znodes. From then on it exists; the rest follows by itself."""
        data = _document(topic).data()
        while True:
            try:
                ops: list[Op] = [
                    await self._config_write(topic),
                    Create(documents.topic_path(topic.name), data),
                    Create(documents.partitions_path(topic.name), b""),
                    Create(documents.life_path(topic.id), b""),
                ]
                await self._reach.write(ops)
                break
            except Unknown:
                await asyncio.sleep(RETRY_S)
            except MultiFailed as failed:
                if isinstance(failed.results[1], NodeExists) and not await self._is_mine(topic):
                    raise TopicAlreadyExists(f"topic {topic.name!r} already exists") from failed
                if isinstance(failed.results[1], NodeExists):
                    break
                await asyncio.sleep(RETRY_S)

    async def _config_write(self, topic: Topic) -> Op:
        """The write of the settings. Some tool may have left a znode there, or put one there beforehand."""
        path, data = (
            documents.topic_config_path(topic.name),
            documents.ConfigDocument(config=dict(topic.configs)).data(),
        )
        stat = await self._reach.zk.exists(path)
        return Create(path, data) if stat is None else SetData(path, data, stat.version)

    async def _is_mine(self, topic: Topic) -> bool:
        try:
            data, _ = await self._reach.zk.get(documents.topic_path(topic.name))
            return documents.parse(documents.TopicDocument, data).uuid == topic.id
        except (NoNode, documents.BadDocument):
            return False

    async def _finish(self, deadline: float, write: Awaitable[None], wait: Coroutine[Any, Any, None]) -> None:
        """Finish the write even if the client does not wait; then wait until its deadline."""
        try:
            await by(max(deadline, deadline_in(WRITE_MS)), write)
            await by(deadline, wait)
        finally:
            wait.close()

    async def _announced(self, name: str, numbers: Iterable[int]) -> None:
        """Wait until every partition has its state and every live broker has been told."""
        wanted = set(numbers)

        def is_ready(state: ClusterState) -> bool:
            topic = state.topics.get(name)
            if topic is None or not wanted <= topic.replicas.keys():
                return False
            return all(q in state.partitions and q not in state.in_flight for q in topic.partitions)

        await self._reach.until(is_ready)
        await self._reach.all_told()

    # --- grow --------------------------------------------------------------------------------------

    async def create_partitions(
        self, request: topics.CreatePartitionsRequest
    ) -> topics.CreatePartitionsResponse:
        """Add partitions to each topic of the request."""
        deadline = deadline_in(request.timeout_ms)
        times = Counter(topic.name for topic in request.topics)
        wanted = {topic.name: topic for topic in request.topics}
        results = await asyncio.gather(
            *(
                self._grown(topic, times[topic.name] > 1, request.validate_only, deadline)
                for topic in wanted.values()
            )
        )
        return topics.CreatePartitionsResponse(results=list(results))

    async def _grown(
        self, wanted: topics.CreatePartitionsTopic, repeated: bool, validate_only: bool, deadline: float
    ) -> topics.CreatePartitionsTopicResult:
        try:
            if repeated:
                raise InvalidRequest(f"topic {wanted.name!r} is in the request more than once")
            added = self._growth(wanted)
            if not validate_only:
                await self._finish(
                    deadline, self._grow(wanted.name, added), self._announced(wanted.name, added.keys())
                )
        except NotController:
            raise
        except ApiError as error:
            return topics.CreatePartitionsTopicResult(
                name=wanted.name, error_code=error.code, error_message=error.message
            )
        return topics.CreatePartitionsTopicResult(name=wanted.name)

    def _growth(self, wanted: topics.CreatePartitionsTopic) -> Replicas:
        topic = self._state.topics.get(wanted.name)
        if topic is None or wanted.name in self._state.deletions:
            raise UnknownTopicOrPartition(f"topic {wanted.name!r} does not exist")
        size = len(topic.replicas)
        if -1 < wanted.grows_from < size == wanted.count:
            return {}  # asked for before, and done; the answer was lost
        if wanted.count <= size:
            raise InvalidPartitions(f"topic {wanted.name!r} has {size} partitions: the number can only grow")
        added = self._added(wanted, topic)
        check_topic(_document(replace(topic, replicas={**topic.replicas, **added})))
        return added

    def _added(self, wanted: topics.CreatePartitionsTopic, topic: Topic) -> Replicas:
        size, factor = len(topic.replicas), len(topic.replicas[0])
        if wanted.assignments is None:
            start = where_it_stopped(self._racks, topic.replicas[0][0])
            return spread(self._racks, range(size, wanted.count), factor, start)
        chosen = {size + i: one.broker_ids for i, one in enumerate(wanted.assignments)}
        if size + len(chosen) != wanted.count:
            raise InvalidRequest(
                f"{len(chosen)} assignments were given for {wanted.count - size} new partitions"
            )
        return check_assignment(self._state.brokers, chosen, size, factor)

    async def _grow(self, name: str, added: Replicas) -> None:
        path = documents.topic_path(name)
        while True:
            try:
                data, stat = await self._reach.zk.get(path)
                document = documents.parse(documents.TopicDocument, data)
                new = {i: list(r) for i, r in added.items()}
                if any(document.partitions.get(i) not in (None, r) for i, r in new.items()):
                    raise InvalidPartitions(f"topic {name!r} got partitions from another request meanwhile")
                grown = document.model_copy(update={"partitions": {**document.partitions, **new}})
                check_topic(grown)  # what is moving takes more room
                await self._reach.write([SetData(path, grown.data(), stat.version)])
                break
            except NoNode as gone:
                raise UnknownTopicOrPartition(f"topic {name!r} does not exist") from gone
            except MultiFailed:
                continue
            except Unknown:
                await asyncio.sleep(RETRY_S)

    # --- delete ------------------------------------------------------------------------------------

    async def delete_topics(self, request: topics.DeleteTopicsRequest) -> topics.DeleteTopicsResponse:
        """Delete each topic, by its name or its id. Answered when nothing is left of it."""
        deadline = deadline_in(request.timeout_ms)
        wanted = [*request.topics, *(topics.DeleteTopicState(name=name) for name in request.topic_names)]
        results = await asyncio.gather(*(self._deleted(one, deadline) for one in wanted))
        return topics.DeleteTopicsResponse(responses=list(results))

    async def _deleted(self, wanted: topics.DeleteTopicState, deadline: float) -> topics.DeletableTopicResult:
        name, topic_id = wanted.name, wanted.topic_id
        try:
            topic = self._find(wanted)
            name, topic_id = topic.name, topic.id
            await self._finish(deadline, self._delete(topic), self._gone(topic))
        except NotController:
            raise
        except ApiError as error:
            return topics.DeletableTopicResult(
                name=name, topic_id=topic_id, error_code=error.code, error_message=error.message
            )
        return topics.DeletableTopicResult(name=name, topic_id=topic_id)

    def _find(self, wanted: topics.DeleteTopicState) -> Topic:
        if wanted.name is not None and wanted.topic_id != NO_UUID:
            raise InvalidRequest("a topic is named by its name or by its id, not by both")
        if wanted.name is not None:
            topic = self._state.topics.get(wanted.name)
            if topic is None:
                raise UnknownTopicOrPartition(f"topic {wanted.name!r} does not exist")
            return topic
        for topic in self._state.topics.values():
            if topic.id == wanted.topic_id:
                return topic
        raise UnknownTopicId(f"no topic has the id {wanted.topic_id}")

    async def _delete(self, topic: Topic) -> None:
        while True:
            try:
                await create_if_absent(self._reach.zk, documents.delete_topic_path(topic.name), b"")
                break
            except Unknown:
                await asyncio.sleep(RETRY_S)

    async def _gone(self, topic: Topic) -> None:
        def is_gone(state: ClusterState) -> bool:
            known = state.topics.get(topic.name)
            return known is None or known.id != topic.id

        await self._reach.until(is_gone)

    # --- leave -------------------------------------------------------------------------------------

    async def controlled_shutdown(self, broker: int, epoch: int) -> control.ControlledShutdownResponse:
        """Move leadership away from the broker. Answers with the partitions that others may still take over.

        When all brokers shut down together there are none, so that no broker waits for another.
        """
        known = self._state.brokers.get(broker)
        if known is None or epoch not in (known.epoch, NO_BROKER_EPOCH):
            raise StaleBrokerEpoch(f"broker {broker} is not registered with broker epoch {epoch}")
        if not self._reach.zk.connected:
            raise RequestTimedOut("ZooKeeper is not connected: leadership cannot be transferred")
        self._reach.post(plans.ShutdownWanted(broker, known.incarnation))

        def is_settled(state: ClusterState) -> bool:
            return not state.is_leaving(broker) or not any(
                broker in state.replicas(q) for q in state.in_flight
            )

        def has_begun(state: ClusterState) -> bool:
            return state.is_leaving(broker) or broker not in state.brokers

        async def settle() -> None:
            await self._reach.until(has_begun)
            await self._reach.until(is_settled)
            with suppress(TimeoutError):
                async with asyncio.timeout(HEARD_WITHIN_S):
                    await self._reach.all_told()

        await by(asyncio.get_running_loop().time() + SHUTDOWN_WAIT_S, settle())
        remaining = [
            control.RemainingPartition(topic_name=q.topic, partition_index=q.partition)
            for q in self._state.hosted_by(broker)
            if q in self._state.partitions and self._state.partitions[q].leader == broker
            if any(self._state.is_live(r) and not self._state.is_leaving(r) for r in self._state.replicas(q))
        ]
        return control.ControlledShutdownResponse(remaining_partitions=remaining)


def _document(topic: Topic) -> documents.TopicDocument:
    """The topic as its node holds it."""
    return documents.TopicDocument(
        topic_id=documents.uuid_to_text(topic.id),
        partitions={i: list(r) for i, r in topic.replicas.items()},
    )
