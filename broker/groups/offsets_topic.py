"""The internal topic in which groups and their offsets are kept: how many partitions, and how it comes to be.

It is created when somebody first looks for a coordinator. Kafka refuses that while fewer brokers are alive
than `offsets.topic.replication.factor` says; we take as many replicas as there are brokers, with a warning.
Left to others: reaching the controller (forward.py), who leads its partitions (metadata.py).
"""

from collections.abc import Awaitable, Callable
from typing import Any

import structlog

from ...protocol.errors import ErrorCode, RequestTimedOut
from ...protocol.messages.topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ..config_sections import GroupsConfig
from ..metadata import Picture
from ..topic_names import OFFSETS_TOPIC

log = structlog.get_logger(__name__)

CREATION_TIMEOUT_MS = 10_000

Submit = Callable[[CreateTopicsRequest, int], Awaitable[Any]]


class OffsetsTopic:
    """`__consumer_offsets`, as this broker sees it. `submit` is `forwarder.submit`."""

    def __init__(self, config: GroupsConfig, picture: Callable[[], Picture], submit: Submit) -> None:
        self._config = config
        self._picture = picture
        self._submit = submit
        self.is_creating = False

    def partition_count(self) -> int:
        """What it has, or will have when it is created."""
        known = self._picture().topics.get(OFFSETS_TOPIC)
        return max(known.partitions) + 1 if known is not None else self._config.offsets_partitions

    async def create(self) -> None:
        """One attempt; whoever needs the topic asks again. The caller has set `is_creating`."""
        assert self.is_creating, "one attempt at a time"
        try:
            response = await self._submit(self._request(), CREATION_TIMEOUT_MS)
        except RequestTimedOut as error:
            log.warning("offsets_topic_not_created", code=error.code.name, reason=error.message)
            return
        finally:
            self.is_creating = False
        for result in response.topics:
            if result.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                code = ErrorCode(result.error_code).name
                log.warning("offsets_topic_not_created", code=code, reason=result.error_message)

    def _request(self) -> CreateTopicsRequest:
        wanted = self._config.offsets_replication_factor
        replicas = min(wanted, max(len(self._picture().brokers), 1))
        if replicas < wanted:
            log.warning("offsets_topic_has_few_replicas", replicas=replicas, wanted=wanted)
        configs = {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(self._config.offsets_segment_bytes),
        }
        topic = CreatableTopic(
            name=OFFSETS_TOPIC,
            num_partitions=self._config.offsets_partitions,
            replication_factor=replicas,
            configs=[CreatableTopicConfig(name=name, value=value) for name, value in configs.items()],
        )
        return CreateTopicsRequest(topics=[topic], timeout_ms=CREATION_TIMEOUT_MS)
