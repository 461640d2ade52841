"""An internal topic (`__consumer_offsets`, `__transaction_state`): its partition count and its creation.

It is created when a client first looks for a coordinator, but only while at least as many brokers are alive
as it is to have replicas, as in Kafka. Created too early it would have one replica for good, and all that it
holds would be lost with that replica.
Left to others: reaching the controller (forward.py), who leads its partitions (metadata/cache.py).
Why: docs/decisions/0047-offsets-wait-for-their-replicas.md
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import structlog

from ...base.types import TopicPartition
from ...base.values import dataclass
from ...protocol.errors import ErrorCode, RequestTimedOut
from ...protocol.messages.topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ..config.sections import GroupsConfig, TransactionsConfig
from ..metadata.cache import Picture
from ..topic_names import OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC

logger = structlog.get_logger(__name__)

CREATION_TIMEOUT_MS = 10_000

Submit = Callable[[CreateTopicsRequest, int], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """What an internal topic is to be like. `factor_option` sets its replication factor."""

    name: str
    partitions: int
    replication_factor: int
    factor_option: str
    settings: Mapping[str, str]


def offsets_topic(config: GroupsConfig) -> TopicPlan:
    """`__consumer_offsets`: the state of groups, and what they have read."""
    return TopicPlan(
        name=OFFSETS_TOPIC,
        partitions=config.offsets_partitions,
        replication_factor=config.offsets_replication_factor,
        factor_option="offsets.topic.replication.factor",
        settings={
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(config.offsets_segment_bytes),
        },
    )


def transaction_state_topic(config: TransactionsConfig) -> TopicPlan:
    """`__transaction_state`: the state of transactional ids. It is never compressed nor led by a replica that
    may lack records, as in Kafka.
    """
    return TopicPlan(
        name=TRANSACTION_STATE_TOPIC,
        partitions=config.log_partitions,
        replication_factor=config.log_replication_factor,
        factor_option="transaction.state.log.replication.factor",
        settings={
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "min.insync.replicas": str(min(config.log_min_isr, config.log_replication_factor)),
            "segment.bytes": str(config.log_segment_bytes),
            "unclean.leader.election.enable": "false",
        },
    )


class InternalTopic:
    """One internal topic, as this broker sees it. `submit` is `forwarder.submit`."""

    def __init__(self, plan: TopicPlan, picture: Callable[[], Picture], submit: Submit) -> None:
        self._plan = plan
        self._picture = picture
        self._submit = submit
        self.is_creating = False
        self._told_of = (0, 0)

    @property
    def name(self) -> str:
        return self._plan.name

    @property
    def lacks_brokers(self) -> str | None:
        """Why the topic cannot be created now, and what to do; None if enough brokers are alive."""
        alive, wanted = len(self._picture().brokers), self._plan.replication_factor
        if alive >= wanted:
            self._told_of = (0, 0)
            return None
        if self._told_of != (alive, wanted):
            self._told_of = (alive, wanted)
            logger.warning("internal_topic_lacks_brokers", topic=self.name, alive=alive, wanted=wanted)
        return (
            f"{self.name} is not created before {wanted} brokers are alive; {alive} are. "
            f"Start more, or lower {self._plan.factor_option}"
        )

    def partition_count(self) -> int:
        """How many partitions it has, or will have once created."""
        known = self._picture().topics.get(self.name)
        return max(known.partitions) + 1 if known is not None else self._plan.partitions

    def is_gone(self, tp: TopicPartition) -> bool:
        """Whether this partition (of any topic) no longer exists."""
        return self._picture().lacks(tp)

    async def create(self) -> None:
        """One attempt; a client that needs the topic will ask again. The caller has set `is_creating`."""
        assert self.is_creating, "an attempt is already in progress"
        try:
            response = await self._submit(self._request(), CREATION_TIMEOUT_MS)
        except RequestTimedOut as error:
            self._not_created(error.code, error.message)
            return
        finally:
            self.is_creating = False
        for result in response.topics:
            if result.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                self._not_created(ErrorCode(result.error_code), result.error_message)

    def _not_created(self, code: ErrorCode, reason: str | None) -> None:
        logger.warning("internal_topic_not_created", topic=self.name, code=code.name, reason=reason)

    def _request(self) -> CreateTopicsRequest:
        settings = self._plan.settings.items()
        topic = CreatableTopic(
            name=self.name,
            num_partitions=self._plan.partitions,
            replication_factor=self._plan.replication_factor,
            configs=[CreatableTopicConfig(name=name, value=value) for name, value in settings],
        )
        return CreateTopicsRequest(topics=[topic], timeout_ms=CREATION_TIMEOUT_MS)
