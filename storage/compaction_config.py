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
        help="A record that has waited for so long is cleaned, however little there is to gain; "
        "its segment is closed for that.",
    )
    delete_retention_ms: int = option(
        DAY_MS,
        ge=0,
        kafka="log.cleaner.delete.retention.ms",
        restart=False,
        help="How long a record without a value, which deletes its key, stays after it was first cleaned.",
    )
    cleaner_enable: bool = option(
        True,
        kafka="log.cleaner.enable",
        help="Whether compacted logs are cleaned at all; without it they only grow.",
    )
    cleaner_threads: int = option(
        1,
        ge=1,
        le=64,
        kafka="log.cleaner.threads",
        restart=False,
        help="How many logs may be cleaned at once, each in a process of its own.",
    )
    cleaner_dedupe_buffer_bytes: int = option(
        128 << 20,
        ge=1024,
        kafka="log.cleaner.dedupe.buffer.size",
        restart=False,
        help="Memory for the keys of one cleaning, over all cleaners: 24 bytes a key. A log with more keys "
        "is cleaned in several rounds.",
    )
    cleaner_load_factor: float = option(
        0.9,
        gt=0,
        le=1,
        kafka="log.cleaner.io.buffer.load.factor",
        restart=False,
        help="How full that memory may get. Fuller takes more keys in a round, and longer for each.",
    )
    cleaner_bytes_per_second_max: float = option(
        1.7976931348623157e308,
        gt=0,
        kafka="log.cleaner.io.max.bytes.per.second",
        restart=False,
        help="Bytes that all cleaners together read and write in a second, on average.",
    )
    cleaner_backoff_ms: int = option(
        15_000,
        ge=0,
        kafka="log.cleaner.backoff.ms",
        restart=False,
        help="How long a cleaner rests when no log is dirty enough.",
    )
