"""Membership of a consumer group: join, sync, heartbeat, leave; and again whenever the group changes.

One task lives through all generations. Between two of them it tells its owner which partitions are revoked
(so that offsets can still be committed) and which are assigned. Eager strategies revoke everything before
joining; the cooperative one revokes only what really moves, and then joins once more.
A join or a sync may wait for minutes, until the slowest member has come, and a coordinator whose machine is
gone looks the same from here. So neither waits longer than `request_timeout_ms` on one connection. Then it is
sent again on a new connection, to the coordinator of that time. A coordinator treats the repeated request as
the same one: it answers on the last connection, and its rebalance goes on unchanged.
Left to others: who gets what (assignors.py), positions and commits (consumer.py).
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, suppress
from types import TracebackType
from typing import Any

from ...base.logger import get_logger
from ...base.tasks import Tasks
from ...base.types import TopicPartition
from ...protocol.errors import ApiError, ErrorCode, InconsistentGroupProtocol, NetworkException
from ...protocol.messages.groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from ..config import ConsumerConfig
from ..network.cluster import GROUP, Cluster
from ..network.connection import RequestExpired
from .assignors import ASSIGNORS, COOPERATIVE
from .commits import GroupMember, ask_coordinator, check
from .group_protocol import (
    NO_GENERATION,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
    seen_by,
    user_data_of,
)

log = get_logger(__name__)

PROTOCOL_TYPE = "consumer"
JOIN_SLACK_SECONDS = 5.0  # beyond the slowest member's time, before a join or sync fails
LEAVE_SECONDS_MAX = 2.0

Change = Callable[[set[TopicPartition]], Awaitable[None]]

# Errors after which the member has lost its generation and its partitions, and must join again (under a new
# id after UNKNOWN_MEMBER_ID).
FORGOTTEN = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})
REJOIN = FORGOTTEN | {ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.MEMBER_ID_REQUIRED}


class Membership:
    """One consumer's membership. `on_lost` is called when partitions are gone without a chance to commit.

    An error that is not retriable, or an unexpected exception (also of a listener), ends the membership: its
    `failure`. Then nothing that the group assigned may be read any more, and `on_failure` is called at once.
    """

    def __init__(
        self,
        cluster: Cluster,
        config: ConsumerConfig,
        topics: Callable[[], list[str]],
        progress: Callable[[], object],
        on_revoked: Change,
        on_lost: Change,
        on_assigned: Change,
        on_failure: Callable[[], None],
    ) -> None:
        assert config.group is not None, "a member has a group"
        self._cluster = cluster
        self._config = config
        self._group = config.group
        self._topics = topics
        self._progress = progress
        self._seen = progress()  # at the last look
        self._on_revoked, self._on_lost, self._on_assigned = on_revoked, on_lost, on_assigned
        self._on_failure = on_failure
        self._tasks = Tasks("group", self._failed)
        self._is_stopping = False
        self._cooperative = all(name in COOPERATIVE for name in config.partition_assignment_strategy)
        self._rejoin = asyncio.Event()
        self._polled = asyncio.Event()
        self._last_poll = 0.0
        self._joined_topics: list[str] = []
        self._watched: list[str] = []
        self._snapshot: dict[str, int] = {}  # partition counts of the watched topics in this assignment
        self.owned: set[TopicPartition] = set()
        self._had = set[TopicPartition](), NO_GENERATION  # assigned last; kept while nothing is owned
        self.member = GroupMember(instance_id=config.group_instance_id)
        self.is_settled = asyncio.Event()
        self.failure: BaseException | None = None
        self._failed_at: TracebackType | None = None
        self._owners_trouble: Exception | None = None

    def start(self) -> None:
        """Begin to join."""
        self.polled()
        self._cluster.on_change.subscribe(self.topics_changed)
        self._tasks.spawn(self._live(), "member")

    async def stop(self) -> None:
        """End the membership; others take over at once, unless this is a static member."""
        self._is_stopping = True
        async with AsyncExitStack() as steps:
            steps.push_async_callback(self._leave)
            steps.push_async_callback(self._give_back)
            await self._tasks.stop()

    async def _give_back(self) -> None:
        if self.failure is None:
            await self._give_up(self.owned)
        else:
            await self._lose(keep_id=True)

    def raise_failure(self) -> None:
        """Raise the failure that has ended the membership, if any, at every call."""
        if self.failure is not None:
            raise self.failure.with_traceback(self._failed_at)

    def polled(self) -> None:
        """The caller is alive and takes records."""
        self._last_poll, self._seen = self._cluster.now(), self._progress()
        self._polled.set()

    def topics_changed(self) -> None:
        """The subscription or the cluster's topics may have changed: join again if so."""
        topics = self._topics()
        if self.is_settled.is_set() and (
            topics != self._joined_topics or self._count(self._watched) != self._snapshot
        ):
            self._rejoin.set()

    def _count(self, topics: Iterable[str]) -> dict[str, int]:
        view = self._cluster.view.topics
        there = (name for name in topics if name in view and not view[name].is_gone)
        return {name: len(view[name].partitions) for name in there if view[name].partitions}

    def _watch(self, topics: list[str]) -> dict[str, int]:
        """The partition counts of these topics now. When they change, the member joins again."""
        self._watched, self._snapshot = topics, self._count(topics)
        return self._snapshot

    async def _hear_of(self, topics: list[str], *, refresh: bool) -> None:
        """Wait for metadata of the topics that are not known yet, or if `refresh` of all of them.

        If none comes, go on with what is known: later metadata makes the member join again.
        """
        if self._cluster.track(topics) or refresh:
            with suppress(NetworkException):
                await self._cluster.refreshed(self._cluster.deadline(self._config.session_timeout_ms / 3))

    async def _live(self) -> None:
        attempt = 0
        while True:
            try:
                await self._take_part()
                attempt = 0
            except (OSError, ApiError) as trouble:
                self.is_settled.clear()
                code = trouble.code if isinstance(trouble, ApiError) else ErrorCode.NETWORK_EXCEPTION
                log.info("group_request_failed", group=self._group, reason=str(trouble))
                if trouble is self._owners_trouble and code not in REJOIN:
                    raise
                if code in FORGOTTEN:
                    await self._lose(keep_id=code == ErrorCode.ILLEGAL_GENERATION)
                elif isinstance(trouble, ApiError) and not trouble.retriable and code not in REJOIN:
                    raise
                if code not in REJOIN:
                    await asyncio.sleep(self._cluster.pause(attempt))
                    attempt += 1

    def _failed(self, failure: BaseException) -> None:
        if self.failure is not None:  # leaving failed too: the caller gets the first failure
            self._tasks.forgive(failure)
        if self.failure is not None or self._is_stopping:
            return
        self._tasks.forgive(failure)
        self.failure, self._failed_at = failure, failure.__traceback__
        self.is_settled.clear()
        self._on_failure()
        self._tasks.spawn(self._depart(), "departure")

    async def _depart(self) -> None:
        """Leave the group and drop the owned partitions; nothing can be committed any more."""
        try:
            await self._leave()
        finally:
            await self._lose(keep_id=False)

    async def _take_part(self) -> None:
        """One generation: join, sync, then heartbeats until the group changes."""
        self._rejoin.clear()
        if not self._cooperative:
            await self._give_up(self.owned)
        await self._hear_of(self._topics(), refresh=False)
        self._joined_topics = topics = self._topics()
        self._watch(topics)
        joined = await self._join(topics)
        self.member = GroupMember(joined.generation_id, joined.member_id, self._config.group_instance_id)
        given = await self._sync(joined)
        taken = self.owned - given
        await self._give_up(taken)
        fresh = given - self.owned
        self.owned, self._had = given, (given, joined.generation_id)
        await self._told(self._on_assigned(fresh))
        log.info("group_joined", group=self._group, generation=joined.generation_id, partitions=len(given))
        self.is_settled.set()
        if taken and self._cooperative:
            self._rejoin.set()
        self.topics_changed()
        await self._heartbeats()
        self.is_settled.clear()

    async def _join(self, topics: list[str]) -> JoinGroupResponse:
        config = self._config
        request = JoinGroupRequest(
            group_id=self._group,
            session_timeout_ms=config.session_timeout_ms,
            rebalance_timeout_ms=config.max_poll_interval_ms,
            member_id=self.member.member_id,
            group_instance_id=config.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[
                JoinGroupRequestProtocol(name=name, metadata=self._subscription(name, topics))
                for name in config.partition_assignment_strategy
            ],
        )
        answer: JoinGroupResponse = await self._ask_until_answered(request)
        if answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
            ours = ", ".join(config.partition_assignment_strategy)
            raise InconsistentGroupProtocol(
                f"{self._group}: not all of its members have one of the assignors {ours} (option "
                "partition_assignment_strategy), or they are no consumers"
            )
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member = self.member._replace(member_id=answer.member_id)
        check(self._cluster, self._group, answer.error_code, self._group)
        return answer

    def _subscription(self, strategy: str, topics: list[str]) -> bytes:
        user_data = user_data_of(strategy, *self._had)
        return encode_subscription(topics, self.owned, self.member.generation, user_data)

    async def _sync(self, joined: JoinGroupResponse) -> set[TopicPartition]:
        assignments: list[SyncGroupRequestAssignment] = []
        if joined.leader == joined.member_id and not joined.skip_assignment:
            assignments = await self._assign(joined)
        request = SyncGroupRequest(
            group_id=self._group,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            group_instance_id=self._config.group_instance_id,
            protocol_type=joined.protocol_type or PROTOCOL_TYPE,
            protocol_name=joined.protocol_name,
            assignments=assignments,
        )
        answer: SyncGroupResponse = await self._ask_until_answered(request)
        check(self._cluster, self._group, answer.error_code, self._group)
        return set(decode_assignment(answer.assignment))

    async def _assign(self, joined: JoinGroupResponse) -> list[SyncGroupRequestAssignment]:
        """The group leader assigns partitions to all members, and watches all their topics from then on."""
        strategy = joined.protocol_name or ""
        members = [
            seen_by(strategy, decode_subscription(one.member_id, one.group_instance_id, one.metadata))
            for one in joined.members
        ]
        topics = sorted({topic for member in members for topic in member.topics})
        await self._hear_of(topics, refresh=True)
        given = ASSIGNORS[strategy](members, self._watch(topics))
        return [
            SyncGroupRequestAssignment(member_id=member_id, assignment=encode_assignment(partitions))
            for member_id, partitions in given.items()
        ]

    async def _heartbeats(self) -> None:
        """Send heartbeats until the coordinator or this member wants a new generation."""
        beat = self._config.heartbeat_interval_ms / 1000
        allowed = self._config.max_poll_interval_ms / 1000
        while not self._rejoin.is_set():
            try:
                async with asyncio.timeout(beat):
                    await self._rejoin.wait()
                return
            except TimeoutError:
                pass
            if (progress := self._progress()) != self._seen:  # it takes records, which is not told each time
                self._seen, self._last_poll = progress, self._cluster.now()
            if self._cluster.now() - self._last_poll > allowed:
                await self._step_aside()
                return
            await self._heartbeat()

    async def _heartbeat(self) -> None:
        give_up = self._cluster.now() + self._config.session_timeout_ms / 1000
        attempt = 0
        while True:
            try:
                return await self._beat()
            except (OSError, ApiError) as trouble:
                retriable = trouble.retriable if isinstance(trouble, ApiError) else True
                if not retriable or self._cluster.now() >= give_up:
                    raise
                await asyncio.sleep(self._cluster.pause(attempt))
                attempt += 1

    async def _beat(self) -> None:
        """One heartbeat; raises what it is answered."""
        request = HeartbeatRequest(
            group_id=self._group,
            generation_id=self.member.generation,
            member_id=self.member.member_id,
            group_instance_id=self._config.group_instance_id,
        )
        answer = await self._ask(request, self._cluster.now() + self._config.heartbeat_interval_ms / 1000 * 2)
        check(self._cluster, self._group, answer.error_code, self._group)

    async def _stay(self) -> None:
        """Heartbeats while the owner is being told, for as long as a caller may take between two polls. What
        they are answered is answered again when that is over."""
        until = self._cluster.now() + self._config.max_poll_interval_ms / 1000
        while self.member.generation != NO_GENERATION and self._cluster.now() < until:
            await asyncio.sleep(self._config.heartbeat_interval_ms / 1000)
            with suppress(OSError, ApiError):
                await self._beat()

    async def _step_aside(self) -> None:
        """The caller has not polled for too long: leave the group, and join again when it polls."""
        log.warning(
            "poll_interval_exceeded",
            group=self._group,
            max_poll_interval_ms=self._config.max_poll_interval_ms,
        )
        self.is_settled.clear()
        self._polled.clear()  # before leaving: a poll meanwhile counts, the next may be long in coming
        await self._depart()
        await self._polled.wait()

    async def _give_up(self, partitions: set[TopicPartition]) -> None:
        """Tell the owner before partitions are revoked. If this is interrupted, stop() tells it again."""
        if partitions:
            await self._told(self._on_revoked(partitions))
            self.owned = self.owned - partitions

    async def _told(self, telling: Awaitable[None]) -> None:
        """Tell the owner, and stay a member: a listener may have much to load. An error in it (of a file, of
        a service) is the owner's and is not retried; only the group's answers to a commit in the listener are
        the group's."""
        stay = None if self._tasks.is_stopping else self._tasks.spawn(self._stay(), "stay")
        try:
            await telling
        except (OSError, ApiError) as trouble:
            self._owners_trouble = trouble
            raise
        finally:
            if stay is not None:
                stay.cancel()

    async def _lose(self, *, keep_id: bool) -> None:
        self.member = GroupMember(
            member_id=self.member.member_id if keep_id else "", instance_id=self.member.instance_id
        )
        if self.owned:
            owned, self.owned = self.owned, set()
            try:
                await self._told(self._on_lost(owned))
            except ApiError as refused:  # of a commit in the listener: by default lost is treated as revoked
                if refused.code not in REJOIN:
                    raise
                log.info("commit_failed", group=self._group, reason=str(refused))

    async def _leave(self) -> None:
        member_id = self.member.member_id
        if not member_id or self._config.group_instance_id is not None:
            return
        members = [MemberIdentity(member_id=member_id)]
        request = LeaveGroupRequest(group_id=self._group, member_id=member_id, members=members)
        try:
            await self._ask(request, self._cluster.now() + LEAVE_SECONDS_MAX)
        except (OSError, ApiError) as trouble:
            log.info("group_leave_failed", group=self._group, reason=str(trouble))

    async def _ask_until_answered(self, request: JoinGroupRequest | SyncGroupRequest) -> Any:
        """Send a request that waits for all members, again whenever a connection was silent for too long.

        A new member without an id is answered at once (JoinGroup 4 and later). In older versions each
        repetition leaves a dead member behind, until its session ends.
        """
        until = self._cluster.now() + self._config.max_poll_interval_ms / 1000 + JOIN_SLACK_SECONDS
        while True:
            try:
                return await self._ask(request, until)
            except RequestExpired as silence:
                if self._cluster.now() >= until:
                    raise
                log.info("group_request_retried", group=self._group, reason=str(silence))

    async def _ask(self, request: Any, deadline: float) -> Any:
        """Ask the coordinator once, on the group's own channel, where waiting blocks nothing else."""
        return await ask_coordinator(self._cluster, self._group, request, deadline, GROUP)
