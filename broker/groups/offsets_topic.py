"""`__consumer_offsets`, the internal topic of groups and offsets: its partition count and its creation.

It is created when a client first looks for a coordinator, but only while at least
`offsets.topic.replication.factor` brokers are alive, as in Kafka. Created too early it would have one replica
for good, and all offsets would be lost with that replica.
Left to others: reaching the controller (forward.py), who leads its partitions (metadata/cache.py).
Why: docs/decisions/0047-offsets-wait-for-their-replicas.md
"""

from collections.abc import Awaitable, Callable
from typing import Any

import structlog

from ...base.types import TopicPartition
from ...protocol.errors import ErrorCode, RequestTimedOut
from ...protocol.messages.topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ..config.sections import GroupsConfig
from ..metadata.cache import Picture
from ..topic_names import OFFSETS_TOPIC

logger = structlog.get_logger(__name__)

CREATION_TIMEOUT_MS = 10_000

Submit = Callable[[CreateTopicsRequest, int], Awaitable[Any]]


class OffsetsTopic:
    """`__consumer_offsets`, as this broker sees it. `submit` is `forwarder.submit`."""

    def __init__(self, config: GroupsConfig, picture: Callable[[], Picture], submit: Submit) -> None:
        self._config = config
        self._picture = picture
        self._submit = submit
        self.is_creating = False
        self._told_of = (0, 0)

    @property
    def lacks_brokers(self) -> str | None:
        """Why the topic cannot be created now, and what to do; None if enough brokers are alive."""
        alive, wanted = len(self._picture().brokers), self._config.offsets_replication_factor
        if alive >= wanted:
            self._told_of = (0, 0)
            return None
        if self._told_of != (alive, wanted):
            self._told_of = (alive, wanted)
            logger.warning("offsets_topic_lacks_brokers", alive=alive, wanted=wanted)
        return (
            f"{OFFSETS_TOPIC} is not created before {wanted} brokers are alive; {alive} are. "
            "Start more, or lower offsets.topic.replication.factor"
        )

    def partition_count(self) -> int:
        """How many partitions it has, or will have once created."""
        known = self._picture().topics.get(OFFSETS_TOPIC)
        return max(known.partitions) + 1 if known is not None else self._config.offsets_partitions

    def is_gone(self, tp: TopicPartition) -> bool:
        """Whether this partition (of any topic) no longer exists."""
        return self._picture().lacks(tp)

    async def create(self) -> None:
        """One attempt; a client that needs the topic will ask again. The caller has set `is_creating`."""
        assert self.is_creating, "an attempt is already in progress"
        try:
            response = await self._submit(self._request(), CREATION_TIMEOUT_MS)
        except RequestTimedOut as error:
            logger.warning("offsets_topic_not_created", code=error.code.name, reason=error.message)
            return
        finally:
            self.is_creating = False
        for result in response.topics:
            if result.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                code = ErrorCode(result.error_code).name
                logger.warning("offsets_topic_not_created", code=code, reason=result.error_message)

    def _request(self) -> CreateTopicsRequest:
        configs = {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(self._config.offsets_segment_bytes),
        }
        topic = CreatableTopic(
            name=OFFSETS_TOPIC,
            num_partitions=self._config.offsets_partitions,
            replication_factor=self._config.offsets_replication_factor,
            configs=[CreatableTopicConfig(name=name, value=value) for name, value in configs.items()],
        )
        return CreateTopicsRequest(topics=[topic], timeout_ms=CREATION_TIMEOUT_MS)
