"""The paths and JSON documents in ZooKeeper: those of Kafka 3.9, and what Strandline adds to them.

Kafka's tools read these nodes, so names and shapes are Kafka's. They ignore our additional keys
(`incarnation`, `intact_since`, `isr_epochs`).
Left to others: reading and writing them (`znodes.py`).
"""

from __future__ import annotations

import base64
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote, unquote
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ..base.types import TopicPartition

CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
CLUSTER_ID = "/cluster/id"
BROKER_IDS = "/brokers/ids"
BROKER_INCARNATIONS = "/brokers/incarnations"
TOPICS = "/brokers/topics"
TOPIC_VERSION = 3  # of a topic's document: the first with an id
TOPIC_CONFIGS = "/config/topics"
BROKER_CONFIGS = "/config/brokers"
GROUP_CONFIGS = "/config/groups"  # Kafka's word, but its brokers with ZooKeeper have no such settings
CONFIG_CHANGES = "/config/changes"
CONFIG_CHANGE_PREFIX = CONFIG_CHANGES + "/config_change_"
ALL_BROKERS = "<default>"  # below BROKER_CONFIGS: the defaults of all brokers
DELETE_TOPICS = "/admin/delete_topics"
PREFERRED_ELECTION = "/admin/preferred_replica_election"
PREFERRED_ELECTION_ALIAS = "/admin/preferred-replica-election"  # the spelling in one Kafka document
REASSIGN_PARTITIONS = "/admin/reassign_partitions"
ISR_CHANGES = "/isr_change_notification"
ISR_CHANGE_PREFIX = ISR_CHANGES + "/isr_change_"
LOG_DIR_EVENTS = "/log_dir_event_notification"
LOG_DIR_EVENT_PREFIX = LOG_DIR_EVENTS + "/log_dir_event_"
PRODUCER_IDS = "/latest_producer_id_block"
STRANDLINE = "/strandline"  # nodes that Kafka does not have
CHALLENGES = STRANDLINE + "/challenges"
LIVES = STRANDLINE + "/topics"  # one node for each topic id

PERSISTENT_PATHS = (
    "/cluster", "/brokers", BROKER_IDS, BROKER_INCARNATIONS, TOPICS, "/config", TOPIC_CONFIGS, BROKER_CONFIGS,
    GROUP_CONFIGS, CONFIG_CHANGES, "/admin", DELETE_TOPICS, ISR_CHANGES, LOG_DIR_EVENTS,
    STRANDLINE, CHALLENGES, LIVES,
)  # fmt: skip

SECURITY_PROTOCOLS = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}
WHOLE_NUMBER = r"^-?\d{1,19}$"
INTACT_EXCEPTIONS_MAX = 100  # doubtful replicas listed one by one; with more, all of the broker is in doubt

D = TypeVar("D", bound="Document")


class BadDocument(ValueError):
    """A node's content cannot be parsed; its owner counts as offline."""


class Document(BaseModel):
    """A JSON node. Unknown keys are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)

    def data(self) -> bytes:
        """The bytes of the node."""
        return self.model_dump_json(exclude_none=True).encode()


def parse(kind: type[D], data: bytes) -> D:
    """Read a document, or raise `BadDocument`."""
    try:
        return kind.model_validate_json(data)
    except ValidationError as error:
        raise BadDocument(f"{kind.__name__}: {error.error_count()} errors in {data[:200]!r}") from error


class Endpoint(NamedTuple):
    """The address of one listener of a broker."""

    listener: str
    host: str
    port: int
    security_protocol: str = "PLAINTEXT"

    @property
    def security_code(self) -> int:
        """Kafka's number for the security protocol."""
        return SECURITY_PROTOCOLS.get(self.security_protocol, 0)


class RegistrationDocument(Document):
    """`/brokers/ids/N`: version 5 as Kafka writes it, with the incarnation and the proof of intactness."""

    version: int = 5
    host: str | None = None
    port: int = -1
    jmx_port: int = -1
    timestamp: str = "0"
    endpoints: list[str] = Field(default_factory=list)
    listener_security_protocol_map: dict[str, str] = Field(default_factory=dict)
    features: dict[str, dict[str, int]] = Field(default_factory=dict)
    rack: str | None = None
    incarnation: int = -1
    intact_since: int = 1 << 62  # without this key a broker is not intact
    intact_since_of: dict[str, int] = Field(default_factory=dict)
    leaving: bool | None = None  # it is shutting down; absent otherwise
    profile: str | None = None  # of semantics; not checked if absent

    @property
    def is_kafkas(self) -> bool:
        """Whether a broker of Apache Kafka wrote it: it does not count its starts."""
        return self.incarnation < 0

    @classmethod
    def of(
        cls,
        endpoints: list[Endpoint],
        timestamp_ms: int,
        incarnation: int,
        intact_since: int,
        intact_since_of: dict[str, int] | None = None,
        rack: str | None = None,
        leaving: bool = False,
        profile: str | None = None,
    ) -> RegistrationDocument:
        """Describe a broker; `host` and `port` repeat the first plaintext listener for old tools."""
        return cls(
            **_places(endpoints),
            timestamp=str(timestamp_ms),
            rack=rack,
            incarnation=incarnation,
            intact_since=intact_since,
            intact_since_of=intact_since_of or {},
            leaving=leaving or None,
            profile=profile,
        )

    def moved(self, endpoints: list[Endpoint]) -> RegistrationDocument:
        """The same start of the broker, at other addresses."""
        return self.model_copy(update=_places(endpoints))

    def listeners(self) -> list[Endpoint]:
        """The endpoints, parsed. Raises `BadDocument`."""
        return [self._endpoint(url) for url in self.endpoints]

    def _endpoint(self, url: str) -> Endpoint:
        listener, scheme, address = url.partition("://")
        host, colon, port = address.rpartition(":")
        if not (scheme and colon and port.isdigit()):
            raise BadDocument(f"endpoint {url!r}: expected LISTENER://host:port")
        protocol = self.listener_security_protocol_map.get(listener, listener)
        return Endpoint(listener, host.strip("[]"), int(port), protocol)


def _places(endpoints: list[Endpoint]) -> dict[str, Any]:
    plain = next((e for e in endpoints if e.security_protocol == "PLAINTEXT"), None)
    return {
        "host": plain.host if plain else None,
        "port": plain.port if plain else -1,
        "endpoints": [f"{e.listener}://{e.host}:{e.port}" for e in endpoints],
        "listener_security_protocol_map": {e.listener: e.security_protocol for e in endpoints},
    }


class IncarnationDocument(Document):
    """`/brokers/incarnations/N`: how often the broker has started, and with which log directories."""

    incarnation: int = 0
    dirs: dict[str, int] = Field(default_factory=dict)


class ChallengeDocument(Document):
    """`/strandline/challenges/N`: the last nonce put to broker N, and the last one that it answered.

    The node belongs to one start (incarnation) of the broker and says nothing about another one. A nonce
    names the session that asks and the version of the node, so no two are equal.
    """

    version: int = 1
    incarnation: int
    asked: str = ""
    answered: str = ""

    @property
    def is_open(self) -> bool:
        """Whether a question waits for its answer."""
        return self.asked != self.answered

    def closed(self) -> ChallengeDocument:
        """The same, answered."""
        return self.model_copy(update={"answered": self.asked})


class ControllerDocument(Document):
    """`/controller`, version 1 (version 2 is read too)."""

    version: int = 1
    brokerid: int
    timestamp: str = "0"


class TopicDocument(Document):
    """`/brokers/topics/T`, version 3: the replicas of each partition."""

    version: int = TOPIC_VERSION
    topic_id: str | None = None
    partitions: dict[int, list[int]]
    adding_replicas: dict[int, list[int]] = Field(default_factory=dict)
    removing_replicas: dict[int, list[int]] = Field(default_factory=dict)
    origin_replicas: dict[int, list[int]] | None = None  # ours: the replicas before a move, in order

    @property
    def uuid(self) -> UUID:
        """The topic's id; all zero if a tool without ids wrote the node, and no controller has seen it."""
        return UUID(int=0) if self.topic_id is None else uuid_from_text(self.topic_id)


class StateDocument(Document):
    """`…/partitions/P/state`: leader and ISR, and for each ISR member the incarnation that joined it."""

    version: int = 1
    leader: int
    leader_epoch: int
    isr: list[int]
    controller_epoch: int
    isr_epochs: dict[int, int] = Field(default_factory=dict)
    leader_recovery_state: int = 0

    def data(self) -> bytes:
        """As Kafka writes it: without empty keys (no recovery, no incarnation known)."""
        silent = {name for name in ("isr_epochs", "leader_recovery_state") if not getattr(self, name)}
        return self.model_dump_json(exclude=silent).encode()


class ConfigDocument(Document):
    """`/config/topics/T` and its like: overrides by name."""

    version: int = 1
    config: dict[str, str] = Field(default_factory=dict)


class ConfigChangeDocument(Document):
    """`/config/changes/config_change_…`: these overrides have changed; version 1 has two keys for it."""

    version: int = 2
    entity_path: str | None = None
    entity_type: str | None = None
    entity_name: str | None = None

    @property
    def path(self) -> str:
        """`topics/T`, `brokers/N` or another kind of settings."""
        return self.entity_path or f"{self.entity_type}/{self.entity_name}"


class ReassignmentEntry(Document):
    """One entry of a reassignment: a partition and its new replicas."""

    topic: str
    partition: int
    replicas: list[int]

    @property
    def place(self) -> TopicPartition:
        """The partition of this entry."""
        return TopicPartition(self.topic, self.partition)


class ReassignmentDocument(Document):
    """`/admin/reassign_partitions`, and the file of Kafka's tool: partitions to be moved."""

    version: int = 1
    partitions: list[ReassignmentEntry]


class ClusterIdDocument(Document):
    """`/cluster/id`. The profile is ours: the semantics that all brokers follow."""

    version: str = "1"
    id: str
    profile: str | None = None


class ProducerIdBlock(Document):
    """`/latest_producer_id_block`: the last block that was given out."""

    version: int = 1
    broker: int
    block_start: str
    block_end: str = Field(pattern=WHOLE_NUMBER)  # the last one of the block


class ChangedPartition(Document):
    """One entry of an ISR notification."""

    topic: str
    partition: int


class IsrChangeDocument(Document):
    """`/isr_change_notification/isr_change_…`: partitions whose leader wrote a new ISR."""

    version: int = 1
    partitions: list[ChangedPartition]


class PreferredElectionDocument(Document):
    """`/admin/preferred_replica_election` or its alias: elect the first replica of these partitions."""

    version: int = 1
    partitions: list[ChangedPartition]


class LogDirEventDocument(Document):
    """`/log_dir_event_notification/log_dir_event_…`: this broker must be asked which replicas it can serve.

    In Kafka it means a failed directory; ours may also mean one that is full, or has room again.
    """

    version: int = 1
    broker: int
    event: int = 1


def broker_path(broker: int) -> str:
    """The ephemeral node of a registered broker."""
    return f"{BROKER_IDS}/{broker}"


def incarnation_path(broker: int) -> str:
    """The node that counts the starts of a broker; its data version equals the incarnation."""
    return f"{BROKER_INCARNATIONS}/{broker}"


def failed_dirs_path(broker: int) -> str:
    """The parent of one node per failed log directory."""
    return f"{BROKER_INCARNATIONS}/{broker}/failed_dirs"


def challenge_path(broker: int) -> str:
    """The node in which a broker is asked whether it is alive."""
    return f"{CHALLENGES}/{broker}"


def topic_path(topic: str) -> str:
    """The assignment of a topic."""
    return f"{TOPICS}/{topic}"


def life_path(topic_id: UUID) -> str:
    """Exists as long as the topic with this id; another topic of the same name has another node."""
    return f"{LIVES}/{uuid_to_text(topic_id)}"


def partitions_path(topic: str) -> str:
    """The parent of a topic's partitions."""
    return f"{TOPICS}/{topic}/partitions"


def partition_path(partition: TopicPartition) -> str:
    """The parent of one partition's state."""
    return f"{TOPICS}/{partition.topic}/partitions/{partition.partition}"


def state_path(partition: TopicPartition) -> str:
    """Leader and ISR of a partition."""
    return partition_path(partition) + "/state"


def partition_of_state(path: str) -> TopicPartition | None:
    """The partition whose state is at this path; None for any other path."""
    parts = path.removeprefix(TOPICS + "/").split("/")
    is_state = len(parts) == 4 and (parts[1], parts[3]) == ("partitions", "state") and parts[2].isdigit()
    return TopicPartition(parts[0], int(parts[2])) if is_state else None


def topic_config_path(topic: str) -> str:
    """The overrides of a topic."""
    return f"{TOPIC_CONFIGS}/{topic}"


def broker_config_path(broker: int | str) -> str:
    """The overrides of one broker, or of ALL_BROKERS."""
    return f"{BROKER_CONFIGS}/{broker}"


def group_config_path(group: str) -> str:
    """The overrides of a group. Its name may hold anything, so it is quoted, as users' names are in Kafka."""
    return f"{GROUP_CONFIGS}/{quoted(group)}"


def quoted(name: str) -> str:
    """A name as that of a node: percent-encoded, and neither `.` nor `..`."""
    return quote(name, safe="") if name.strip(".") else name.replace(".", "%2E")


def unquoted(name: str) -> str:
    """The reverse. Raises `BadDocument`."""
    try:
        return unquote(name, errors="strict")
    except UnicodeDecodeError as error:
        raise BadDocument(f"node {name!r}: expected percent-encoded UTF-8") from error


def delete_topic_path(topic: str) -> str:
    """Exists while the topic is to be deleted."""
    return f"{DELETE_TOPICS}/{topic}"


def uuid_to_text(value: UUID) -> str:
    """Kafka's spelling of an id: 22 characters of URL-safe base64."""
    return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")


def uuid_from_text(text: str) -> UUID:
    """The reverse. Raises `BadDocument`."""
    try:
        return UUID(bytes=base64.urlsafe_b64decode(text + "=="))
    except ValueError as error:
        raise BadDocument(f"id {text!r}: expected a base64 UUID") from error
