"""BrokerConfig: the sections of a broker's options, put together and checked against each other.

An option is declared once, in its section (sections.py; of logs: storage/config.py; of listeners: here), with
Kafka's name, help, bounds, default, and whether changing it needs a restart. OPTIONS lists all of them. A
BrokerConfig is immutable: a change makes a new one (live.py).
Left to others: where the values come
from (files.py), the page about them (document.py).
"""

from collections.abc import Iterator
from functools import cached_property
from typing import Any, Self

from pydantic import BaseModel, Field, model_validator

from ...base.options import Option, option, options
from ...base.types import BrokerId
from ...base.values import dataclass
from ...replication.profiles import DEFAULT, PROFILES, Semantics
from ...storage.config import StorageConfig
from ..errors import BrokerConfigError
from .addresses import ADVERTISED, ListenerAddress, parse_endpoints, parse_place, wrong_advertised
from .profiles import with_defaults, wrong_profile
from .sections import (
    ControllerConfig,
    GroupsConfig,
    ReplicationConfig,
    TransactionsConfig,
    WebConfig,
    ZookeeperConfig,
)

INT32_MAX = (1 << 31) - 1
DEFAULT_LOG_DIRS = "/tmp/kafka-logs"  # Kafka's; many machines empty /tmp at boot


class BrokerConfig(BaseModel, frozen=True, extra="forbid"):
    """All options of a broker."""

    broker_id: int = option(
        ..., ge=0, le=INT32_MAX, kafka="broker.id", help="Id of this broker, unique in the cluster."
    )
    log_dirs: str = option(
        DEFAULT_LOG_DIRS,
        kafka="log.dirs",
        help="Log directories, separated by commas. No two brokers may share one.",
    )
    broker_rack: str | None = option(
        None,
        kafka="broker.rack",
        help="Rack of the broker. If all brokers have one, the replicas of new partitions and of "
        "generated plans are spread over the racks.",
    )
    listeners: str = option(
        "PLAINTEXT://127.0.0.1:9092",
        kafka="listeners",
        help=(
            "NAME://host:port, separated by commas. Without a host: 127.0.0.1; port 0: the system "
            "chooses one."
        ),
    )
    advertised_listeners: str | None = option(
        None,
        kafka=ADVERTISED,
        restart=False,
        help="Addresses that clients are told to connect to, one for each listener. Default: `listeners`. "
        "While brokers run it is changed for each broker by itself.",
    )
    listener_security_protocol_map: str = option(
        "PLAINTEXT:PLAINTEXT",
        kafka="listener.security.protocol.map",
        help=("NAME:PROTOCOL for each listener whose name is not a protocol. Only PLAINTEXT is supported."),
    )
    inter_broker_listener_name: str | None = option(
        None,
        kafka="inter.broker.listener.name",
        help="Listener for requests between brokers, which all others refuse. Default: PLAINTEXT, or "
        "the only listener.",
    )
    socket_request_max_bytes: int = option(
        100 << 20, ge=1, le=INT32_MAX, kafka="socket.request.max.bytes", help="Largest request in bytes."
    )
    queued_max_requests: int = option(
        500,
        ge=1,
        kafka="queued.max.requests",
        help=(
            "Requests that one connection may have in flight. At this limit the broker stops reading "
            "it until responses are sent."
        ),
    )
    queued_max_request_bytes: int = option(
        -1,
        ge=-1,
        kafka="queued.max.request.bytes",
        help="Memory for clients' requests that are being received. At this limit large requests wait "
        "unread; requests of brokers do not. -1: no limit.",
    )
    max_connections: int = option(
        INT32_MAX,
        ge=1,
        kafka="max.connections",
        help="Connections over all listeners; further ones are closed at once. On a listener of their "
        "own, brokers can always connect: the connection that has been idle longest is closed.",
    )
    connections_max_idle_ms: int = option(
        600_000,
        ge=1,
        kafka="connections.max.idle.ms",
        help="A connection is closed after it has been idle for this long.",
    )
    partial_frame_timeout_ms: int = option(
        30_000,
        ge=1,
        kafka="strandline.partial.frame.timeout.ms",
        help="Time within which a request must be received completely once it has begun.",
    )
    request_timeout_ms: int = option(
        30_000, ge=1, kafka="request.timeout.ms", help="Timeout of requests between brokers."
    )
    fetch_max_bytes: int = option(
        55 << 20, ge=1024, kafka="fetch.max.bytes", help="Largest response to a consumer's fetch in bytes."
    )
    fetch_session_slots_max: int = option(
        1000,
        ge=0,
        le=INT32_MAX,
        kafka="max.incremental.fetch.session.cache.slots",
        help="How many clients may have a fetch session, where they name only partitions that have moved on.",
    )
    partitions_per_request_max: int = option(
        2000,
        ge=1,
        kafka="max.request.partition.size.limit",
        help="Limits DescribeTopicPartitions, which is not supported here: without effect.",
    )
    auto_create_topics_enable: bool = option(
        True,
        kafka="auto.create.topics.enable",
        help="Whether a topic is created when a client asks for metadata of one that does not exist.",
    )
    controlled_shutdown_enable: bool = option(
        True,
        kafka="controlled.shutdown.enable",
        help="Transfer leadership to other brokers before stopping.",
    )
    controlled_shutdown_max_retries: int = option(
        3, ge=0, kafka="controlled.shutdown.max.retries", help="How often a controlled shutdown is retried."
    )
    controlled_shutdown_retry_backoff_ms: int = option(
        5_000,
        ge=0,
        kafka="controlled.shutdown.retry.backoff.ms",
        help="Pause between two attempts at a controlled shutdown.",
    )
    semantics_profile: str = option(
        DEFAULT,
        kafka="strandline.semantics.profile",
        help=f"Which rules apply where descriptions of Kafka disagree: {', '.join(PROFILES)} "
        "(docs/profiles.md). Must be the same on all brokers of a cluster.",
    )
    semantics_accept_loss: bool = option(
        False,
        kafka="strandline.semantics.accept.loss",
        help="Must be true to use a profile that loses acknowledged records: "
        f"{', '.join(each.name for each in PROFILES.values() if each.loses)}.",
    )
    storage: StorageConfig = Field(default_factory=StorageConfig)
    replication: ReplicationConfig = Field(default_factory=ReplicationConfig)
    groups: GroupsConfig = Field(default_factory=GroupsConfig)
    transactions: TransactionsConfig = Field(default_factory=TransactionsConfig)
    controller: ControllerConfig = Field(default_factory=ControllerConfig)
    web: WebConfig = Field(default_factory=WebConfig)
    zookeeper: ZookeeperConfig

    @property
    def semantics(self) -> Semantics:
        """The rules of the profile."""
        return PROFILES[self.semantics_profile]

    @property
    def id(self) -> BrokerId:
        """This broker's id."""
        return BrokerId(self.broker_id)

    @cached_property
    def directories(self) -> tuple[str, ...]:
        """The log directories in the order given; the first also holds the broker's own files."""
        return tuple(part.strip() for part in self.log_dirs.split(",") if part.strip())

    @cached_property
    def endpoints(self) -> tuple[ListenerAddress, ...]:
        """The addresses to bind."""
        return tuple(
            ListenerAddress(e.listener, e.host or "127.0.0.1", e.port)
            for e in parse_endpoints("listeners", self.listeners)
        )

    @cached_property
    def inter_broker_listener(self) -> str:
        """The name of the listener between brokers."""
        if self.inter_broker_listener_name is not None:
            return self.inter_broker_listener_name.upper()
        names = [e.listener for e in self.endpoints]
        return names[0] if len(names) == 1 else "PLAINTEXT"

    @cached_property
    def web_endpoint(self) -> ListenerAddress | None:
        """The address of the HTTP server; None if there is none."""
        text = self.web.listener.strip()
        if not text:
            return None
        host, port = parse_place("strandline.web.listener", text, text, "host:port")
        return ListenerAddress("web", host or "127.0.0.1", port)

    @property
    def web_hosts(self) -> frozenset[str]:
        """The names by which the HTTP server may be asked, beside IP addresses and the machine's own.

        Not cached: a copy with another `advertised.listeners` would inherit the names of this one.
        """
        given = self.advertised_listeners
        known = (*self.endpoints, *(parse_endpoints("advertised.listeners", given) if given else ()))
        further = (part.strip() for part in self.web.hosts.split(","))
        return frozenset(name.lower() for name in (*(each.host for each in known), *further) if name)

    def advertised(self, ports: dict[str, int]) -> tuple[ListenerAddress, ...]:
        """The addresses to register; `ports` are the bound ports, in case the system chose them."""
        given = self.advertised_listeners
        known = parse_endpoints(ADVERTISED, given) if given else self.endpoints
        return tuple(ListenerAddress(e.listener, e.host, e.port or ports[e.listener]) for e in known)

    @model_validator(mode="before")
    @classmethod
    def _with_the_defaults_of_its_profile(cls, given: Any) -> Any:
        return with_defaults(given) if isinstance(given, dict) else given

    @model_validator(mode="after")
    def _hangs_together(self) -> Self:
        try:
            found = list(contradictions(self))
        except BrokerConfigError as error:
            found = list(error.sentences)
        if found:
            raise ValueError("\n".join(found))
        return self


def contradictions(config: BrokerConfig) -> Iterator[str]:
    """Options that are wrong together, a sentence each."""
    yield from wrong_profile(config.semantics_profile, config.semantics_accept_loss)
    names = [e.listener for e in config.endpoints]
    yield from _wrong_listeners(config, names)
    web = config.web_endpoint
    if web is not None and web.port and (web.host, web.port) in [(e.host, e.port) for e in config.endpoints]:
        yield f"strandline.web.listener = {config.web.listener!r}: a listener of `listeners` has this address"
    if not config.directories:
        yield "log.dirs is empty: give at least one directory"
    if len(set(config.directories)) < len(config.directories):
        yield f"log.dirs = {config.log_dirs!r}: a directory is listed twice"
    replication = config.replication
    if replication.fetch_wait_max_ms >= replication.lag_time_max_ms:
        yield (
            f"replica.fetch.wait.max.ms = {replication.fetch_wait_max_ms}: must be less than "
            f"replica.lag.time.max.ms = {replication.lag_time_max_ms}, or idle followers would leave the ISR"
        )
    groups = config.groups
    if groups.session_timeout_ms_min > groups.session_timeout_ms_max:
        yield (
            f"group.min.session.timeout.ms = {groups.session_timeout_ms_min}: must not be more than "
            f"group.max.session.timeout.ms = {groups.session_timeout_ms_max}"
        )
    yield from _wrong_consumer_groups(groups)
    if not config.zookeeper.hosts.strip():
        yield "zookeeper.connect is empty: give host:port"


def _out_of_bounds(name: str, least: int, value: int, most: int) -> Iterator[str]:
    """Bounds of what single groups may have. As in Kafka, what holds for all others is within them too."""
    if not least <= value <= most:
        yield (
            f"group.consumer.{name} = {value}: must be from group.consumer.min.{name} = {least} to "
            f"group.consumer.max.{name} = {most}"
        )


def _wrong_consumer_groups(groups: GroupsConfig) -> Iterator[str]:
    yield from _out_of_bounds(
        "session.timeout.ms",
        groups.consumer_session_timeout_ms_min,
        groups.consumer_session_timeout_ms,
        groups.consumer_session_timeout_ms_max,
    )
    yield from _out_of_bounds(
        "heartbeat.interval.ms",
        groups.consumer_heartbeat_interval_ms_min,
        groups.consumer_heartbeat_interval_ms,
        groups.consumer_heartbeat_interval_ms_max,
    )
    if groups.consumer_heartbeat_interval_ms >= groups.consumer_session_timeout_ms:
        yield (
            f"group.consumer.heartbeat.interval.ms = {groups.consumer_heartbeat_interval_ms}: must be less "
            f"than group.consumer.session.timeout.ms = {groups.consumer_session_timeout_ms}"
        )
    names = groups.consumer_assignor_names
    if not names or len(set(names)) < len(names) or not set(names) <= {"uniform", "range"}:
        yield (
            f"group.consumer.assignors = {groups.consumer_assignors!r}: expected uniform, range or both, the "
            "default first"
        )
    policies = ("bidirectional", "upgrade", "downgrade", "disabled")
    if groups.consumer_migration_policy not in policies:
        yield (
            f"group.consumer.migration.policy = {groups.consumer_migration_policy!r}: expected one of "
            f"{', '.join(policies)}"
        )
    protocols = {each.strip().lower() for each in groups.rebalance_protocols.split(",")}
    if not {"classic"} <= protocols <= {"classic", "consumer"}:
        yield (
            f"group.coordinator.rebalance.protocols = {groups.rebalance_protocols!r}: expected "
            "classic,consumer or classic"
        )


def _wrong_listeners(config: BrokerConfig, names: list[str]) -> Iterator[str]:
    for name in sorted({n for n in names if names.count(n) > 1}):
        yield f"listeners = {config.listeners!r}: {name} is listed twice"
    places = [(e.host, e.port) for e in config.endpoints if e.port]
    for host, port in sorted({p for p in places if places.count(p) > 1}):
        yield f"listeners = {config.listeners!r}: two listeners have the address {host}:{port}"
    protocols = _protocols(config.listener_security_protocol_map)
    for name in names:
        protocol = protocols.get(name, name)
        if protocol in ("SSL", "SASL_PLAINTEXT", "SASL_SSL"):
            yield f"listener {name} has security protocol {protocol}: only PLAINTEXT is supported"
        elif protocol != "PLAINTEXT":
            yield (
                f"listener {name} has no security protocol: add {name}:PLAINTEXT to "
                "listener.security.protocol.map"
            )
    if config.inter_broker_listener not in names:
        yield (
            f"inter.broker.listener.name = {config.inter_broker_listener}: expected one of the "
            f"listeners {', '.join(names)}"
        )
    given = config.advertised_listeners
    yield from wrong_advertised(
        given, parse_endpoints(ADVERTISED, given) if given else config.endpoints, names
    )


def _protocols(text: str) -> dict[str, str]:
    pairs = (part.partition(":") for part in text.split(",") if part.strip())
    return {name.strip().upper(): protocol.strip().upper() for name, _, protocol in pairs}


SECTIONS: dict[str, type[BaseModel]] = {
    "storage": StorageConfig,
    "replication": ReplicationConfig,
    "groups": GroupsConfig,
    "transactions": TransactionsConfig,
    "controller": ControllerConfig,
    "web": WebConfig,
    "zookeeper": ZookeeperConfig,
}


@dataclass(frozen=True, slots=True)
class OptionPlace:
    """An option and its section; an empty section is BrokerConfig itself."""

    section: str
    option: Option

    def value(self, config: BrokerConfig) -> Any:
        """Its value in `config`."""
        return getattr(self._branch(config), self.option.field)

    def is_given(self, config: BrokerConfig) -> bool:
        """Whether `config` was given a value, even if it is the default."""
        return self.option.field in self._branch(config).model_fields_set

    def _branch(self, config: BrokerConfig) -> BaseModel:
        branch: BaseModel = getattr(config, self.section) if self.section else config
        return branch


OPTIONS: dict[str, OptionPlace] = {
    place.option.kafka: place
    for place in (
        *(OptionPlace("", o) for o in options(BrokerConfig)),
        *(OptionPlace(section, o) for section, model in SECTIONS.items() for o in options(model)),
    )
    if place.option.kafka
}
