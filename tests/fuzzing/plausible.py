"""Puts values together that fit each other, so that a request is often accepted in full: a kind of resource
with its name, a setting with an operation and a value that it may have, replicas with brokers that there are.

Now and then one of them is wrong. Left to others: fields that stand alone (known.py), all else that may be
wrong (variants.py).
"""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from strandline.protocol.messages.cluster import DescribeConfigsResource
from strandline.protocol.messages.config_changes import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalConfig,
    IncrementalResource,
)
from strandline.protocol.messages.consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    HeartbeatTopicPartitions,
)
from strandline.protocol.messages.groups import JoinGroupRequest, JoinGroupRequestProtocol
from strandline.protocol.messages.inspection import InspectRequest
from strandline.protocol.messages.log_dirs import AlterReplicaLogDir, AlterReplicaLogDirTopic
from strandline.protocol.messages.producers import InitProducerIdRequest
from strandline.protocol.messages.reassignments import ReassignablePartition
from strandline.protocol.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsAssignment,
    CreatePartitionsTopic,
    DeleteTopicState,
)
from strandline.protocol.primitives import NO_UUID
from tests.fuzzing import values
from tests.fuzzing.known import OF_CONSUMERS, Known

WRONG = 0.06  # of each choice, the share that is beside all that there is


class Plausible:
    """Fills in what belongs together."""

    def __init__(self, random: Random, known: Known) -> None:
        self.random, self.known = random, known
        self._fits: dict[type, Callable[[Any, str], None]] = {
            IncrementalResource: self._altered,
            AlterConfigsResource: self._altered,
            DescribeConfigsResource: self._described,
            CreatableTopic: self._created,
            CreatePartitionsTopic: self._grown,
            DeleteTopicState: self._deleted,
            ReassignablePartition: self._moved,
            AlterReplicaLogDir: self._put,
            ConsumerGroupHeartbeatRequest: self._beating,
            JoinGroupRequest: self._joining,
            InitProducerIdRequest: self._producing,
            InspectRequest: self._inspecting,
        }

    def fits(self, cls: type) -> bool:
        """Whether messages of this class are filled in here."""
        return cls in self._fits

    def fit(self, message: Any, topic: str) -> None:
        """Fill it in."""
        self._fits[type(message)](message, topic)

    # --- settings ----------------------------------------------------------------------------------

    def _altered(self, asked: AlterConfigsResource | IncrementalResource, topic: str) -> None:
        kind = self._resource(asked, topic)
        count = self.random.choice((0, 1, 1, 1, 1, 1, 1, 1, 2, 2, 3))
        if isinstance(asked, AlterConfigsResource):
            asked.configs = [AlterableConfig(**self._setting(kind)) for _ in range(count)]
        else:
            asked.configs = [self._operation(kind) for _ in range(count)]

    def _resource(self, asked: Any, topic: str) -> int:
        kind: int = self._one(values.KINDS, values.NO_KINDS)
        if (
            kind in values.UNALTERED
            and isinstance(asked, AlterConfigsResource)
            and self.random.random() < 0.8
        ):
            kind = values.BROKER
        asked.resource_type, asked.resource_name = kind, self._resource_name(kind, topic)
        return kind

    def _resource_name(self, kind: int, topic: str) -> str:
        choice = self.random.choice
        if self.random.random() < WRONG:
            return choice((choice(values.ODD_NAMES), choice(values.NO_RESOURCES), topic))
        if kind == values.TOPIC:
            return topic if self.random.random() < 0.7 else self.known.topic(topic)
        if kind == values.GROUP:
            return self.known.group()
        if kind == values.BROKER and self.random.random() < 0.5:
            return ""
        return str(choice(self.known.brokers))

    def _setting(self, kind: int) -> dict[str, Any]:
        name = self._setting_name(kind)
        return {"name": name, "value": self._value(name)}

    def _setting_name(self, kind: int) -> str:
        way, choice = self.random.random(), self.random.choice
        if way < WRONG:
            return choice(values.OF_NOBODY)
        if way < 0.2:  # what exists, though perhaps of another kind of resource
            return choice(values.ALL_NAMES)
        if way < 0.35:
            return choice(values.SPECIAL)
        return choice(values.NAMES.get(kind, values.ALL_NAMES))

    def _value(self, name: str) -> str | None:
        way = self.random.random()
        if way < 0.03:
            return None
        if way < 0.12 or name not in values.VALUES:
            return self.random.choice(values.SOME_VALUES)
        return self.random.choice(values.VALUES[name])

    def _operation(self, kind: int) -> IncrementalConfig:
        operation = self._one(values.OPERATIONS, values.NO_OPERATIONS)
        given = self._setting(kind)
        if operation in values.OF_LISTS and self.random.random() < 0.8:
            name = self.random.choice(values.LISTS_OF.get(kind, values.LIST_SETTINGS))
            if self.random.random() < 0.4:
                name = self.random.choice(values.LIST_SETTINGS)
            given = {"name": name, "value": self._value(name)}
        return IncrementalConfig(config_operation=operation, **given)

    def _described(self, asked: DescribeConfigsResource, topic: str) -> None:
        kind = self._resource(asked, topic)
        if self.random.random() < 0.7:
            asked.configuration_keys = None
        else:
            asked.configuration_keys = [
                self._setting_name(kind) for _ in range(self.random.choice((0, 1, 2)))
            ]

    # --- topics ------------------------------------------------------------------------------------

    def _created(self, asked: CreatableTopic, topic: str) -> None:
        choice = self.random.choice
        asked.name = self._one((*values.MADE, topic), (*values.ODD_NAMES, *values.INTERNAL))
        asked.num_partitions, asked.replication_factor = choice(values.COUNTS), choice(values.FACTORS)
        asked.assignments = []
        if self.random.random() < 0.3:
            asked.num_partitions = asked.replication_factor = -1
            numbers: Sequence[int] = range(choice((1, 1, 2, 3)))
            if self.random.random() < 0.2:
                numbers = choice(((0, 0), (1, 2), (-1,), (values.INT32_MAX,), (1, 0)))
            size = choice((1, 1, 2))
            asked.assignments = [
                CreatableReplicaAssignment(partition_index=number, broker_ids=self._replicas(size))
                for number in numbers
            ]
        elif self.random.random() < 0.5:
            asked.num_partitions, asked.replication_factor = choice((-1, 1, 2, 3)), choice((-1, 1))
        count = choice((0, 0, 0, 1, 1, 2))
        asked.configs = [CreatableTopicConfig(**self._setting(values.TOPIC)) for _ in range(count)]

    def _grown(self, asked: CreatePartitionsTopic, topic: str) -> None:
        choice = self.random.choice
        asked.name, asked.count = self.known.topic(topic), choice(values.COUNTS)
        asked.assignments = None
        if self.random.random() < 0.3:
            size, count = choice((1, 1, 2)), choice((0, 1, 1, 2))
            asked.assignments = [
                CreatePartitionsAssignment(broker_ids=self._replicas(size)) for _ in range(count)
            ]

    def _deleted(self, asked: DeleteTopicState, topic: str) -> None:
        choice = self.random.choice
        asked.name, asked.topic_id = self._one(values.MADE, (topic, topic, *values.INTERNAL)), NO_UUID
        way = self.random.random()
        if way < 0.3:
            asked.name, asked.topic_id = None, self.known.topic_id(choice(values.MADE))
        elif way < 0.4:
            asked.topic_id = self.known.topic_id(choice(values.MADE))  # both
        elif way < 0.45:
            asked.name = None  # neither

    def _moved(self, asked: ReassignablePartition, topic: str) -> None:
        asked.partition_index = self._one((0, 1), values.PARTITIONS)
        asked.replicas = None
        if self.random.random() < 0.8:
            asked.replicas = self._replicas(self.random.choice((0, 1, 1, 2, 2, 3)))

    def _replicas(self, size: int) -> list[int]:
        """Brokers, mostly such as there are, and each once."""
        brokers = list(self.known.brokers)
        found = self.random.sample(brokers, min(size, len(brokers)))
        way = self.random.random()
        if way < 0.05:
            found += found[:1]
        elif way < 0.12:
            found.append(self.random.choice((-1, -2, 0, 99, values.INT32_MAX, -values.INT32_MAX - 1)))
        elif way < 0.13:
            found = [*range(2_000)]
        return found

    def _put(self, asked: AlterReplicaLogDir, topic: str) -> None:
        asked.path = self._one(self.known.directories, values.ODD_NAMES)
        partitions = [self.random.choice(values.PARTITIONS) for _ in range(self.random.choice((1, 1, 2)))]
        asked.topics = [AlterReplicaLogDirTopic(name=self.known.topic(topic), partitions=partitions)]

    # --- groups, producers -------------------------------------------------------------------------

    def _beating(self, asked: ConsumerGroupHeartbeatRequest, topic: str) -> None:
        """A member joins, goes on, or leaves."""
        choice, known = self.random.choice, self.known
        asked.group_id = choice((OF_CONSUMERS, OF_CONSUMERS, OF_CONSUMERS, known.group()))
        asked.member_id = choice(("", "m-1", "m-2", "m-3"))
        asked.member_epoch = choice((0, 0, 0, 1, -1, -2))
        asked.instance_id, asked.rack_id = choice((None, None, "s-1")), choice((None, None, "r1"))
        asked.rebalance_timeout_ms = choice((5, 100, 1_000, -1))
        names = [known.topic(topic) for _ in range(choice((0, 1, 1, 2)))]
        asked.subscribed_topic_names = choice((names, names, names, None))
        asked.subscribed_topic_regex = None
        if self.random.random() < 0.4:
            asked.subscribed_topic_regex = "".join(
                choice(values.PIECES_OF_EXPRESSIONS) for _ in range(choice((0, 1, 1, 2, 3, 5, 9)))
            )
        asked.server_assignor = choice((None, None, "uniform", "range", "x"))
        asked.topic_partitions = choice(([], [], None))
        if asked.member_epoch > 0:
            partitions = [choice((0, 0, 1, 7)) for _ in range(choice((0, 1, 2)))]
            owned = HeartbeatTopicPartitions(topic_id=known.topic_id(topic), partitions=partitions)
            asked.topic_partitions = choice(([owned], [owned, owned], [], None))

    def _joining(self, asked: JoinGroupRequest, topic: str) -> None:
        """A member joins, or joins again."""
        choice, known = self.random.choice, self.known
        asked.group_id, asked.member_id = known.group(), ""
        asked.session_timeout_ms = asked.rebalance_timeout_ms = choice((100, 100, 1))
        asked.group_instance_id, asked.protocol_type = choice((None, None, "s-1", "s-2")), "consumer"
        names = choice((("range",), ("range", "roundrobin"), ("range", "range"), ()))
        asked.protocols = [
            JoinGroupRequestProtocol(name=name, metadata=known.value("", "metadata", topic)) for name in names
        ]

    def _producing(self, asked: InitProducerIdRequest, topic: str) -> None:
        """A producer begins, or begins again."""
        asked.transactional_id = self.known.value("", "transactional_id", topic)
        if self.random.random() < 0.2:
            asked.transactional_id = None
        asked.transaction_timeout_ms = self._one((1_000,), (0, -1, 1, values.INT32_MAX))
        asked.producer_id = asked.producer_epoch = -1

    def _inspecting(self, asked: InspectRequest, topic: str) -> None:
        owner, choice = type(asked).__name__, self.random.choice
        asked.about = choice(("overview", self.known.value(owner, "about", topic)))
        asked.topic, asked.partition = self.known.topic(topic), choice(values.PARTITIONS)
        asked.name = choice(("", topic, *values.ODD_NAMES))
        asked.questions = self.known.value(owner, "questions", topic)

    def _one(self, usual: Sequence[Any], odd: Sequence[Any]) -> Any:
        return self.random.choice(odd if self.random.random() < WRONG else usual)
