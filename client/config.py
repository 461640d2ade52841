"""The options of clients: ClientConfig, ProducerConfig, ConsumerConfig.

Names and defaults are Kafka's, with underscores, where Kafka has them. An unknown name is refused with the
nearest known one; a bad value is refused with its name, value and bounds.
"""

from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from ssl import SSLContext
from typing import Any, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from .interceptors import ConsumerInterceptor, ProducerInterceptor
from .serializers import Deserializer, Serializer

C = TypeVar("C", bound="ClientConfig")

Codec = Literal["none", "gzip", "snappy", "lz4", "zstd"]
Partitioner = Callable[[bytes | None, int], int]
Strategy = Literal["range", "roundrobin", "sticky", "cooperative-sticky"]

INT_MAX = (1 << 31) - 1  # on the wire each of these numbers is an int32
CODECS_OWN_LEVEL = -1  # as Kafka and librdkafka say it of gzip and lz4; zstd has such a level
LEVELS = {"gzip": (CODECS_OWN_LEVEL, 9), "lz4": (CODECS_OWN_LEVEL, 17), "zstd": (-131_072, 22)}


class ConfigError(ValueError):
    """A client was given an option that does not exist, or a value that it cannot take."""


class ClientConfig(BaseModel):
    """The options of every client: where the cluster is, and how long to wait for it."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    bootstrap_servers: tuple[str, ...] = Field(min_length=1)
    client_id: str = "strandline"
    request_timeout_ms: int = Field(30_000, ge=1, le=INT_MAX)
    default_api_timeout_ms: int = Field(60_000, ge=1)
    retry_backoff_ms: int = Field(50, ge=1)
    retry_backoff_max_ms: int = Field(1_000, ge=1)
    metadata_max_age_ms: int = Field(300_000, ge=1)
    socket_connection_setup_timeout_ms: int = Field(3_000, ge=1)
    allow_auto_create_topics: bool = True
    ssl: SSLContext | None = None

    @field_validator("bootstrap_servers", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        if isinstance(value, str):
            value = [part.strip() for part in value.split(",") if part.strip()]
        for part in value if isinstance(value, (list, tuple)) else ():
            parse_address(part)
        return value

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """The bootstrap servers as (host, port)."""
        return [parse_address(part) for part in self.bootstrap_servers]


class ProducerConfig(ClientConfig):
    """Batching, acknowledgement, idempotence, and how long a record may take."""

    acks: Literal["all", -1, 0, 1, "0", "1", "-1"] = "all"
    enable_idempotence: bool = True
    linger_ms: float = Field(0, ge=0)
    batch_size: int = Field(16_384, ge=1)
    list_batch_size: int = Field(1 << 18, ge=1)  # of a list that comes whole, which needs not be waited for
    buffer_memory: int = Field(32 << 20, ge=1)
    max_block_ms: int = Field(60_000, ge=0)
    max_request_size: int = Field(1 << 20, ge=1)
    max_in_flight: int = Field(5, ge=1, le=100)
    compression_type: Codec = "none"
    compression_level: int | None = None
    delivery_timeout_ms: int = Field(120_000, ge=1)
    retries: int | None = Field(None, ge=0)  # None: until delivery_timeout_ms
    serializer: str | Serializer = "bytes"
    key_serializer: str | Serializer = "str"
    partitioner: Partitioner | None = None
    interceptors: tuple[ProducerInterceptor, ...] = ()
    transactional_id: str | None = Field(None, min_length=1)
    transaction_timeout_ms: int = Field(60_000, ge=1, le=INT_MAX)
    ask_durability: bool = False  # have the leader tell who had each batch when it was acknowledged

    @model_validator(mode="before")
    @classmethod
    def _settle_idempotence(cls, values: Any) -> Any:
        """As in Kafka, conflicting options turn idempotence off silently, unless it was set explicitly."""
        values = _acks_by_todays_name(values)
        if not isinstance(values, dict) or "enable_idempotence" in values:
            return values
        weak = values.get("acks", "all") not in ("all", -1, "-1")
        flood = isinstance(values.get("max_in_flight"), int) and values["max_in_flight"] > 5
        return {**values, "enable_idempotence": not (weak or flood)}

    @model_validator(mode="after")
    def _check_idempotence(self) -> Self:
        if self.enable_idempotence and self.required_acks != -1:
            raise ValueError("enable_idempotence needs acks='all'")
        if self.enable_idempotence and self.max_in_flight > 5:
            raise ValueError("enable_idempotence needs max_in_flight <= 5")
        if self.transactional_id is not None and not self.enable_idempotence:
            raise ValueError("transactional_id needs enable_idempotence, with acks='all', max_in_flight <= 5")
        return self

    @model_validator(mode="after")
    def _check_linger(self) -> Self:
        if self.linger_ms >= self.delivery_timeout_ms:
            raise ValueError(
                f"linger_ms={self.linger_ms:g} must be less than delivery_timeout_ms="
                f"{self.delivery_timeout_ms}: records would be given up before they are sent"
            )
        return self

    @model_validator(mode="after")
    def _check_durability(self) -> Self:
        if self.ask_durability and self.required_acks != -1:
            raise ValueError("ask_durability needs acks='all': otherwise only the leader is waited for")
        return self

    @model_validator(mode="after")
    def _check_level(self) -> Self:
        low, high = LEVELS.get(self.compression_type, (None, None))
        level = self.compression_level
        if level is not None and low is not None and high is not None and not low <= level <= high:
            raise ValueError(
                f"compression_level={level}: expected {low} to {high} for {self.compression_type}"
            )
        return self

    @property
    def level(self) -> int | None:
        """The level for the codec; None for its default."""
        own = self.compression_level == CODECS_OWN_LEVEL and self.compression_type != "zstd"
        return None if own else self.compression_level

    @property
    def bulk_batch_size(self) -> int:
        """How large the batches of whole lists are: as wanted, if buffer memory has room for some of them."""
        fair = min(self.list_batch_size, self.buffer_memory // 8, self.max_request_size)
        return max(fair, self.batch_size)

    @property
    def required_acks(self) -> int:
        """The number on the wire: -1 means all in-sync replicas."""
        return -1 if self.acks == "all" else int(self.acks)


OLD_NAMES_OF_ACKS = ("request.required.acks", "request_required_acks", "required.acks", "required_acks")


def _acks_by_todays_name(values: Any) -> Any:
    """Rename old names of acks: Kafka's Scala producer and librdkafka have request.required.acks, old
    documents required.acks.
    """
    if not isinstance(values, dict):
        return values
    given = [name for name in OLD_NAMES_OF_ACKS if name in values]
    if not given:
        return values
    if len(given) + ("acks" in values) > 1:
        raise ValueError(f"{', '.join(given)} is an old name of acks: give only one")
    rest = {name: value for name, value in values.items() if name != given[0]}
    return {**rest, "acks": values[given[0]]}


class ConsumerConfig(ClientConfig):
    """What to read, from where, how much at once, and membership of a group."""

    group: str | None = Field(None, min_length=1)
    group_instance_id: str | None = Field(None, min_length=1)
    auto_offset_reset: Literal["earliest", "latest", "none"] = "latest"
    enable_auto_commit: bool = True
    auto_commit_interval_ms: int = Field(5_000, ge=1)
    isolation_level: Literal["read_uncommitted", "read_committed"] = "read_uncommitted"
    fetch_min_bytes: int = Field(1, ge=0, le=INT_MAX)
    fetch_max_wait_ms: int = Field(500, ge=0, le=INT_MAX)
    fetch_max_bytes: int = Field(50 << 20, ge=1)
    max_partition_fetch_bytes: int = Field(1 << 20, ge=1)
    max_poll_records: int = Field(500, ge=1)
    max_poll_interval_ms: int = Field(300_000, ge=1, le=INT_MAX)
    session_timeout_ms: int = Field(45_000, ge=1, le=INT_MAX)
    heartbeat_interval_ms: int = Field(3_000, ge=1)
    partition_assignment_strategy: tuple[Strategy, ...] = Field(("range", "cooperative-sticky"), min_length=1)
    check_crcs: bool = True
    client_rack: str = ""
    deserializer: str | Deserializer = "bytes"
    key_deserializer: str | Deserializer = "bytes"
    interceptors: tuple[ConsumerInterceptor, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _name_group(cls, values: Any) -> Any:
        """Kafka's group.id is `group` here; both names are understood."""
        if not isinstance(values, dict) or "group_id" not in values:
            return values
        if "group" in values:
            raise ValueError("group_id is another name of group: give only one")
        return {"group": values["group_id"], **{k: v for k, v in values.items() if k != "group_id"}}

    @model_validator(mode="after")
    def _check_group(self) -> Self:
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise ValueError("heartbeat_interval_ms must be less than session_timeout_ms")
        return self

    @property
    def isolation(self) -> int:
        """The number on the wire."""
        return 1 if self.isolation_level == "read_committed" else 0


def configure(kind: type[C], bootstrap_servers: str | Iterable[str], options: Mapping[str, Any]) -> C:
    """Build a config. All problems raise one ConfigError that gives name, value and what is allowed."""
    servers = bootstrap_servers if isinstance(bootstrap_servers, str) else tuple(bootstrap_servers)
    try:
        return kind.model_validate({"bootstrap_servers": servers, **options})
    except ValidationError as trouble:
        raise ConfigError("; ".join(_explain(kind, dict(error)) for error in trouble.errors())) from None


def parse_address(text: Any) -> tuple[str, int]:
    """`host:port`, with brackets round an IPv6 address."""
    if not isinstance(text, str):
        raise ValueError(f"{text!r} is not host:port")
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError(f"{text!r} is not host:port")
    return host.removeprefix("[").removesuffix("]"), int(port)


ELSEWHERE = {"value_serializer": "serializer", "value_deserializer": "deserializer"}  # names of other clients


def _explain(kind: type[ClientConfig], error: dict[str, Any]) -> str:
    name = str(error["loc"][0]) if error["loc"] else ""
    if error["type"] == "extra_forbidden":
        near = get_close_matches(ELSEWHERE.get(name, name), kind.model_fields, n=1)
        return f"unknown option {name!r} of {kind.__name__}" + (
            f", did you mean {near[0]!r}?" if near else ""
        )
    message = str(error["msg"]).removeprefix("Value error, ")
    return f"{name}={error['input']!r}: {message}" if name else message
