"""LogSettings: what a topic's configuration means for one log, and its file topic-config.json.

The file lets the next start open the log before the controller has sent the configuration.
Left to others: the configuration itself (storage/config.py), the file's format (checkpoints.py), syncing it
with the data (flush.py).
Why: docs/decisions/0010-topic-config-per-log.md
"""

from ..config import TopicConfig
from ..disk import DiskError
from ..segment.roll import limits_of
from . import checkpoints
from .flush import FlushState
from .segments import Segments


class LogSettings:
    """The settings of one log."""

    __slots__ = (
        "_chain", "_flush_state", "append_time", "config", "gaps_allowed", "index_interval", "limits",
        "waits",
    )  # fmt: skip

    def __init__(
        self, chain: Segments, flush_state: FlushState, config: TopicConfig, gaps_allowed: bool
    ) -> None:
        self.gaps_allowed = gaps_allowed  # once there may be gaps, that stays so
        self.waits = False  # the file must be written when there is room
        self._chain = chain
        self._flush_state = flush_state
        self._adopt(config)

    def _adopt(self, config: TopicConfig) -> None:
        self.config = config
        self.gaps_allowed = self.gaps_allowed or config.compacted
        self.limits = limits_of(config)
        self.append_time = config.append_time
        self.index_interval = config.index_interval_bytes

    def change(self, config: TopicConfig) -> None:
        """Apply a new configuration, then save it. Raises DiskError, and applies it all the same."""
        if config != self.config:
            self._adopt(config)
            self.save()

    def save(self, sync: bool = False) -> None:
        """Write the file beside the segments. Raises DiskError."""
        self.waits = True
        path = f"{self._chain.directory}/{checkpoints.TOPIC_CONFIG}"
        with self._chain.guarded():
            checkpoints.write_topic_config(self._chain.disk, path, self.config, self.gaps_allowed, sync)
        self.waits = False
        if not sync:
            self._flush_state.written(checkpoints.TOPIC_CONFIG)

    def allow_gaps(self) -> None:
        """From now on gaps are not damage: the leader's log was compacted once, whatever the topic says now.

        Saved before the first batch after a gap; otherwise the next start would take the gap for a loss.
        Raises DiskError; then nothing has changed.
        """
        self.gaps_allowed = True
        try:
            self.save()
        except DiskError:
            self.gaps_allowed = False
            raise
