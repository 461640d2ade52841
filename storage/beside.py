"""The small files beside a log's segments: its epochs, its topic's id and settings.

Left to others: what stands in them (storage/checkpoints.py).
"""

from collections.abc import Sequence
from uuid import UUID

from . import checkpoints
from .chain import Chain
from .config import TopicConfig


def save_config(chain: Chain, config: TopicConfig, gaps_allowed: bool, sync: bool) -> None:
    """Write the settings: recovery comes before the controller can tell them."""
    path = f"{chain.directory}/{checkpoints.TOPIC_CONFIG}"
    with chain.guarded():
        checkpoints.write_topic_config(chain.disk, path, config, gaps_allowed, sync)


def save_topic_id(chain: Chain, topic_id: UUID) -> None:
    """Write the id of the topic that the log belongs to."""
    path = f"{chain.directory}/{checkpoints.PARTITION_METADATA}"
    with chain.guarded():
        checkpoints.write_partition_metadata(chain.disk, path, topic_id)


def save_epochs(chain: Chain, entries: Sequence[tuple[int, int]], sync: bool) -> None:
    """Write the epoch file. May run in a thread; then nobody else may call it meanwhile."""
    path = f"{chain.directory}/{checkpoints.EPOCHS}"
    with chain.guarded():
        checkpoints.write_epochs(chain.disk, path, list(entries), sync)


def sync(chain: Chain, name: str) -> None:
    """Bring one of these files to the medium, if there is one."""
    path = f"{chain.directory}/{name}"
    if chain.disk.exists(path):
        file = chain.disk.open(path)
        try:
            file.sync()
        finally:
            file.close()
