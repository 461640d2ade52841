"""Creates the logs of new replicas that LeaderAndIsr assigns here, in a thread, before any role begins.

Left to others: the command (leader_and_isr.py), the files of a new log (storage/log/new_log.py), logs of
deleted topics (replicas/replicas.py, mismatched_logs.py).
"""

from collections.abc import Iterator, Sequence
from uuid import UUID

import structlog

from ...base.types import TopicPartition
from ...protocol.messages.control import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from ...protocol.primitives import NO_UUID
from ...storage.directories.log_manager import Logs
from ...storage.disk import DiskError
from ...storage.log.log import Log
from ...storage.log.new_log import Fresh
from ..replicas.replicas import Replicas
from ..replicas.shared import ReplicaShared
from ..replicas.topic_configs import TopicSettings
from .mismatched_logs import MismatchedLogs

logger = structlog.get_logger(__name__)

FULL = 2  # a request that names all replicas of this broker
MADE_AT_ONCE = 200  # logs in one hop to a thread: their open files are not bounded yet

Unmade = dict[TopicPartition, DiskError]  # why logs could not be made
Named = tuple[TopicPartition, LeaderAndIsrTopicState, LeaderAndIsrPartitionState]


class NewReplicas:
    """Creates the logs that LeaderAndIsr requests need and this broker lacks."""

    def __init__(
        self,
        shared: ReplicaShared,
        logs: Logs,
        replicas: Replicas,
        settings: TopicSettings,
        mismatched: MismatchedLogs,
    ) -> None:
        self._shared = shared
        self._logs = logs
        self._replicas = replicas
        self._settings = settings
        self._mismatched = mismatched
        self._never_made: set[tuple[TopicPartition, UUID]] = set()  # new replicas that have no log yet

    def can_be(self, state: LeaderAndIsrPartitionState) -> bool:
        """Whether the state is consistent: we are a replica, and if we are to lead, we are in the ISR."""
        me = self._shared.me
        return me in state.replicas and (state.leader != me or me in state.isr)

    def is_of_another_topic(self, tp: TopicPartition, topic: LeaderAndIsrTopicState) -> bool:
        """Whether the log of this name here has another topic id."""
        held = self._replicas.topic_id_of(tp)
        return held is not None and NO_UUID not in (held, topic.topic_id) and held != topic.topic_id

    def _is_of_an_earlier_one(
        self, tp: TopicPartition, topic: LeaderAndIsrTopicState, state: LeaderAndIsrPartitionState
    ) -> bool:
        """Whether the log here has no topic id, and the replica is new: then it is an earlier topic's of
        this name. Taken for this one's, it would give its records for the leader's.
        """
        held = self._logs.get(tp)
        return held is not None and held.topic_id is None and topic.topic_id.int > 0 and state.is_new

    def missing(
        self, request: LeaderAndIsrRequest, making: set[TopicPartition]
    ) -> tuple[list[Fresh], Unmade]:
        """The logs to make here (also added to `making`), and the errors of those that cannot be made.

        The controller says `is_new` only once. If the log could not be made then, for lack of descriptors
        say, it still counts as new when the controller sends a full request: it is in no offline directory.
        """
        if request.type == FULL:
            told = {(tp, topic.topic_id) for tp, topic, _ in self._unhosted(request)}
            self._never_made &= told  # the other topics are gone
        wanted: list[Fresh] = []
        unmade: Unmade = {}
        for tp, topic, state in self._unhosted(request):
            if self.is_of_another_topic(tp, topic) or self._is_of_an_earlier_one(tp, topic, state):
                self.set_aside(tp)
            if self._logs.get(tp) is None:
                config = self._settings.config_of(topic.topic_name)
                topic_id = topic.topic_id if topic.topic_id.int else None
                is_new = state.is_new or (tp, topic.topic_id) in self._never_made
                try:
                    self._mismatched.check(tp, state)
                    wanted.append(self._logs.fresh(tp, topic_id, config, is_new))
                    making.add(tp)
                except DiskError as error:
                    unmade[tp] = error
                if is_new:
                    self._never_made.add((tp, topic.topic_id))
        return wanted, unmade

    async def make(self, wanted: Sequence[Fresh], unmade: Unmade) -> list[Log]:
        """Make the logs, not synced yet, and return them. The errors of the others go to `unmade`."""
        logs, loop = self._logs, self._shared.loop
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
        """Set aside the log of this name here."""
        try:
            self._mismatched.add(tp, self._replicas.set_aside(tp))
        except DiskError as error:
            logger.error("stray_log_not_renamed", partition=str(tp), reason=str(error))
            self._shared.on_disk_failed(None, error)
            self._shared.on_order_failed(error)

    def _unhosted(self, request: LeaderAndIsrRequest) -> Iterator[Named]:
        for topic in request.topic_states:
            for state in topic.partition_states:
                tp = TopicPartition(topic.topic_name, state.partition_index)
                if self._replicas.find(tp) is None and self.can_be(state):
                    yield tp, topic, state
