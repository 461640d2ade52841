"""Writes a log's leader-epoch-checkpoint, partition.metadata and topic-config.json.

Left to others: their formats, and reading them (checkpoints.py).
Why: docs/decisions/0010-topic-config-per-log.md
"""

from collections.abc import Sequence
from uuid import UUID

from ..config import TopicConfig
from . import checkpoints
from .segments import Segments


def save_config(chain: Segments, config: TopicConfig, gaps_allowed: bool, sync: bool) -> None:
    """Write the settings: recovery needs them before the controller can send them."""
    path = f"{chain.directory}/{checkpoints.TOPIC_CONFIG}"
    with chain.guarded():
        checkpoints.write_topic_config(chain.disk, path, config, gaps_allowed, sync)


def save_topic_id(chain: Segments, topic_id: UUID) -> None:
    """Write the id of the topic that the log belongs to."""
    path = f"{chain.directory}/{checkpoints.PARTITION_METADATA}"
    with chain.guarded():
        checkpoints.write_partition_metadata(chain.disk, path, topic_id)


def save_epochs(chain: Segments, entries: Sequence[tuple[int, int]], sync: bool) -> None:
    """Write the epoch file. May run in a thread, if nobody else calls it meanwhile."""
    path = f"{chain.directory}/{checkpoints.EPOCHS}"
    with chain.guarded():
        checkpoints.write_epochs(chain.disk, path, list(entries), sync)


def sync(chain: Segments, name: str) -> None:
    """Sync one of these files, if it exists."""
    path = f"{chain.directory}/{name}"
    if chain.disk.exists(path):
        file = chain.disk.open(path)
        try:
            file.sync()
        finally:
            file.close()
