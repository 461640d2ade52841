"""What ZooKeeper knows of partitions: who is in the ISR now, whether every state is one that may be, which
topics are being deleted.

Brokers are not asked, for a broker that is cut off does not hear of a new ISR. Left to others: the session
(zookeeper/kazoo_client.py).
"""

import json
from types import TracebackType
from typing import Any, Self

from ...base.types import TopicPartition
from ...client.loop_thread import LoopThread
from ...zookeeper.client import NoNode
from ...zookeeper.documents import CONTROLLER, DELETE_TOPICS, state_path
from ...zookeeper.kazoo_client import KazooZkClient

SESSION_MS, CONNECT_S = 10_000, 20.0


class Znodes:
    """A session at a cluster's ZooKeeper, behind blocking calls."""

    def __init__(self, address: str) -> None:
        self._thread = LoopThread("strandline-znodes")
        try:
            self._client = self._thread.run(lambda: self._started(address))
        except BaseException:
            self._thread.close()
            raise

    @staticmethod
    async def _started(address: str) -> KazooZkClient:
        client = KazooZkClient(address, SESSION_MS, connect_timeout_s=CONNECT_S)
        await client.start()
        return client

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.run(self._client.close)
        self._thread.close()

    def document(self, path: str) -> Any:
        """The JSON of a znode. Raises NoNode."""
        data, _ = self._thread.run(lambda: self._client.get(path))
        return json.loads(data)

    def isr(self, topic: str, partition: int) -> list[int]:
        """The ISR that is written now."""
        found: list[int] = self.document(state_path(TopicPartition(topic, partition)))["isr"]
        return found

    def registered(self, broker: int) -> bool:
        """Whether there is a session of this broker."""
        try:
            self.document(f"/brokers/ids/{broker}")
        except NoNode:
            return False
        return True

    def controller(self) -> int | None:
        """The broker that is controller now."""
        try:
            return int(self.document(CONTROLLER)["brokerid"])
        except NoNode:
            return None

    def deleted(self) -> list[str]:
        """The topics that somebody wants deleted, and that are not yet."""
        try:
            return sorted(self._thread.run(lambda: self._client.children(DELETE_TOPICS)))
        except NoNode:
            return []

    def is_mixed(self) -> bool:
        """Whether a broker of Apache Kafka is registered."""
        ids = self._thread.run(lambda: self._client.children("/brokers/ids"))
        return any("incarnation" not in self.document(f"/brokers/ids/{id}") for id in ids)

    def wrong_states(self, prefix: str = "") -> list[str]:
        """A sentence for each partition whose state may not be: the ISR within the replicas, the leader in
        it.
        """
        wrong, is_mixed = [], self.is_mixed()
        topics = self._thread.run(lambda: self._client.children("/brokers/topics"))
        for topic in (name for name in topics if name.startswith(prefix)):
            assigned = self.document(f"/brokers/topics/{topic}")["partitions"]
            for number, replicas in assigned.items():
                try:
                    state = self.document(state_path(TopicPartition(topic, int(number))))
                except NoNode:
                    wrong.append(f"{topic}-{number}, assigned to {replicas}, has no state")
                    continue
                if not is_well_formed(state, replicas, is_mixed):
                    wrong.append(f"{topic}-{number}: {state}, assigned to {replicas}")
        return wrong


def is_well_formed(state: dict[str, Any], replicas: list[int], is_mixed: bool = False) -> bool:
    """Whether an ISR is there, within the replicas, its epochs told, and the leader in it, or none.

    Apache Kafka's brokers have no epochs and tell none: with some of them, others' may be missing, too.
    """
    isr, leader = state["isr"], state["leader"]
    epochs = state.get("isr_epochs")
    told = set(map(int, epochs or ()))
    return (
        bool(isr)
        and set(isr) <= set(replicas)
        and (leader == -1 or leader in isr)
        and (epochs is None or told == set(isr) or (is_mixed and told < set(isr)))
    )
