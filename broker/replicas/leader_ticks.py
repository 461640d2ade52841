"""Tells leaders what time it is, and when the ZooKeeper session is lost or back.

Ten times a second the leaders whose ISR is changing or incomplete hear the time: a follower that lags for too
long, say, is then proposed out of the ISR. All others hear it once in half of `replica.lag.time.max.ms`.
Left to others: what a leader does then (replication/leader.py, replication/isr.py), the writes
(isr_writer.py).
"""

import asyncio
from collections.abc import Sequence

from ...base.tasks import Tasks
from ...storage.decision_log import BROKER
from ...zookeeper.client import SessionEvent, SessionState, ZkClient
from ..config.sections import ReplicationConfig
from .isr_writer import IsrWriter
from .partition import Partition
from .replicas import Replicas
from .shared import ReplicaShared

TICK_SECONDS = 0.1  # how often leaders with an unsettled ISR are checked
FULL_PASS_SECONDS_MIN = 0.1
STOOD_STILL_SECONDS = 0.5  # a loop that ticks so much late has heard nobody meanwhile


class LeaderTicks:
    """The ticks of all leaders on this broker."""

    def __init__(
        self,
        zk: ZkClient,
        shared: ReplicaShared,
        replicas: Replicas,
        isr: IsrWriter,
        config: ReplicationConfig,
        tasks: Tasks,
    ) -> None:
        self._shared = shared
        self._replicas = replicas
        self._isr = isr
        self._tasks = tasks
        self._fence_on_loss = config.fence_on_zookeeper_loss
        self._full_pass_seconds = max(config.lag_time_max_ms / 2000, FULL_PASS_SECONDS_MIN)
        self._stop_listening = zk.listen(self.on_session)

    def start(self) -> None:
        """Begin to tick."""
        self._tasks.spawn(self._run(), "ticks")

    def stop_listening(self) -> None:
        """The session is of no interest any more. The ticks end with the `Tasks` that owns them."""
        self._stop_listening()

    async def _run(self) -> None:
        full_pass_at, before = 0.0, self._shared.loop.time()
        while True:
            await asyncio.sleep(TICK_SECONDS)
            now = self._shared.loop.time()
            late, before = now - before - TICK_SECONDS, now
            if late > STOOD_STILL_SECONDS:
                self._stood_still(late, now)
            if now >= full_pass_at:
                full_pass_at = now + self._full_pass_seconds
                self.tick(list(self._replicas.partitions.values()), now)
            elif self._isr.unsettled:
                self.tick(list(self._isr.unsettled), now)

    def _stood_still(self, seconds: float, now: float) -> None:
        """The loop did nothing for so long (a disk that lets an append wait, a stopped process): what
        followers have asked meanwhile is not read yet.
        """
        for partition in self._replicas.partitions.values():
            if partition.leading is not None:
                partition.leading.stood_still(seconds, now)

    def tick(self, partitions: Sequence[Partition], now: float) -> None:
        """Let leaders react to the time: a lagging follower, say, is proposed out of the ISR."""
        for partition in partitions:
            leader = partition.leading
            if leader is None:
                self._isr.unsettled.pop(partition, None)
                continue
            effects = leader.tick(now)
            if effects:
                self._isr.perform(partition, leader, effects)
                partition.mark()

    def on_session(self, event: SessionEvent) -> None:
        """After a disconnection, every leader reads its state znode again: its ISR may be outdated."""
        shared = self._shared
        gone = event.state in (SessionState.ASSUME_EXPIRED, SessionState.EXPIRED)
        shared.recorder.note(BROKER, "session", state=event.state.name.lower())
        connected = event.state is SessionState.CONNECTED
        shared.disconnected = not connected
        shared.sessionless = not connected and (gone or shared.sessionless)
        shared.fenced = self._fence_on_loss and shared.sessionless
        if connected:
            for partition in self._replicas.partitions.values():
                if partition.leading is not None:
                    partition.leading.revalidate()
                    self._isr.unsettled[partition] = None
