"""Elections that an operator asks for by request or by znode, and the automatic balance of leaders.

Only the controller watches `/admin/preferred_replica_election`, in either spelling. It removes the znode when
each of its partitions has its preferred leader, or cannot have it. Nothing is remembered: a new controller
finds the znode and starts again.
Left to others: who may lead (`planning/elections.py`, `planning/unclean_recovery.py`), what is asked for and
why not (`planning/preferred.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import count, groupby

import structlog

from ...base.types import TopicPartition
from ...base.values import dataclass
from ...protocol.errors import ApiError, ElectionNotNeeded, ErrorCode, InvalidRequest, RequestTimedOut
from ...protocol.messages.elections import (
    ElectionPartitionResult,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ReplicaElectionResult,
)
from ...zookeeper import documents
from ..planning import plans
from ..planning.preferred import is_led, refusal
from ..planning.state import ClusterState, Strategy
from .deadlines import by, deadline_in
from .reach import Reach
from .request_node import RequestNode

logger = structlog.get_logger(__name__)

FIRST_BALANCE_S = 5.0  # after a controller was elected
ASK_AGAIN_S = 1.0
FORCED_WAIT_S = 5.0  # for the answers of replicas that are there, when an operator does not wish to wait
ZNODE_WAIT_MS = 60_000.0

Outcomes = Mapping[TopicPartition, ApiError | None]


@dataclass(frozen=True, slots=True)
class ElectionPolicy:
    """The current configuration of elections."""

    unclean: bool = False
    strategy: Strategy = Strategy.BALANCED
    recovery_timeout_s: float = 300.0
    balance: bool = True
    balance_every_s: float = 300.0
    imbalance_percentage: int = 10


class ElectionRequests:
    """Elections during one term that are asked for or take time."""

    def __init__(self, reach: Reach, policy: Callable[[], ElectionPolicy]) -> None:
        self.due = asyncio.Event()
        self._reach = reach
        self._policy = policy
        self._numbers = count(1)
        self._nodes = [
            RequestNode(reach.zk, reach.term, path, documents.PreferredElectionDocument, self.due)
            for path in (documents.PREFERRED_ELECTION, documents.PREFERRED_ELECTION_ALIAS)
        ]

    # --- clients -----------------------------------------------------------------------------------

    async def elect(self, request: ElectLeadersRequest) -> ElectLeadersResponse:
        """Answer when every partition has its leader or cannot have it, or when the time is over."""
        kinds = {kind.value: kind for kind in plans.ElectionKind}
        if request.election_type not in kinds:
            raise InvalidRequest(
                f"unknown election type {request.election_type}: expected 0 (preferred) or 1 (unclean)"
            )
        asked = request.topic_partitions
        wanted = set(self._reach.state().all_partitions())
        if asked is not None:
            wanted = {TopicPartition(one.topic, number) for one in asked for number in one.partitions}
        outcomes = await self._hold(
            kinds[request.election_type], sorted(wanted), deadline_in(request.timeout_ms)
        )
        if asked is None:
            outcomes = {q: error for q, error in outcomes.items() if not isinstance(error, ElectionNotNeeded)}
        return ElectLeadersResponse(
            replica_election_results=[
                ReplicaElectionResult(topic=topic, partition_result=[_result(q, outcomes[q]) for q in group])
                for topic, group in groupby(sorted(outcomes), key=lambda q: q.topic)
            ]
        )

    async def _hold(
        self, kind: plans.ElectionKind, wanted: list[TopicPartition], deadline: float
    ) -> Outcomes:
        """Hold the elections that can be held. The outcome for each partition: None or an error."""
        state = self._reach.state
        outcomes: dict[TopicPartition, ApiError | None] = {q: refusal(state(), kind, q) for q in wanted}
        begun = [q for q in wanted if outcomes[q] is None]
        if not begun:
            return outcomes
        number = next(self._numbers)
        self._reach.post(plans.ElectionWanted(kind, frozenset(begun), number))
        logger.info("election_requested", kind=kind.name.lower(), partitions=len(begun))

        async def settle() -> None:
            await self._reach.until(lambda known: known.elections_heard >= number)
            await self._reach.until(lambda known: all(_is_over(known, kind, q) for q in begun))

        late: ApiError | None = None
        try:
            await by(deadline, settle())
        except RequestTimedOut as error:
            late = error
        for partition in begun:
            if not is_led(state(), kind, partition):
                is_over = _is_over(state(), kind, partition)
                why = refusal(state(), kind, partition) if is_over else late
                outcomes[partition] = why or RequestTimedOut()
        with suppress(RequestTimedOut):
            await by(deadline, self._reach.all_told())
        return outcomes

    # --- the znode ---------------------------------------------------------------------------------

    def reconnected(self) -> None:
        """Look again, with new watches."""
        for node in self._nodes:
            node.reconnected()

    async def look(self) -> list[plans.Event]:
        """Hold the elections that the znode asks for, then remove it."""
        for node in self._nodes:
            found = await node.read()
            if found is not None:
                if found.document is not None:
                    await self._hold_preferred(found.document)
                await node.remove(found.version)
        return []

    async def _hold_preferred(self, document: documents.PreferredElectionDocument) -> None:
        wanted = sorted({TopicPartition(one.topic, one.partition) for one in document.partitions})
        outcomes = await self._hold(plans.ElectionKind.PREFERRED, wanted, deadline_in(ZNODE_WAIT_MS))
        for partition, error in sorted(outcomes.items()):
            if error is not None:
                logger.info("election_refused", partition=str(partition), reason=error.message)

    # --- time --------------------------------------------------------------------------------------

    async def keep_balance(self) -> None:
        """Check from time to time whether leaders are where they should be."""
        await asyncio.sleep(FIRST_BALANCE_S)
        while True:
            policy = self._policy()
            if policy.balance:
                self._reach.post(plans.RebalanceDue(policy.imbalance_percentage))
            await asyncio.sleep(policy.balance_every_s)

    async def later(self, command: plans.AwaitReplicas | plans.AskAgainLater) -> None:
        """Post the event that this command asks for, after its delay."""
        event: plans.Event
        match command:
            case plans.AwaitReplicas(partitions, is_forced):
                await asyncio.sleep(FORCED_WAIT_S if is_forced else self._policy().recovery_timeout_s)
                event = plans.RecoveryTimeOver(partitions)
            case plans.AskAgainLater(broker, incarnation, asked):
                await asyncio.sleep(ASK_AGAIN_S)
                event = plans.AskAgainDue(broker, incarnation, asked)
        self._reach.post(event)


def _is_over(state: ClusterState, kind: plans.ElectionKind, partition: TopicPartition) -> bool:
    """Whether the election is over: waiting longer would change nothing."""
    if is_led(state, kind, partition) or partition not in state.partitions:
        return True
    if partition in state.in_flight:
        return False
    if kind is plans.ElectionKind.PREFERRED:
        return partition not in state.preferring
    found = state.recoveries.get(partition)
    return found is None or not found.is_forced


def _result(partition: TopicPartition, error: ApiError | None) -> ElectionPartitionResult:
    code = ErrorCode.NONE if error is None else error.code
    message = None if error is None else error.message
    return ElectionPartitionResult(partition_id=partition.partition, error_code=code, error_message=message)


def tell_loss(command: plans.ReportLoss) -> None:
    """Log that acknowledged records may be lost: an operator must know."""
    ends = {str(broker): f"{end.offset} in epoch {end.epoch}" for broker, end in command.ends.items()}
    logger.error(
        "potential_data_loss", partition=str(command.partition), leader=command.state.leader,
        epoch=command.state.leader_epoch, isr_before=list(command.isr_before), log_ends=ends,
    )  # fmt: skip
