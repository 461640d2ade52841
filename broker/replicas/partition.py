"""One replica on this broker (Kafka's Partition): its log, its role, and the requests that wait for it.

Nothing here awaits, takes a lock or keeps a queue of its own: each call runs within one turn of the event
loop. An append or a fetch marks the partition dirty; `settle`, once at the end of the turn, raises the high
watermark and wakes the waiters. During a change of roles the partition neither leads nor follows, and
answers 6 (NOT_LEADER_OR_FOLLOWER).
Left to others: the rules of a leader and of a follower (replication/leader.py, replication/follower.py),
LeaderAndIsr (roles/leader_and_isr.py), writing an ISR (isr_writer.py), what an answer looks
like (handlers/).
"""

from collections.abc import Iterator

import structlog

from ...base.types import NO_EPOCH, NO_LEADER, BrokerId, Epoch, Incarnation, Offset, TopicPartition
from ...protocol.batches import TRANSACTIONAL, BatchHeader, read_header
from ...protocol.errors import (
    ErrorCode,
    KafkaStorageError,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    UnknownLeaderEpoch,
    error_for,
)
from ...protocol.markers import EndMarker, marker_batch
from ...protocol.messages.fetch import PartitionData
from ...protocol.primitives import Slices
from ...replication.effects import Effects, FailReplica, HighWatermarkMoved, RestartAt, Truncate
from ...replication.follower import AskRecords, Follower
from ...replication.leader import Leader, Mandate
from ...replication.progress import is_earlier
from ...storage.config import TopicConfig
from ...storage.disk import DiskError, DiskFailed, LogDamaged
from ...storage.log.log import AsOf, Log
from ...storage.log.producer_state import ProducerState
from .ending_transactions import Ending, EndingTransactions
from .purgatory import AckQueue
from .recompression import target_of
from .shared import Parked, ReplicaShared, Role, Traffic
from .skipped_batches import SkippedBatches
from .truncation import Cut, PendingTruncation, Rejoin, Restart
from .validate_records import checked, timeless_limits
from .verification_guards import Guard, VerificationGuards

logger = structlog.get_logger(__name__)

SLOW_APPEND_MS = 1000  # an append blocks the event loop: nothing else is served meanwhile


class Partition:
    """One replica: its log, and the rules (replication/) of its present role."""

    __slots__ = (
        "_announced", "_ending", "_guards", "_seen_end", "_seen_watermark", "_skipped", "acks",
        "changing", "dirty", "flush_acks", "following", "full", "in_sync", "incomplete", "leader_epoch",
        "leader_id", "leading", "limits", "log", "missing", "needs_keys", "offline", "parked",
        "recovering", "shared", "stamps_time", "successor", "target", "topic_config", "tp", "traffic",
        "unflushed_max",
    )  # fmt: skip

    def __init__(self, tp: TopicPartition, log: Log, high_watermark: int, shared: ReplicaShared) -> None:
        self.tp = tp
        self.log = log
        self.shared = shared
        self.leader_id: BrokerId = NO_LEADER
        self.leader_epoch: Epoch = NO_EPOCH  # of the last finished transition
        self.leading: Leader | None = None
        self.following: Follower | None = None
        self.incomplete = False  # a transition has begun and not ended: an equal epoch is then applied again
        self.changing = False  # a transition has begun, and is about to end
        self.successor: tuple[int, int] = (NO_LEADER, NO_EPOCH)  # leader and epoch; only a hint to clients
        self.offline: str | None = None
        self.recovering = False  # the last leader that we heard of was elected uncleanly
        self.in_sync = False  # it was in the ISR when its present role began
        self.missing = 0  # committed records that it lacked at the last fetch
        self.full: str | None = None  # why nothing can be appended until there is disk space again
        self.dirty = False
        self.traffic = Traffic()
        self.acks = AckQueue()  # waiters for the high watermark
        self.flush_acks = AckQueue()  # waiters for a flush on this broker only
        self._ending = EndingTransactions()
        self._guards = VerificationGuards()
        self._skipped = SkippedBatches(tp, shared.refused)
        self.parked: dict[Parked, None] = {}
        self._seen_watermark = max(log.start_offset, min(high_watermark, log.end_offset))
        self._seen_end = log.end_offset
        self._announced = False  # `on_leading` has been called, `on_resigned` not yet
        self.configure(log.config)

    def __repr__(self) -> str:
        return f"Partition({self.tp}, {self.role.value}, epoch {self.leader_epoch})"

    @property
    def role(self) -> Role:
        """What this replica does at the moment."""
        if self.offline is not None:
            return Role.OFFLINE
        if self.leading is not None:
            return Role.LEADING
        if self.following is None or self.following.leader == NO_LEADER:
            return Role.IDLE
        return Role.FOLLOWING

    @property
    def high_watermark(self) -> int:
        """Everything before it is committed, as far as this replica knows."""
        if self.leading is not None:
            return self.leading.high_watermark
        if self.following is not None:
            return self.following.high_watermark
        return self._seen_watermark

    def configure(self, config: TopicConfig) -> None:
        """Apply the topic's settings."""
        self.topic_config = config
        try:
            self.log.configure(config)
        except DiskError as error:  # they apply all the same; the file is written when there is room
            self.disk_failed(error)
        self.unflushed_max = 0 if self.shared.flush_before_ack else config.flush_messages - 1
        if self.following is not None:
            self.following.unflushed_max = self.unflushed_max
        self.limits, self.target = timeless_limits(config), target_of(config)
        self.needs_keys, self.stamps_time = config.compacted, config.append_time  # asked for each batch
        self.shared.recoding.is_wanted |= self.target is not None
        if self.leading is not None:
            self.leading.min_insync_replicas = config.min_insync_replicas
            self._mark()

    # Checks of leadership.

    def led(self, epoch_asked: int = NO_EPOCH) -> Leader:
        """The leadership. Raises the error for a client or follower that asked the wrong broker or epoch."""
        leader = self.leading
        if leader is None:
            raise self._not_led(epoch_asked)
        if epoch_asked != leader.epoch and (wrong := self.shared.epoch_error(epoch_asked, leader.epoch)):
            raise error_for(wrong)
        return leader

    def _not_led(self, epoch_asked: int) -> Exception:
        if self.offline is not None:
            return KafkaStorageError()
        wrong = self.shared.epoch_error(NO_EPOCH if self.incomplete else epoch_asked, self.leader_epoch)
        return error_for(wrong or ErrorCode.NOT_LEADER_OR_FOLLOWER)

    @property
    def is_forsaken(self) -> bool:
        """Whether clients should look for another leader: we have no session, and the ISR does not fetch."""
        return self.shared.sessionless and self.led().is_forsaken(self.shared.loop.time())

    @property
    def is_in_doubt(self) -> bool:
        """Whether ZooKeeper says nothing of who leads. False if we do not: amid a change nobody is asked."""
        leader = self.leading
        return leader is not None and (self.shared.disconnected or leader.is_interrupted)

    @property
    def may_be_replaced(self) -> bool:
        """Whether another broker may lead: ZooKeeper says nothing, and no other member of the ISR fetches."""
        return self.is_in_doubt and self.led().is_forsaken(self.shared.loop.time())

    # Produce.

    def would_take(self, records: memoryview, acks: int, zstd_allowed: bool, now_ms: int) -> BatchHeader:
        """The header of a batch that could be appended now. Raises the producer's error otherwise."""
        leader = self.leading
        if leader is None:
            raise self._not_led(NO_EPOCH)
        shared = self.shared
        if shared.sessionless and (self.is_forsaken or (acks != -1 and shared.fenced)):
            raise NotLeaderOrFollower()  # REQUEST_TIMED_OUT would make no client look for another leader
        if acks == -1 and leader.under_min_isr:
            raise NotEnoughReplicas()
        looks_inside = shared.validate_records or self.needs_keys
        return checked(records, self.topic_config, self.limits, now_ms, zstd_allowed, looks_inside)

    def guard_for(self, producer_id: int, producer_epoch: int, sequence: int = -1) -> Guard | None:
        """What a batch of a transaction needs to be appended with, once the coordinator has said that the
        transaction is in this partition; None if that has been asked before, or need not be.
        """
        self.led()
        if not self.shared.verifies_transactions or self._has_begun(producer_id, producer_epoch):
            return None
        return self._guards.take(producer_id, producer_epoch, sequence)

    def _has_begun(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether the producer's transaction is open here already."""
        known = self.log.producers.get(producer_id)
        return known is not None and known.transaction_first_offset >= 0 and known.epoch == producer_epoch

    def append(
        self, records: memoryview, acks: int, zstd_allowed: bool = True, guard: Guard | None = None
    ) -> tuple[int, int, int]:
        """Append a batch unless it is a duplicate: its base offset, the end that acks=all waits for, and the
        append time (-1 if the topic keeps the producer's). `guard` is that of `guard_for`, verified.
        """
        now_ms = self.shared.clock.wall_ms()
        try:
            header = self.would_take(records, acks, zstd_allowed, now_ms)
        except (NotLeaderOrFollower, NotEnoughReplicas):
            self.sent_away(records)
            raise
        if header.producer_id >= 0:
            if self._skipped:
                writer = self.log.producers.get(header.producer_id)
                self._skipped.check(header, writer, self.shared.loop.time())
            known = self.log.producers.check(header)
            if known is not None:
                return known.base_offset, known.last_offset + 1, known.timestamp if self.stamps_time else -1
            if header.is_transactional:
                self._check_guard(header, guard)
        try:
            base_offset = self._write(records, header, self.leader_epoch, now_ms)
        except KafkaStorageError:
            self._skipped.refused(header, self.shared.loop.time())
            raise
        return base_offset, self.log.end_offset, now_ms if self.stamps_time else -1

    def sent_away(self, records: memoryview) -> None:
        """A batch was refused for a time before `append` has seen it, and will be sent again."""
        self._skipped.refused(read_header(records), self.shared.loop.time())

    def _check_guard(self, header: BatchHeader, guard: Guard | None) -> None:
        is_asked = self.shared.verifies_transactions
        if is_asked and not self._has_begun(header.producer_id, header.producer_epoch):
            self._guards.check(header, guard)

    def append_own(self, batch: bytearray, guard: Guard | None = None) -> int:
        """Append a batch made by this broker, with acks=all. Returns the end offset to wait for.

        It may be written for a producer, in its transaction: then its epoch counts, and the transaction must
        be verified, as in `append`, but it has no sequence.
        """
        leader = self._led_by_enough()
        view = memoryview(batch)
        header = read_header(view)
        if header.producer_id >= 0:
            self.log.producers.check_epoch(header)
            if header.is_transactional:
                self._check_guard(header, guard)
        self._write(view, header, leader.epoch, self.shared.clock.wall_ms())
        return self.log.end_offset

    def append_marker(self, producer_id: int, producer_epoch: int, marker: EndMarker) -> int:
        """End a producer's transaction, with acks=all. Returns the end offset to wait for: that of an earlier
        marker that says the same, if it is not committed yet and nothing has come since.
        """
        leader = self._led_by_enough()
        producers = self.log.producers
        known = producers.get(producer_id)
        earlier = self._ending.same(producer_id, producer_epoch, marker)
        if earlier is not None and known is not None and known.transaction_first_offset < 0:
            self._guards.end(producer_id)  # who asked after the earlier marker must ask again, too
            return earlier.end_offset
        producers.check_marker(producer_id, producer_epoch, marker)
        now_ms = self.shared.clock.wall_ms()
        view = memoryview(marker_batch(producer_id, producer_epoch, marker, now_ms))
        self._write(view, read_header(view), leader.epoch, now_ms)
        end = self.log.end_offset
        self._ending.add(Ending(end, producer_id, producer_epoch, marker))
        return end

    def _led_by_enough(self) -> Leader:
        leader = self.led()
        if leader.under_min_isr:
            raise NotEnoughReplicas()
        return leader

    def producers(self) -> Iterator[tuple[int, ProducerState]]:
        """Who writes here, as this replica's log says, whatever its role."""
        if self.offline is not None:
            raise KafkaStorageError()
        return iter(self.log.producers.items())

    def _write(self, records: memoryview, header: BatchHeader, epoch: Epoch, now_ms: int) -> int:
        if self.full is not None:
            raise KafkaStorageError(self.full)
        try:
            base_offset = self.log.append(records, header, epoch, now_ms)
        except DiskError as error:
            raise self.disk_failed(error) from error
        if header.attributes & TRANSACTIONAL:
            self._guards.end(header.producer_id)
        if (took_ms := self.shared.clock.wall_ms() - now_ms) > SLOW_APPEND_MS:
            logger.warning("append_slow", partition=str(self.tp), took_ms=took_ms, bytes=len(records))
        traffic = self.traffic
        traffic.messages_in += header.last_offset_delta + 1
        traffic.batches_in += 1
        traffic.bytes_in += len(records)
        self._mark()
        return base_offset

    # Fetch.

    def follower_fetched(
        self, follower: BrokerId, incarnation: Incarnation, offset: int, last_epoch: int, epoch_asked: int,
        log_start: int = -1,
    ) -> tuple[int, int] | None:  # fmt: skip
        """A follower fetches from `offset`: record its progress. Returns (epoch, end offset) if its log has
        diverged from ours.
        """
        leader = self.led(epoch_asked)
        if epoch_asked == NO_EPOCH:
            raise NotLeaderOrFollower()  # without an epoch its fetch proves nothing
        progress = leader.progress_of(follower)
        if progress is None:
            raise UnknownLeaderEpoch()
        log = self.log
        if last_epoch != NO_EPOCH and (parting := self.parting(last_epoch, offset)) is not None:
            return parting
        if not log.start_offset <= offset <= log.end_offset:
            raise OffsetOutOfRange()
        if log_start != progress.log_start_offset and not is_earlier(incarnation, progress.incarnation):
            progress.log_start_offset = Offset(log_start)
            self.shared.on_start_reported(self)
        now = self.shared.loop.time()
        if leader.end_offset != log.end_offset:  # "caught up" includes what was appended in this turn
            self._tell_end(leader, now)
        effects = leader.fetched(follower, incarnation, Offset(offset), now)
        if effects:
            self._mark()
            self.shared.perform(self, leader, effects)
        return None

    def parting(self, last_epoch: int, offset: int) -> tuple[int, int] | None:
        """Where a reader must truncate that holds everything before `offset`, the last of it in `last_epoch`.
        None if its log matches ours.
        """
        epoch, end = self.log.end_offset_for(last_epoch)
        if end < 0:
            raise OffsetOutOfRange()
        return (epoch, end) if epoch < last_epoch or end < offset else None

    @property
    def last_stable_offset(self) -> int:
        """Everything before it is committed and decided: readers with read_committed stop here."""
        return self.log.last_stable_offset(self.high_watermark)

    def aborted(self, offset: int, nbytes: int, end: int) -> list[tuple[int, int]]:
        """Producer id and first offset of each aborted transaction with records among the `nbytes` read from
        `offset`, none of them at or after `end`.
        """
        try:
            return self.log.aborted(offset, min(self.log.upper_bound(offset, nbytes), end))
        except DiskError as error:
            raise self.disk_failed(error) from error

    def read(self, offset: int, bytes_max: int, end: int, at_least_one: bool) -> Slices:
        """Batches from `offset` up to `end`. The caller has checked `led`. Raises Cold if the disk would have
        to be awaited.

        Damage takes this replica offline while another one can lead; the last one serves what it has.
        """
        leader = self.leading
        self.log.verifies = leader is not None and len(leader.isr.members) > 1
        try:
            return self.log.read(offset, bytes_max, end, at_least_one, wait=False)
        except DiskError as error:
            raise self.disk_failed(error) from error

    # The end of a loop turn, and the effects of the rules.

    def _mark(self) -> None:
        if not self.dirty:
            self.dirty = True
            self.shared.turn.mark(self)

    def mark(self) -> None:
        """Something has changed outside a request: settle soon."""
        self._mark()
        self.shared.turn.wake()

    def settle(self, now: float) -> None:
        """Once per turn: raise the high watermark, complete produce requests, wake fetches that have news."""
        self.dirty = False
        leader = self.leading
        if leader is None:
            return
        self._tell_end(leader, now)
        assert leader.high_watermark <= self.log.end_offset, "nothing is committed that is not here"
        if self.flush_acks.entries:
            self.flush_acks.reach(leader.safe_end, ErrorCode.NONE)
        if self._ending.waiting:  # before the coordinator is told: then group offsets are visible already
            for ending in self._ending.committed(leader.high_watermark):
                at = ending.end_offset - 1
                self.shared.on_transaction_ended(self.tp, ending.producer_id, ending.marker.committed, at)
        if self.acks.entries or self.acks.sparse:
            code = (
                ErrorCode.NONE if leader.committed_by_enough else ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
            )
            self.acks.reach(leader.high_watermark, code)
        if self.parked:
            self._wake_parked(leader.high_watermark)

    def _tell_end(self, leader: Leader, now: float) -> None:
        end, safe_end = self.log.end_offset, self.safe_end
        if safe_end < end:
            self.shared.flush(self.log)
        leader.appended(Offset(end), Offset(safe_end), now)  # its effect is the watermark: `settle` reads it

    @property
    def safe_end(self) -> int:
        """Up to where this replica may claim to hold records: at most `unflushed_max` are unflushed."""
        end = self.log.end_offset
        return end if end <= self.unflushed_max else min(self.log.flushed_offset + self.unflushed_max, end)

    def flushed(self) -> None:
        """A flush has ended. If it was not enough, the next one begins without waiting for the turn."""
        if self.leading is not None:
            if self.safe_end < self.log.end_offset:
                self.shared.flush(self.log)
            self.mark()

    def _wake_parked(self, watermark: int) -> None:
        """Followers retry when the log has grown, consumers when the high watermark has moved."""
        end = self.log.end_offset
        grown, risen = end != self._seen_end, watermark != self._seen_watermark
        self._seen_end, self._seen_watermark = end, watermark
        if grown or risen:
            for fetch in self.parked:
                fetch.news(grown, risen)

    def park(self, fetch: Parked) -> None:
        """`fetch` has just read too little: wake it on news from now on. It may name us twice."""
        if not self.parked:
            self._seen_end, self._seen_watermark = self.log.end_offset, self.high_watermark
        self.parked[fetch] = None
        self.log.keep_tail = True  # waiting fetches read the very end

    def stir(self) -> None:
        """Every parked fetch retries, whatever it waits for."""
        for fetch in self.parked:
            fetch.news(True, True)

    # Replicate: the log is what the leader says.

    def replicate(self, asked: AskRecords, data: PartitionData) -> list[PendingTruncation]:
        """Follower: take the leader's answer to a fetch. Its records go to the log, with its high watermark
        and log start, unless the log must be cut or restarted before: then returns what must be carried out.
        Raises CorruptBatch, NotNext or DiskError.
        """
        follower = self.following
        assert follower is not None, "only followers replicate"
        parting = data.diverging_epoch
        if parting is not None and (parting.epoch, parting.end_offset) != (NO_EPOCH, -1):
            return self.apply(follower.diverged(asked, Epoch(parting.epoch), Offset(parting.end_offset)))
        if not follower.accepts(asked):
            return []
        if (again := Rejoin.needed(self, data)) is not None:
            return [again]
        self.take(follower, data)
        return []

    def take(self, follower: Follower, data: PartitionData) -> None:
        """The leader's records continue the log, and what it knows of itself counts here."""
        log, records = self.log, data.records
        if records:
            assert not isinstance(records, Slices), "received records are one view of a frame"
            log.append_replicated(records, follower.epoch, self.shared.clock.wall_ms())
            self.shared.replication_bytes_in += len(records)
        cuts = self.apply(follower.replicated(Offset(data.high_watermark)))
        assert not cuts, "records that match the leader's ask for no truncation"
        self.missing = max(data.high_watermark - log.end_offset, 0)
        log.move_start(min(data.log_start_offset, follower.high_watermark))

    def apply(self, effects: Effects) -> list[PendingTruncation]:
        """Perform the follower rules' effects. Returns the truncations that remove records: what goes must be
        copied first (truncation.py).
        """
        follower = self.following
        assert follower is not None, "effects of a follower role that has ended"
        cuts: list[PendingTruncation] = []
        for effect in effects:
            match effect:
                case HighWatermarkMoved():  # first, for it comes with every batch
                    pass  # nobody waits for it; the checkpoint reads it from `following`
                case Truncate():
                    cut = Cut(self, effect)
                    if cut.takes_away:
                        cuts.append(cut)
                    else:
                        cut.make()
                case RestartAt():
                    cuts.append(Restart(self, effect))
                case FailReplica(reason):
                    self.fail(reason)
                case _:
                    raise AssertionError(f"unexpected effect of a follower: {effect}")
        return cuts

    def truncate(self, effect: Truncate, producers: AsOf | None) -> int:
        """Truncate the log as the follower rules ask; returns its new end. `producers` as of that end, if
        known. Raises DiskError.
        """
        follower = self.following
        assert follower is not None, "only followers truncate"
        end = self.log.truncate_to(effect.to, producers)
        follower.truncated(effect)
        return end

    def restart(self, effect: RestartAt) -> None:
        """Empty the log, which begins again where its leader's does. Its directory must be synced before
        anyone is told. Raises DiskError.
        """
        follower = self.following
        assert follower is not None, "only followers restart"
        self.log.restart_at(effect.offset, self.shared.clock.wall_ms(), sync=False)
        if effect.offset > 0:
            self._skipped.began_later()
        follower.restarted()

    # Roles begin and end.

    def pause(self) -> None:
        """A transition begins: neither leader nor follower until it ends. Waiters go on waiting."""
        self._seen_watermark = self.high_watermark
        self.incomplete = self.changing = True
        self.leading = None
        self.following = None

    def lead(self, mandate: Mandate) -> None:
        """Lead in a new epoch, which stands in the log's epoch file already (not synced: decision 65)."""
        shared, log = self.shared, self.log
        known = log.epochs.latest if shared.options.semantics.begins_when_elected else mandate.epoch
        assert self.incomplete and known == mandate.epoch, "a leader epoch starts before its records"
        leader = Leader(
            shared.me, mandate, Offset(log.end_offset), Offset(self._seen_watermark), shared.loop.time(),
            shared.membership, shared.options, self.topic_config.min_insync_replicas,
        )  # fmt: skip
        log.keep_tail = log.keep_tail or len(mandate.replicas) > 1  # followers read the very end
        stays = self.leader_id == shared.me and mandate.epoch == self.leader_epoch + 1
        if mandate.epoch > 0 and not (stays or mandate.recovering):  # gaps of what is lost stay
            self._skipped.taken_over(shared.loop.time())
        self.leading = leader
        self._enter(shared.me, mandate.epoch)
        leader.safe_end = Offset(self.safe_end)
        shared.perform(self, leader, leader.opened(shared.loop.time()))
        self._announced = True
        shared.on_leading(self)

    def follow(self, leader: BrokerId, epoch: Epoch) -> None:
        """Follow in a new epoch, even if the leader is the same. With no leader, wait for one."""
        assert self.incomplete and self.leading is None, "a role changes only in a transition"
        watermark = Offset(self._seen_watermark)
        semantics = self.shared.options.semantics
        self.following = Follower(self.log, leader, epoch, watermark, self.unflushed_max, semantics)
        self._enter(leader, epoch)
        self._give_up()  # waiters learn who leads now

    def _enter(self, leader: BrokerId, epoch: Epoch) -> None:
        assert epoch >= self.leader_epoch, "leader epochs never go back"
        self.leader_id = leader
        self.incomplete = self.changing = False
        self.leader_epoch = epoch  # last: until then an equal epoch would be applied again
        self.stir()
        self.mark()

    def stop(self, epoch: Epoch) -> None:
        """StopReplica: have no role until LeaderAndIsr gives one, even in the same epoch."""
        self.resign()
        self.incomplete = True
        self.leader_id = NO_LEADER
        self.leader_epoch = epoch

    def resign(self, successor: tuple[int, int] = (NO_LEADER, NO_EPOCH)) -> None:
        """Neither lead nor follow any more. Waiters get 6, and the new leader as a hint, if it is known."""
        self.changing, self.successor = False, successor
        self._seen_watermark = self.high_watermark
        self.leading = None
        self.following = None
        self._give_up()

    def _give_up(self) -> None:
        self.log.forget_tail()
        self.acks.fail(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.flush_acks.fail(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self._ending.clear()
        self._guards.clear(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.stir()
        self.shared.turn.wake()
        if self._announced:
            self._announced = False
            self.shared.on_resigned(self.tp)

    def fail(self, reason: str) -> None:
        """Take this replica offline: its data cannot be trusted."""
        logger.error("replica_offline", partition=str(self.tp), reason=reason)
        self.shared.recorder.note(str(self.tp), "went_offline", why=reason)
        self.offline = reason
        self.resign()

    def disk_failed(self, error: DiskError) -> KafkaStorageError:
        """A file call failed. A full disk may recover; a failed one takes the replica offline."""
        if isinstance(error, DiskFailed | LogDamaged):
            self.fail(str(error))
        self.shared.on_disk_failed(self, error)
        return KafkaStorageError(str(error))
