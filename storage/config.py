"""StorageConfig and TopicConfig: the options of logs (log.segment.bytes, retention, flush …), with defaults.

A broker's StorageConfig has the defaults, a topic's overrides win. Names and defaults are Kafka's.
Left to others: nesting in the broker's configuration (broker/config/broker.py) and where overrides are kept
(the controller's /config znodes).
"""

from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import BaseModel, Field, field_validator

from ..base.options import InvalidOption, Option, build, option, options, parse_value, text_of
from .compaction_config import CompactionConfig
from .compression_config import CompressionConfig, CompressionType, check_gzip_level
from .idle_settings import IDLE

__all__ = ["InvalidOption", "Option", "StorageConfig", "TopicConfig", "option", "options", "text_of"]

DAY_MS = 24 * 3600 * 1000
INT32_MAX = (1 << 31) - 1
INT64_MAX = (1 << 63) - 1

TimestampType = Literal["CreateTime", "LogAppendTime"]
RecoveryStrategy = Literal["balanced", "manual", "aggressive"]
POLICIES = frozenset({"delete", "compact"})


def check_policy(text: str) -> str:
    """A cleanup policy: delete, compact, both, or neither, which keeps everything."""
    if not text.strip():
        return ""
    parts = [part.strip() for part in text.split(",")]
    if not POLICIES.issuperset(parts):
        raise ValueError("must be a list of delete, compact")
    return ",".join(parts)


def check_size(value: object) -> object:
    """Kafka's numbers have 64 bits at most: brokers of either kind have to read what is set."""
    if isinstance(value, int) and not -INT64_MAX <= value <= INT64_MAX:
        raise ValueError(f"must be at most {INT64_MAX}")
    return value


class StorageConfig(CompressionConfig, CompactionConfig, frozen=True, extra="forbid"):
    """What a broker does with logs unless a topic says otherwise."""

    segment_bytes: int = option(
        1 << 30,
        ge=14,
        le=INT32_MAX,
        kafka="log.segment.bytes",
        restart=False,
        help="A segment is rolled when it would exceed this size.",
    )
    segment_ms: int = option(
        7 * DAY_MS,
        ge=1,
        kafka="log.roll.ms",
        restart=False,
        help="A segment is rolled when its first batch is older than this.",
    )
    segment_jitter_ms: int = option(
        0,
        ge=0,
        kafka="log.roll.jitter.ms",
        restart=False,
        help=(
            "A segment is rolled up to this much earlier, at random, so that not all partitions roll at once."
        ),
    )
    index_bytes_max: int = option(
        10 << 20,
        ge=24,
        le=INT32_MAX,
        kafka="log.index.size.max.bytes",
        restart=False,
        help="A segment is rolled when one of its indexes would exceed this size.",
    )
    index_interval_bytes: int = option(
        4096,
        ge=0,
        le=INT32_MAX,
        kafka="log.index.interval.bytes",
        restart=False,
        help="Bytes of log per index entry, about.",
    )
    cleanup_policy: str = option(
        "delete",
        kafka="log.cleanup.policy",
        restart=False,
        help=(
            "delete removes old segments, compact keeps the last record of each key; both may be given, or "
            "nothing, which keeps everything."
        ),
    )
    retention_ms: int = option(
        7 * DAY_MS,
        ge=-1,
        kafka="log.retention.ms",
        restart=False,
        help="Segments whose last record is older than this are deleted; -1 keeps them forever.",
    )
    retention_bytes: int = option(
        -1,
        ge=-1,
        kafka="log.retention.bytes",
        restart=False,
        help="The oldest segments are deleted while a partition is larger than this; -1: no limit.",
    )
    retention_check_interval_ms: int = option(
        300_000,
        ge=1,
        kafka="log.retention.check.interval.ms",
        help="How often retention is checked.",
    )
    file_delete_delay_ms: int = option(
        60_000,
        ge=0,
        kafka="log.segment.delete.delay.ms",
        restart=False,
        help="How long the files of a deleted segment stay on disk.",
    )
    message_bytes_max: int = option(
        1_048_588,
        ge=0,
        le=INT32_MAX,
        kafka="message.max.bytes",
        restart=False,
        help="Largest batch that a producer may send.",
    )
    message_timestamp_type: TimestampType = option(
        "CreateTime",
        kafka="log.message.timestamp.type",
        restart=False,
        help=("CreateTime keeps the producer's timestamps, LogAppendTime replaces them with the broker's."),
    )
    message_timestamp_before_max_ms: int = option(
        INT64_MAX,
        ge=0,
        le=INT64_MAX,
        kafka="log.message.timestamp.before.max.ms",
        restart=False,
        help="How far a producer's timestamp may be behind the broker's clock.",
    )
    message_timestamp_after_max_ms: int = option(
        INT64_MAX,
        ge=0,
        le=INT64_MAX,
        kafka="log.message.timestamp.after.max.ms",
        restart=False,
        help="How far a producer's timestamp may be ahead of the broker's clock.",
    )
    min_insync_replicas: int = option(
        1,
        ge=1,
        kafka="min.insync.replicas",
        restart=False,
        help="acks=all is refused while fewer replicas than this are in sync; of a partition with fewer "
        "replicas, all must be.",
    )
    unclean_leader_election_enable: bool = option(
        False,
        kafka="unclean.leader.election.enable",
        restart=False,
        help=("Whether a replica outside the ISR may be elected when no ISR member can lead. Loses records."),
    )
    unclean_recovery_strategy: RecoveryStrategy = option(
        "balanced",
        kafka="unclean.recovery.strategy",
        restart=False,
        help="How a leader is found when no ISR member can prove that its data is complete: balanced "
        "elects the longest log of all replicas, manual waits for an operator (elect-leaders "
        "--unclean), aggressive elects the first replica that is available.",
    )
    flush_before_ack: bool = option(
        False,
        kafka="log.flush.before.ack",
        help=(
            "Count records as replicated only when they are flushed to disk (fdatasync), not in the "
            "page cache."
        ),
    )
    flush_messages: int = option(
        INT64_MAX,
        ge=1,
        le=INT64_MAX,
        kafka="log.flush.interval.messages",
        restart=False,
        help="A partition with this many unflushed records is flushed before the next "
        "acknowledgement, so that fewer acknowledged records than this are ever unflushed.",
    )
    flush_ms: int = option(
        INT64_MAX,
        ge=0,
        le=INT64_MAX,
        kafka="log.flush.interval.ms",
        restart=False,
        help="A partition is flushed when its oldest unflushed record is older than this.",
    )
    flush_scheduler_interval_ms: int = option(
        INT64_MAX,
        ge=1,
        le=INT64_MAX,
        kafka="log.flush.scheduler.interval.ms",
        help="How often flush.ms is checked. Default: as often as the smallest flush.ms needs.",
    )
    flush_threads: int = option(
        4,
        ge=1,
        le=64,
        kafka="strandline.log.flush.threads",
        help="How many flushes may run at once.",
    )
    room_reserve_bytes: int = option(
        64 << 20,
        ge=0,
        kafka="strandline.log.dir.room.reserve.bytes",
        help="A full log directory is written to again when this much is free.",
    )
    flush_checkpoint_interval_ms: int = option(
        60_000,
        ge=1,
        kafka="log.flush.offset.checkpoint.interval.ms",
        help="How often recovery points and log start offsets are checkpointed.",
    )
    recovery_threads: int = option(
        1,
        ge=1,
        le=64,
        kafka="num.recovery.threads.per.data.dir",
        help="How many logs per directory are recovered at once at startup; directories are recovered "
        "in parallel. Many small logs are recovered 16 at once, because they only wait for the "
        "disk.",
    )
    aside_bytes_max: int = option(
        10 << 30,
        ge=-1,
        kafka="strandline.log.aside.bytes.max",
        help="How many bytes of removed records are kept beside a log directory; the oldest are "
        "deleted first. -1: no limit. What may be the only copy of acknowledged records does not "
        "count and is not deleted.",
    )
    aside_retention_ms: int = option(
        30 * DAY_MS,
        ge=-1,
        kafka="strandline.log.aside.retention.ms",
        help="How long removed records are kept beside the log directory; -1 keeps them forever. What "
        "may be the only copy of acknowledged records is kept until another replica is in sync.",
    )
    high_watermark_checkpoint_interval_ms: int = option(
        5_000,
        ge=1,
        kafka="replica.high.watermark.checkpoint.interval.ms",
        help="How often high watermarks are checkpointed.",
    )
    producer_id_expiration_ms: int = option(
        DAY_MS,
        ge=1,
        kafka="producer.id.expiration.ms",
        restart=False,
        help=(
            "The state (sequences) of an idempotent producer is dropped after it has been idle for this long."
        ),
    )
    producer_ids_max: int = option(
        10_000,
        ge=1,
        kafka="strandline.log.producer.ids.max",
        restart=False,
        help="How many producers' states a partition keeps; those idle longest are dropped first.",
    )
    tail_cache_bytes: int = option(
        1 << 20,
        ge=0,
        kafka="strandline.log.tail.cache.bytes",
        help="How much of the end of a busy partition is kept in memory for its readers.",
    )
    cache_bytes_max: int = option(
        256 << 20,
        ge=0,
        kafka="strandline.log.cache.bytes.max",
        help="Memory for the ends of all partitions and the indexes of closed segments together. The "
        "least recently read are dropped first and then read from files.",
    )
    sealed_open_max: int = option(
        1_000,
        ge=1,
        kafka="strandline.log.sealed.open.max",
        help="How many closed segments, over all partitions, may be open for reading at once.",
    )
    open_files_max: int = option(
        0,
        ge=0,
        kafka="strandline.log.open.files.max",
        help="How many segment files may be open at once, active ones included; files are reopened on "
        "demand. 0: half of the process's limit (ulimit -n).",
    )
    validate_records: bool = option(
        False,
        kafka="log.validate.records",
        restart=False,
        help="Check every record of a produced batch, not only the batch's header and checksum.",
    )

    _policy = field_validator("cleanup_policy")(check_policy)

    @property
    def keeps_everything(self) -> bool:
        """Whether an empty cleanup policy says that nothing is deleted."""
        return not self.cleanup_policy.strip()


def topic_option(default_from: str, kafka: str) -> Any:
    """A topic's own setting: help and bounds are those of the broker's option `default_from`."""
    base = StorageConfig.model_fields[default_from]
    bounds = {
        bound: getattr(meta, bound)
        for meta in base.metadata
        for bound in ("ge", "le")
        if hasattr(meta, bound)
    }
    return Field(
        base.default,
        description=base.description,
        json_schema_extra={"kafka": kafka, "restart": False, "secret": False, "default_from": default_from},
        **bounds,
    )


class TopicConfig(BaseModel, frozen=True, extra="forbid"):
    """The settings of one topic: the broker's defaults with the topic's overrides on top."""

    cleanup_policy: str = topic_option("cleanup_policy", "cleanup.policy")
    compression_type: CompressionType = topic_option("compression_type", "compression.type")
    compression_gzip_level: int = topic_option("compression_gzip_level", "compression.gzip.level")
    compression_lz4_level: int = topic_option("compression_lz4_level", "compression.lz4.level")
    compression_zstd_level: int = topic_option("compression_zstd_level", "compression.zstd.level")
    delete_retention_ms: int = topic_option("delete_retention_ms", "delete.retention.ms")
    file_delete_delay_ms: int = topic_option("file_delete_delay_ms", "file.delete.delay.ms")
    flush_messages: int = topic_option("flush_messages", "flush.messages")
    flush_ms: int = topic_option("flush_ms", "flush.ms")
    index_bytes_max: int = topic_option("index_bytes_max", "segment.index.bytes")
    index_interval_bytes: int = topic_option("index_interval_bytes", "index.interval.bytes")
    max_message_bytes: int = topic_option("message_bytes_max", "max.message.bytes")
    message_timestamp_type: TimestampType = topic_option("message_timestamp_type", "message.timestamp.type")
    message_timestamp_before_max_ms: int = topic_option(
        "message_timestamp_before_max_ms", "message.timestamp.before.max.ms"
    )
    message_timestamp_after_max_ms: int = topic_option(
        "message_timestamp_after_max_ms", "message.timestamp.after.max.ms"
    )
    max_compaction_lag_ms: int = topic_option("max_compaction_lag_ms", "max.compaction.lag.ms")
    min_cleanable_dirty_ratio: float = topic_option("min_cleanable_dirty_ratio", "min.cleanable.dirty.ratio")
    min_compaction_lag_ms: int = topic_option("min_compaction_lag_ms", "min.compaction.lag.ms")
    min_insync_replicas: int = topic_option("min_insync_replicas", "min.insync.replicas")
    retention_bytes: int = topic_option("retention_bytes", "retention.bytes")
    retention_ms: int = topic_option("retention_ms", "retention.ms")
    segment_bytes: int = topic_option("segment_bytes", "segment.bytes")
    segment_jitter_ms: int = topic_option("segment_jitter_ms", "segment.jitter.ms")
    segment_ms: int = topic_option("segment_ms", "segment.ms")
    unclean_leader_election_enable: bool = topic_option(
        "unclean_leader_election_enable", "unclean.leader.election.enable"
    )
    unclean_recovery_strategy: RecoveryStrategy = topic_option(
        "unclean_recovery_strategy", "unclean.recovery.strategy"
    )

    _size = field_validator("*")(check_size)
    _policy = field_validator("cleanup_policy")(check_policy)
    _gzip = field_validator("compression_gzip_level")(check_gzip_level)

    @property
    def compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def deletes(self) -> bool:
        return "delete" in self.cleanup_policy

    @property
    def append_time(self) -> bool:
        return self.message_timestamp_type == "LogAppendTime"

    @classmethod
    def of(cls, defaults: StorageConfig) -> Self:
        """A topic without overrides."""
        return cls.from_names({}, defaults)

    @classmethod
    def from_names(cls, names: Mapping[str, str], defaults: StorageConfig) -> Self:
        """From Kafka's names and texts; InvalidOption has the first name that is not valid."""
        values: dict[str, Any] = {f: getattr(defaults, d) for f, d in DEFAULT_FROM.items()}
        for name, text in names.items():
            declared, idle = TOPIC_OPTIONS.get(name), IDLE.get(name)
            if idle is not None:
                if not idle.takes(text):
                    raise InvalidOption(name, text, f"must be {idle.expected}")
                continue
            if declared is None:
                raise InvalidOption(name, text, "unknown topic configuration")
            values[declared.field] = parse_value(declared, text)
        return build(cls, values, {o.field: name for name, o in TOPIC_OPTIONS.items()})

    def to_names(self) -> dict[str, str]:
        """All settings in Kafka's names and texts."""
        return {name: text_of(getattr(self, o.field)) for name, o in TOPIC_OPTIONS.items()}


TOPIC_OPTIONS: dict[str, Option] = {o.kafka: o for o in options(TopicConfig) if o.kafka}


def _default_from() -> dict[str, str]:
    extras = {name: info.json_schema_extra for name, info in TopicConfig.model_fields.items()}
    return {name: str(extra["default_from"]) for name, extra in extras.items() if isinstance(extra, dict)}


DEFAULT_FROM: dict[str, str] = _default_from()  # a topic's field -> the broker's field behind it
