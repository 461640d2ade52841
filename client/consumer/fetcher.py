"""Fetches a consumer's records: one fetch in flight per leader, a bounded buffer.

Partitions without a position get one first: from a seek by time, the group's commit, or `auto_offset_reset`.
A fetch names topics by their ids, where brokers have them: a topic that was deleted and made again is read
from its beginning, for a position of the one before would skip as many records of it.
Left to others: which partitions (group.py, consumer.py), offsets and their moves (positions.py), which broker
to ask (sources.py).
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import NamedTuple
from uuid import UUID

from ...base.logger import get_logger
from ...base.tasks import Tasks
from ...base.types import TopicPartition
from ...protocol.apis import Api
from ...protocol.errors import ApiError, ErrorCode, OffsetOutOfRange, error_for
from ...protocol.messages.fetch import (
    FetchEpochEndOffset,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from ...protocol.messages.offsets import EARLIEST, LATEST
from ...protocol.primitives import NO_UUID, Buffer, Malformed, Slices
from ..config import ConsumerConfig
from ..network.cluster import DATA, Cluster
from ..network.connection import FRAME_BYTES_MAX, Connection, ConnectionLost, Unreadable
from ..results import CommittedOffset, OffsetAndTimestamp
from .commits import fetch_committed
from .offsets import find_offsets
from .positions import FetchedBatches, PartitionPosition, surveyed
from .sources import Sources

log = get_logger(__name__)

BLOCKED_SECONDS = 0.05  # until another look at partitions without leader or connection
IDLE_SECONDS_MAX = 1.0
ASKED_BYTES_MAX = FRAME_BYTES_MAX // 2  # at once: an answer may be larger by one batch, and must fit a frame
HURRIED_WAIT_MS = 50  # a fetch without the full partitions returns soon: they may have room again
NAMED_MAX = 10  # partitions in an error of a whole answer
BY_NAME_LAST = 12  # of Fetch: later versions name topics by id alone

RESETS: dict[str, int] = {"latest": LATEST, "earliest": EARLIEST}

# Errors of a fetch when leaders move: look for the leader, then ask again.
LEADER_ERRORS = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)


class Asked(NamedTuple):
    """What a fetch has asked for of one partition."""

    place: PartitionPosition
    age: int
    offset: int
    epoch: int
    topic_id: UUID

    def holds(self) -> bool:
        """Whether this is still wanted: there may have been a seek, or another leader's answer, meanwhile."""
        return self.place.age == self.age and self.place.fetch_at == self.offset


class Fetcher:
    """Keeps `places` supplied. `arrived` is set whenever there may be something for the caller."""

    def __init__(self, cluster: Cluster, config: ConsumerConfig) -> None:
        self._cluster = cluster
        self._config = config
        self._sources = Sources(cluster, config)
        self._tasks = Tasks("fetcher", self._broken)
        self._wake = asyncio.Event()
        self._asked: set[int] = set()
        self._turn = 0
        self._rests: dict[int, float] = {}  # brokers not to be asked before then
        self.places: dict[TopicPartition, PartitionPosition] = {}
        self.arrived = asyncio.Event()
        self.trouble: ApiError | None = None
        self.on_settled: Callable[[], None] = lambda: None
        self.on_gone_back: Callable[[set[TopicPartition]], None] = lambda partitions: None
        self.on_made_again: Callable[[TopicPartition], None] = lambda partition: None
        self.failure: BaseException | None = None  # for which nothing is fetched any more

    def start(self) -> None:
        """Begin to fetch."""
        self._cluster.on_change.subscribe(self._leaders_changed)
        self._tasks.spawn(self._run(), "pump")

    async def stop(self) -> None:
        """Fetch no more, and hold nothing; what still arrives is dropped."""
        await self._tasks.stop()
        for place in self.places.values():
            place.age += 1
            place.chunks.clear()

    def wake(self) -> None:
        """Look again: a position, a pause or the room has changed."""
        self._wake.set()

    def assign(self, places: dict[TopicPartition, PartitionPosition]) -> None:
        """Fetch these partitions and no others."""
        self.places = places
        self._cluster.track({partition.topic for partition in places})
        self.wake()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._wake.clear()
            now = loop.time()
            blocked = self._pump(now)
            timer = loop.call_later(BLOCKED_SECONDS if blocked else IDLE_SECONDS_MAX, self._wake.set)
            try:
                await self._wake.wait()
            finally:
                timer.cancel()

    def _pump(self, now: float) -> bool:
        """Ask every broker that is not being asked; True when some partition could not be asked for."""
        blocked = self._settle_positions(now)
        by_node: dict[int, list[PartitionPosition]] = {}
        crowded: set[int] = set()
        held = sum(place.nbytes for place in self.places.values())
        for place in self.places.values():
            if place.position is None or place.is_paused:
                continue
            node = self._sources.of(place, now)
            if node is None or place.not_before > now:
                blocked = True
            elif place.is_full or (held >= self._config.fetch_max_bytes and place.chunks):
                crowded.add(node)
            else:
                by_node.setdefault(node, []).append(place)
        for node, places in by_node.items():
            if node in self._asked:
                continue
            if now < self._rests.get(node, 0.0):
                blocked = True
                continue
            connection = self._cluster.ready(node, DATA)
            if connection is not None:
                self._ask(node, connection, places, node in crowded)
                continue
            blocked = True
            if self._cluster.ready_at(node) > now:  # it cannot be reached
                for place in places:
                    self._sources.failed(place, node, now)
        return blocked

    def _ask(
        self, node: int, connection: Connection, places: list[PartitionPosition], is_hurried: bool
    ) -> None:
        """Partitions take turns in being first: only there a batch that is larger than is asked for comes."""
        config = self._config
        now, view = self._cluster.now(), self._cluster.view
        topics: list[FetchTopic] = []
        asked: dict[TopicPartition, Asked] = {}
        for place in sorted(places, key=lambda place: place.turn):
            name, number = place.partition
            epoch, topic = view.epoch(place.partition), view.topics.get(name)
            topic_id = NO_UUID if topic is None else topic.topic_id
            asked[place.partition] = Asked(place, place.age, place.fetch_at, epoch, topic_id)
            part = FetchPartition(
                partition=number,
                current_leader_epoch=epoch,
                fetch_offset=place.fetch_at,
                last_fetched_epoch=place.last_epoch,
                partition_max_bytes=min(config.max_partition_fetch_bytes, ASKED_BYTES_MAX),
            )
            if not topics or topics[-1].topic != name:  # named again, where its turn comes again
                topics.append(FetchTopic(topic=name, topic_id=topic_id, partitions=[]))
            topics[-1].partitions.append(part)
        wait_ms = min(config.fetch_max_wait_ms, HURRIED_WAIT_MS) if is_hurried else config.fetch_max_wait_ms
        request = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=config.fetch_min_bytes,
            max_bytes=min(config.fetch_max_bytes, ASKED_BYTES_MAX),
            isolation_level=config.isolation,
            topics=topics,
            rack_id=self._sources.rack(places, now),
        )
        deadline = now + (wait_ms + config.request_timeout_ms) / 1000
        try:
            by_name = any(one.topic_id == NO_UUID for one in topics)
            version = min(connection.version_for(Api.FETCH), BY_NAME_LAST) if by_name else None
            future = connection.submit(request, deadline=deadline, version=version)
        except ConnectionLost:
            return
        except ApiError as trouble:
            self._raise(trouble)
            return
        self._asked.add(node)
        future.add_done_callback(lambda done: self._answered(node, asked, done))

    def _answered(
        self,
        node: int,
        asked: dict[TopicPartition, Asked],
        done: "asyncio.Future[FetchResponse]",
    ) -> None:
        self._asked.discard(node)
        self.wake()
        failure = ConnectionLost("cancelled") if done.cancelled() else done.exception()
        if failure is not None:
            for partition, question in asked.items():
                if not self._sources.failed(question.place, node, self._cluster.now()):
                    self._cluster.doubt(partition, node, question.epoch)
            if isinstance(failure, Unreadable):
                self._refused(node, asked, error_for(ErrorCode.CORRUPT_MESSAGE, str(failure)))
            return
        response = done.result()
        if response.error_code:
            self._refused(node, asked, error_for(response.error_code))
            return
        addresses = {one.node_id: (one.host, one.port) for one in response.node_endpoints}
        names = {question.topic_id: partition.topic for partition, question in asked.items()}
        for topic in response.responses:
            for data in topic.partitions:
                name = topic.topic or names.get(topic.topic_id, "")
                partition = TopicPartition(name, data.partition_index)
                if partition not in asked:
                    continue
                question = asked[partition]
                hint = data.current_leader
                if hint is not None and hint.leader_id >= 0:
                    address = addresses.get(hint.leader_id)
                    self._cluster.moved(partition, hint.leader_id, hint.leader_epoch, address)
                if self.places.get(partition) is question.place and question.holds():
                    self._take(node, question, data)

    def _refused(self, node: int, asked: Collection[TopicPartition], trouble: ApiError) -> None:
        """A whole answer says nothing, and the next may say the same: the caller is told, the broker left
        alone for a moment."""
        log.warning("fetch_failed", broker=node, reason=str(trouble))
        self._rests[node] = self._cluster.now() + self._config.retry_backoff_max_ms / 1000
        if not trouble.retriable or trouble.code == ErrorCode.CORRUPT_MESSAGE:
            some = ", ".join(map(str, sorted(asked)[:NAMED_MAX]))
            more = f" and {len(asked) - NAMED_MAX} more" if len(asked) > NAMED_MAX else ""
            self._raise(error_for(trouble.code, f"{some}{more}: {trouble.message}"))

    def _take(self, node: int, question: Asked, data: PartitionData) -> None:
        place, epoch = question.place, question.epoch
        code = data.error_code
        if code == 0:
            self._cluster.served(place.partition, node, epoch)
            place.failures = 0
        if code in (0, ErrorCode.OFFSET_OUT_OF_RANGE) and not place.is_of(question.topic_id):
            return self._begin_anew(place)
        if code == 0:
            place.topic_id = question.topic_id
            if data.preferred_read_replica >= 0:
                return self._sources.named(place, data.preferred_read_replica, self._cluster.now())
            parting = data.diverging_epoch
            if parting is not None and parting.end_offset >= 0:
                return self._go_back(place, parting)
            place.high_watermark = data.high_watermark
            place.readable_end = data.last_stable_offset if self._config.isolation else data.high_watermark
            records = data.records
            if isinstance(records, Slices):
                records = bytes(records)
            if records:
                self._keep(place, records, data)
            return None
        if self._sources.failed(place, node, self._cluster.now()):
            return None  # it may only lag behind: the leader says what is true
        place.failures += 1
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            return self._reset(place)
        trouble = error_for(code, str(place.partition))
        if code in LEADER_ERRORS:
            self._cluster.doubt(place.partition, node, epoch)
        elif not trouble.retriable or code == ErrorCode.CORRUPT_MESSAGE:
            self._raise(trouble)
        known = self._cluster.view.leader(place.partition)
        superseded = known is not None and known.leader_epoch > epoch
        pause = 0.0 if superseded else self._cluster.pause(place.failures - 1)
        place.not_before = self._cluster.now() + pause
        return None

    def _begin_anew(self, place: PartitionPosition) -> None:
        """A leader has answered for another topic of the name: the one that the position is of was deleted.
        (Metadata alone does not say so: brokers that lag name the earlier one.) If a policy may say where to
        go on, it is at the beginning: all of it is new."""
        if self._config.auto_offset_reset == "none":
            self._raise(
                OffsetOutOfRange(
                    f"{place.partition}: topic {place.partition.topic} was deleted and created again, and "
                    "auto_offset_reset is none"
                )
            )
            self._put_off(place)
            return
        log.warning("topic_made_again", partition=str(place.partition), position=place.position)
        self.on_gone_back({place.partition})
        self.on_made_again(place.partition)
        place.look_up(EARLIEST)

    def _go_back(self, place: PartitionPosition, parting: FetchEpochEndOffset) -> None:
        """Records that we have read were truncated (unclean election): others may have their offsets."""
        assert place.position is not None, "an epoch is checked only where there is a position"
        end = parting.end_offset
        log.warning("position_truncated", partition=str(place.partition), position=place.position, end=end)
        if place.position <= end:
            place.go_on()
        else:
            place.go_on(end, parting.epoch)
        self.on_gone_back({place.partition})

    def _keep(self, place: PartitionPosition, records: Buffer, data: PartitionData) -> None:
        aborted = [(one.producer_id, one.first_offset) for one in data.aborted_transactions or ()]
        try:
            found = surveyed(records, place.fetch_at, aborted if self._config.isolation else ())
        except Malformed as damage:
            self._raise(error_for(ErrorCode.CORRUPT_MESSAGE, f"{place.partition}: {damage}"))
            self._put_off(place)
            return
        if found.end == place.fetch_at:
            self._raise(
                error_for(
                    ErrorCode.RECORD_LIST_TOO_LARGE,
                    f"{place.partition}: the answer at offset {place.fetch_at} has no complete batch",
                )
            )
            self._put_off(place)
            return
        place.fetched(FetchedBatches(records, place.fetch_at, found.end, found.batches, found.last_epoch))
        self._turn += 1
        place.turn = self._turn
        self.arrived.set()

    def _reset(self, place: PartitionPosition) -> None:
        """The log does not have the offset: follow the policy. No policy passes over damage: the caller is
        told of it when it gets there."""
        if place.holds_damage and self._config.check_crcs:
            place.not_before = self._cluster.now() + self._cluster.pause(place.failures - 1)
            return
        policy = self._config.auto_offset_reset
        log.info("offset_out_of_range", partition=str(place.partition), offset=place.fetch_at, reset=policy)
        if policy == "none":
            self._raise(
                OffsetOutOfRange(
                    f"{place.partition}: offset {place.fetch_at} is out of range, auto_offset_reset is none"
                )
            )
            place.not_before = self._cluster.now() + self._cluster.pause(place.failures - 1)
        else:
            self.on_gone_back({place.partition})
            place.lose(RESETS[policy])

    def _raise(self, trouble: ApiError) -> None:
        """Let the next poll raise it, or a caller that waits for a position."""
        self.trouble = self.trouble or trouble
        self.arrived.set()
        self.on_settled()

    def _broken(self, failure: BaseException) -> None:
        """Fetching failed unexpectedly: who polls must hear of it, for nothing would come any more."""
        self._tasks.forgive(failure)
        self.failure = self.failure or failure
        self.arrived.set()
        self.on_settled()

    def _leaders_changed(self) -> None:
        for place in self.places.values():
            place.not_before = 0.0
        self.wake()

    # -- positions

    def _settle_positions(self, now: float) -> bool:
        """Look up missing positions. None waits for another partition, which may have no leader or be gone.
        True if some cannot be looked up yet."""
        unknown: list[PartitionPosition] = []
        by_leader: dict[int, list[PartitionPosition]] = {}
        blocked = False
        for place in self.places.values():
            if place.position is not None or place.is_settling:
                continue
            if place.not_before <= now and place.reset_to is None:
                if self._config.group is not None:
                    unknown.append(place)
                    continue
                self._follow_policy(place)
            leader = None
            if place.not_before <= now and (leader := self._cluster.leader(place.partition)) is None:
                self._miss_leader(place)
            if leader is None:
                blocked = True
            else:
                by_leader.setdefault(leader.leader, []).append(place)
        for places in by_leader.values():
            self._settle(places, self._find_offsets)
        if unknown:
            self._settle(unknown, self._find_committed)
        return blocked

    def _settle(
        self,
        lost: list[PartitionPosition],
        find: Callable[[list[PartitionPosition]], Awaitable[ApiError | None]],
    ) -> None:
        for place in lost:
            place.is_settling = True

        async def settle() -> None:
            try:
                trouble = await find(lost)
            finally:
                for place in lost:
                    place.is_settling = False
            if trouble is not None:
                log.info("position_lookup_failed", reason=str(trouble))
                if not trouble.retriable:
                    self._raise(trouble)
            self.wake()
            self.on_settled()

        self._tasks.spawn(settle(), "positions")

    async def _find_committed(self, lost: list[PartitionPosition]) -> ApiError | None:
        assert self._config.group is not None, "only a group has committed offsets"
        ages = {place.partition: place.age for place in lost}
        committed: dict[TopicPartition, CommittedOffset] = {}
        trouble: ApiError | None = None
        try:
            committed = await fetch_committed(
                self._cluster, self._config.group, ages, self._cluster.deadline()
            )
        except ApiError as failure:
            trouble = failure
        for place in _still_lost(lost, ages):
            found = committed.get(place.partition)
            if found is not None:
                place.go_on(found.offset, found.leader_epoch)
            elif trouble is not None:
                self._put_off(place)
            else:
                self._follow_policy(place)
        return trouble

    async def _find_offsets(self, lost: list[PartitionPosition]) -> ApiError | None:
        """Of a time the end is asked for first: what comes between the two is not older, and not skipped."""
        ages = {place.partition: place.age for place in lost}
        wanted = {place.partition: place.reset_to for place in lost if place.reset_to is not None}
        ends: dict[TopicPartition, OffsetAndTimestamp] = {}
        offsets: dict[TopicPartition, OffsetAndTimestamp] = {}
        deadline, isolation = self._cluster.deadline(), self._config.isolation
        timed = {partition: LATEST for partition, time in wanted.items() if time not in RESETS.values()}
        trouble = None
        if timed:
            trouble = await find_offsets(self._cluster, timed, isolation, deadline, ends)
            wanted = {one: time for one, time in wanted.items() if one in ends or one not in timed}
        trouble = await find_offsets(self._cluster, wanted, isolation, deadline, offsets) or trouble
        for place in _still_lost(lost, ages):
            found = offsets.get(place.partition)
            if found is not None and found.offset < 0:
                found = ends.get(place.partition)  # no record is as late as the time that was asked for
            if found is not None and found.offset >= 0:
                place.go_on(found.offset)
            else:
                self._put_off(place)
        return trouble

    def _follow_policy(self, place: PartitionPosition) -> None:
        """There is no committed offset: apply `auto_offset_reset`."""
        policy = self._config.auto_offset_reset
        if place.unsure_at is not None and policy != "earliest":
            place.go_on(place.unsure_at)
        elif policy == "none":
            self._raise(
                OffsetOutOfRange(f"{place.partition} has no committed offset and auto_offset_reset is none")
            )
            self._put_off(place)
        else:
            place.reset_to = RESETS[policy]

    def _miss_leader(self, place: PartitionPosition) -> None:
        """The partition has no leader. The caller gets the error if that cannot change by itself."""
        topic = self._cluster.view.topics.get(place.partition.topic)
        if topic is not None and topic.error and not topic.partitions:
            trouble = error_for(topic.error, topic.name)
            if not trouble.retriable:
                self._raise(trouble)
        self._put_off(place)

    def _put_off(self, place: PartitionPosition) -> None:
        place.not_before = self._cluster.now() + self._cluster.pause(place.failures)
        place.failures += 1


def _still_lost(lost: list[PartitionPosition], ages: dict[TopicPartition, int]) -> list[PartitionPosition]:
    """Those whose position was not set or reset since they were asked for."""
    return [one for one in lost if one.position is None and one.age == ages[one.partition]]
