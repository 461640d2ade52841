"""The options of compaction: those that a topic may override, and those of the cleaners themselves.

Left to others: the other options of logs (config.py), their effect (cleaning/plan.py).
"""

from pydantic import BaseModel

from ..base.options import option

DAY_MS = 24 * 3600 * 1000
INT32_MAX = (1 << 31) - 1
INT64_MAX = (1 << 63) - 1


class CompactionConfig(BaseModel, frozen=True, extra="forbid"):
    """When and how logs with cleanup.policy=compact are cleaned."""

    min_cleanable_dirty_ratio: float = option(
        0.5,
        ge=0,
        le=1,
        kafka="log.cleaner.min.cleanable.ratio",
        restart=False,
        help="A compacted log is cleaned when more than this share of its closed segments is dirty.",
    )
    min_compaction_lag_ms: int = option(
        0,
        ge=0,
        kafka="log.cleaner.min.compaction.lag.ms",
        restart=False,
        help="Segments with a record younger than this are not cleaned.",
    )
    max_compaction_lag_ms: int = option(
        INT64_MAX,
        ge=1,
        le=INT64_MAX,
        kafka="log.cleaner.max.compaction.lag.ms",
        restart=False,
        help="A record is compacted at the latest after this time, even if little is gained; its "
        "segment is rolled for that.",
    )
    delete_retention_ms: int = option(
        DAY_MS,
        ge=0,
        kafka="log.cleaner.delete.retention.ms",
        restart=False,
        help="How long a tombstone (a record without a value) is kept after it was first compacted.",
    )
    cleaner_enable: bool = option(
        True,
        kafka="log.cleaner.enable",
        help="Whether compacted logs are compacted at all; if not, they only grow.",
    )
    cleaner_threads: int = option(
        1,
        ge=1,
        le=64,
        kafka="log.cleaner.threads",
        restart=False,
        help="How many logs may be compacted at once, each in its own process.",
    )
    cleaner_dedupe_buffer_bytes: int = option(
        128 << 20,
        ge=1024,
        kafka="log.cleaner.dedupe.buffer.size",
        restart=False,
        help="Memory for the keys of compactions, over all cleaners: 24 bytes per key. A log with "
        "more keys is compacted in several rounds.",
    )
    cleaner_load_factor: float = option(
        0.9,
        gt=0,
        le=1,
        kafka="log.cleaner.io.buffer.load.factor",
        restart=False,
        help=(
            "How full the key memory may get. A fuller one takes more keys per round, but more time per key."
        ),
    )
    cleaner_bytes_per_second_max: float = option(
        1.7976931348623157e308,
        gt=0,
        kafka="log.cleaner.io.max.bytes.per.second",
        restart=False,
        help="Bytes per second that all cleaners together may read and write, on average.",
    )
    cleaner_backoff_ms: int = option(
        15_000,
        ge=0,
        kafka="log.cleaner.backoff.ms",
        restart=False,
        help="How long a cleaner waits when no log is dirty enough.",
    )
