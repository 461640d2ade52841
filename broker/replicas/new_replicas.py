"""Logs for replicas that a command of the controller brings here: made in a thread, before any role begins.

Left to others: the command (leader_and_isr.py), the files of a new log (storage/log/new_log.py), logs of
topics that are no more (replicas.py, mismatched_logs.py).
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING
from uuid import UUID

import structlog

from ...base.types import TopicPartition
from ...protocol.messages.control import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from ...protocol.primitives import NO_UUID
from ...storage.disk import DiskError
from ...storage.log.log import Log
from ...storage.log.new_log import Fresh

if TYPE_CHECKING:
    from .replicas import Replicas

logger = structlog.get_logger(__name__)

FULL = 2  # a request that names all that this broker hosts
MADE_AT_ONCE = 200  # logs in one hop to a thread: each has open files that nobody bounds yet

Unmade = dict[TopicPartition, DiskError]  # why logs could not be made
Named = tuple[TopicPartition, LeaderAndIsrTopicState, LeaderAndIsrPartitionState]


class NewReplicas:
    """What one broker's LeaderAndIsr needs of logs that are not there yet."""

    def __init__(self, replicas: "Replicas") -> None:
        self._replicas = replicas
        self._never_made: set[tuple[TopicPartition, UUID]] = set()  # new ones: they lie in no directory

    def can_be(self, state: LeaderAndIsrPartitionState) -> bool:
        """Whether there can be such a replica here."""
        me = self._replicas.host.me
        return me in state.replicas and (state.leader != me or me in state.isr)

    def is_of_another_topic(self, tp: TopicPartition, topic: LeaderAndIsrTopicState) -> bool:
        """Whether the log here under this name has another topic's id."""
        held = self._replicas.topic_id_of(tp)
        return held is not None and NO_UUID not in (held, topic.topic_id) and held != topic.topic_id

    def missing(
        self, request: LeaderAndIsrRequest, making: set[TopicPartition]
    ) -> tuple[list[Fresh], Unmade]:
        """The logs that are to be made here, and why others cannot be; `making` is told of the former.

        Only once are they said to be new. If that could not be obeyed, for want of descriptors as it may be,
        they are when the controller tells everything again: they lie in no directory that is offline.
        """
        replicas = self._replicas
        if request.type == FULL:
            told = {(tp, topic.topic_id) for tp, topic, _ in self._unhosted(request)}
            self._never_made &= told  # of the others there is no topic any more
        wanted: list[Fresh] = []
        unmade: Unmade = {}
        for tp, topic, state in self._unhosted(request):
            if self.is_of_another_topic(tp, topic):
                self.set_aside(tp)
            if replicas.logs.get(tp) is None:
                config = replicas.settings.config_of(topic.topic_name)
                topic_id = topic.topic_id if topic.topic_id.int else None
                is_new = state.is_new or (tp, topic.topic_id) in self._never_made
                try:
                    replicas.estranged.check(tp, state)
                    wanted.append(replicas.logs.fresh(tp, topic_id, config, is_new))
                    making.add(tp)
                except DiskError as error:
                    unmade[tp] = error
                if is_new:
                    self._never_made.add((tp, topic.topic_id))
        return wanted, unmade

    async def make(self, wanted: Sequence[Fresh], unmade: Unmade) -> list[Log]:
        """Those logs, as far as they could be made, else it is said why; they are not on the medium yet."""
        logs, loop = self._replicas.logs, self._replicas.host.loop
        made: list[Log] = []
        for first in range(0, len(wanted), MADE_AT_ONCE):
            some = wanted[first : first + MADE_AT_ONCE]
            await loop.run_in_executor(None, logs.make, some, False)
            for fresh in some:
                try:
                    made.append(logs.begin(fresh))
                    self._never_made.discard((fresh.partition, fresh.topic_id or NO_UUID))
                except DiskError as error:
                    unmade[fresh.partition] = error
        return made

    def set_aside(self, tp: TopicPartition) -> None:
        """The log here under this name is served no more."""
        try:
            self._replicas.set_aside(tp)
        except DiskError as error:
            logger.error("stray_not_set_aside", partition=str(tp), reason=str(error))
            self._replicas.host.on_disk_failed(None, error)
            self._replicas.host.on_order_failed(error)

    def _unhosted(self, request: LeaderAndIsrRequest) -> Iterator[Named]:
        for topic in request.topic_states:
            for state in topic.partition_states:
                tp = TopicPartition(topic.topic_name, state.partition_index)
                if self._replicas.find(tp) is None and self.can_be(state):
                    yield tp, topic, state
