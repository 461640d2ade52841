"""Reads one span of one partition, whatever happens to its leader meanwhile.

The next offset is the only state. It comes from batch headers, so gaps left by compaction and control batches
move it too, and a repeated request can neither skip nor repeat a record. One request is in flight while the
previous answer is decoded. After an error metadata is refreshed and the request is repeated, as long as there
was progress within the stall time. With a rack the leader may name a replica that is nearer; that is asked
until it fails or falls behind.
Left to others: decoding (protocol/columns.py).
"""

from collections.abc import Iterator
from typing import NamedTuple, cast

from ...base.logger import get_logger
from ...protocol.batches import headers
from ...protocol.errors import ApiError, ErrorCode, OffsetOutOfRange, UnknownTopicOrPartition
from ...protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from ...protocol.messages.offsets import EARLIEST, LATEST
from ...protocol.primitives import NO_UUID, Buffer
from .client import (
    BACKOFF_FIRST,
    BACKOFF_MAX,
    PartitionLeader,
    SparkCluster,
    Unreachable,
    Wire,
    error_about,
    passing,
)
from .leaders import epoch_ends, list_offsets
from .plan import DataLoss, Span
from .transactions import without_aborted

log = get_logger(__name__)

UNREACHABLE_SECONDS_MAX = 30.0  # longer than brokers need to find out that one of them is gone
REPLACED = "A batch: load() it again. A stream: to go on with what is there now, set failOnDataLoss=false"
BY_NAME_LAST = 12  # of Fetch: later versions name topics by id alone


class Stalled(TimeoutError):
    """No record came for the whole stall time; Spark repeats the task."""


class NotYet(ConnectionError):
    """The leader does not have everything yet that was committed at planning, or is not leader any more."""


class FetchedRun(NamedTuple):
    """Complete batches; only records from `start` on are new. A broker sent them, and this high watermark."""

    records: Buffer
    start: int
    served_by: int = -1
    high_watermark: int = -1
    file: str = ""  # of a closed log


class SpanReader:
    """The fetch loop over one span, for one pass: `for run in reader`, exhausted or closed.

    Records that others have replaced are DataLoss in any case, unless `skip_replaced`: the span ends there.
    """

    def __init__(
        self,
        cluster: SparkCluster,
        span: Span,
        stall_seconds: float,
        fail_on_data_loss: bool,
        skip_replaced: bool = False,
    ) -> None:
        self.position = span.start
        self._cluster = cluster
        self._span = span
        self._stall_seconds = stall_seconds
        self._fail_on_data_loss = fail_on_data_loss
        self._skip_replaced = skip_replaced
        self._asked: Wire | None = None  # with one answer outstanding
        self._rack = cluster.options.rack  # "" once a replica has failed: then only the leader is asked
        self._replica: PartitionLeader | None = None  # whom the leader has named
        self._served_by = -1
        self._backoff = BACKOFF_FIRST
        self._doubts = 0  # answers in a row that the position is out of range, or has nothing yet
        self._others = 0  # looks in a row that found another topic of this name
        self._gone = 0  # looks in a row that found no such partition
        self._deadline = cluster.now() + stall_seconds
        self._unreachable: tuple[PartitionLeader, float] | None = None  # the leader, and since when

    def __iter__(self) -> Iterator[FetchedRun]:
        try:
            if self._span.partition not in self._cluster.view.leaders:
                self._look()
            while self.position < self._span.end:
                try:
                    run = self._next()
                except (OSError, ApiError) as trouble:
                    self._recover(trouble)
                    continue
                except DataLoss as loss:
                    if not self._skip_replaced:
                        raise
                    log.warning("records_replaced", reason=str(loss), end=self._span.end)
                    return
                if run is not None:
                    yield run
                    self._progressed()  # whoever took the rows may have been away for long
        finally:
            self._drop()

    def _next(self) -> FetchedRun | None:
        wire = self._asked or self._ask(None)
        response = wire.receive()
        try:
            data = self._data_of(response)
        except ApiError as trouble:
            self._give_back(wire)
            if isinstance(trouble, OffsetOutOfRange) and self._replica is None:
                self._lost(trouble)
                return None
            raise
        start, served_by = self.position, self._served_by
        records, self.position = self._as_planned(cast(Buffer, data.records or b""))  # decoded: in one piece
        if self.position == start:
            self._give_back(wire)
            self._nothing(data)
            return None
        self._progressed()
        self._ask_ahead(wire)
        kept = without_aborted(records, data.aborted_transactions or ())
        return FetchedRun(kept, start, served_by, data.high_watermark)

    def _nothing(self, data: PartitionData) -> None:
        """Go to the replica that the leader names, or wait; unless what was planned is known to be gone."""
        nearer = data.preferred_read_replica
        if nearer >= 0 and self._replica is None and self._rack:
            address = self._cluster.view.brokers.get(nearer)
            if address is None:
                self._rack = ""  # metadata does not have it: the leader is asked itself
            else:
                self._replica = PartitionLeader(address, -1, nearer)
            return
        self._doubts += 1
        if self._doubts > self._cluster.options.retries and self._replica is None:
            self._check_end()
        if self.position < self._span.end:
            raise NotYet(f"the high watermark is {data.high_watermark}")

    def _check_end(self) -> None:
        """Whether the log, under another leader, ends before the span does: then nothing more will come."""
        tp, end, epoch = self._span.partition, self._span.end, self._span.leader_epoch
        if epoch < 0 or self._cluster.leader(tp).epoch == epoch:
            return
        cut = epoch_ends(self._cluster, {tp: epoch})[tp].offset
        if 0 <= cut <= self.position:
            self._skip(end, f"the log was truncated at {cut}")

    def _ask_ahead(self, wire: Wire) -> None:
        """Send the next request early. An error waits for the next turn, so what was received is not lost."""
        if self.position >= self._span.end:
            self._give_back(wire)
            return
        try:
            self._ask(wire)
        except (OSError, ApiError, DataLoss):
            self._drop()

    def _ask(self, wire: Wire | None) -> Wire:
        """Send the fetch from the position on."""
        partition, options = self._span.partition, self._cluster.options
        self._check_topic()
        leader = self._leader()
        source = self._replica or leader
        if wire is None:
            wire = self._cluster.take(source.address)
        self._asked = wire
        self._served_by = source.broker
        wanted = FetchPartition(
            partition=partition.partition,
            current_leader_epoch=leader.epoch,
            fetch_offset=self.position,
            partition_max_bytes=options.fetch_bytes,
        )
        wire.send(
            FetchRequest(
                max_wait_ms=options.fetch_wait_ms,
                min_bytes=options.fetch_min_bytes,
                max_bytes=options.fetch_bytes,
                isolation_level=options.isolation,
                topics=[FetchTopic(topic=partition.topic, topic_id=self._span.topic_id, partitions=[wanted])],
                rack_id=self._rack,
            ),
            version_max=BY_NAME_LAST if self._span.topic_id == NO_UUID else None,
        )
        return wire

    def _leader(self) -> PartitionLeader:
        """The leader by the last metadata, unless its epoch is over: it may lack what was planned."""
        leader = self._cluster.leader(self._span.partition)
        if -1 < leader.epoch < self._span.leader_epoch:
            raise NotYet(
                f"metadata has leader epoch {leader.epoch}, older than {self._span.leader_epoch} at planning"
            )
        return leader

    def _check_topic(self) -> None:
        """Raise DataLoss if metadata has another topic id under this name: brokers only refuse the old id.

        What this process has heard may be older than the plan: it is believed only when it is heard again.
        """
        partition, planned = self._span.partition, self._span.topic_id
        known = self._cluster.view.topic_ids.get(partition.topic, NO_UUID)
        if NO_UUID in (planned, known) or known == planned:
            self._others = 0
            return
        self._others += 1
        if self._others <= self._cluster.options.retries:
            raise NotYet(f"{partition}: topic {partition.topic} has another id")
        raise DataLoss(
            f"{partition}: topic {partition.topic} was deleted and created again after the read "
            f"was planned; its old records are gone. {REPLACED}"
        )

    def _as_planned(self, records: Buffer) -> tuple[Buffer, int]:
        """The records before the first one of a later epoch than the leader had at planning; where they end.

        Such a record below the span's end has taken the place of one that was planned.
        """
        span, after = self._span, self.position
        for pos, header in headers(records):
            if -1 < span.leader_epoch < header.leader_epoch and header.base_offset < span.end:
                if pos and self._skip_replaced:
                    return memoryview(records)[:pos], after
                raise DataLoss(
                    f"{span.partition}: offset {header.base_offset} has leader epoch "
                    f"{header.leader_epoch}, but the read was planned in epoch {span.leader_epoch}: "
                    f"records [{header.base_offset}, {span.end}) were truncated and rewritten since. "
                    f"{REPLACED}"
                )
            after = max(after, header.next_offset)
        return records, after

    def _data_of(self, response: FetchResponse) -> PartitionData:
        if response.error_code:
            raise error_about(response.error_code, self._span.partition)
        for topic in response.responses:
            for data in topic.partitions:
                if data.error_code:
                    raise error_about(data.error_code, self._span.partition)
                return data
        raise UnknownTopicOrPartition(f"the response lacks {self._span.partition}")

    def _recover(self, trouble: OSError | ApiError) -> None:
        """Drop the connection, wait a little, look for the leader again; or give up."""
        self._drop()
        if self._replica is not None:
            self._replica, self._rack = None, ""
            return
        if isinstance(trouble, ApiError) and trouble.code != ErrorCode.UNKNOWN_SERVER_ERROR:
            passing(trouble)
        if self._cluster.now() > self._deadline:
            if self._gone <= len(self._cluster.view.brokers) + self._cluster.options.retries:
                raise self._stalled(str(trouble)) from trouble
            self._skip(self._span.end, "no broker knows the partition any more")
            return
        if isinstance(trouble, Unreachable):
            self._check_reachable(trouble)
        self._cluster.sleep(self._backoff)
        self._backoff = min(2 * self._backoff, BACKOFF_MAX)
        self._look()

    def _look(self) -> None:
        """Refresh the metadata, if any broker answers."""
        partition = self._span.partition
        try:
            there = self._cluster.refresh([partition.topic])
        except OSError:
            self._unreachable = None  # nobody says that the leader is running
            return
        is_known = partition.partition in there.get(partition.topic, ())
        self._gone = 0 if is_known else self._gone + 1

    def _check_reachable(self, trouble: Unreachable) -> None:
        """Give up early if the brokers still name a leader that this machine has long failed to connect to.

        Brokers notice when one of them is gone, and name another leader or none. If they go on naming it,
        it is running, and no waiting will open a way to its address.
        """
        leader = self._cluster.leader(self._span.partition)
        now = self._cluster.now()
        if self._unreachable is None or self._unreachable[0] != leader:
            self._unreachable = leader, now
        elif now - self._unreachable[1] > UNREACHABLE_SECONDS_MAX:
            raise Unreachable(
                f"{self._span.partition}: {trouble}. For {UNREACHABLE_SECONDS_MAX:g} s brokers have named it "
                "as the leader"
            ) from trouble

    def _lost(self, trouble: OffsetOutOfRange) -> None:
        """The leader has no record at the position. If it may only lag behind, it is asked again."""
        tp, end = self._span.partition, self._span.end
        earliest = list_offsets(self._cluster, {tp: EARLIEST})[tp].offset
        latest = list_offsets(self._cluster, {tp: LATEST})[tp].offset
        if earliest <= self.position:
            self._doubts += 1
            if self._doubts <= self._cluster.options.retries:
                raise NotYet(str(trouble))
        resume = min(earliest, end) if earliest > self.position else end
        self._skip(resume, f"the log has [{earliest}, {latest})")

    def _skip(self, resume: int, reason: str) -> None:
        """Go on behind records that are gone, if that is wanted."""
        lost = f"{self._span.partition}: records [{self.position}, {resume}) are gone, {reason}"
        if self._fail_on_data_loss:
            raise DataLoss(f"{lost}. To read what is left, set failOnDataLoss=false")
        log.warning("records_lost", partition=str(self._span.partition), start=self.position, end=resume)
        self.position = resume
        self._progressed()

    def _progressed(self) -> None:
        self._backoff = BACKOFF_FIRST
        self._doubts = self._others = 0
        self._unreachable = None
        self._deadline = self._cluster.now() + self._stall_seconds

    def _stalled(self, reason: str) -> Stalled:
        return Stalled(
            f"{self._span.partition}: no progress at offset {self.position} of {self._span.end} "
            f"for {self._stall_seconds:g} s: {reason}"
        )

    def _give_back(self, wire: Wire) -> None:
        self._asked = None
        self._cluster.give(wire)

    def _drop(self) -> None:
        """Close the connection: with an answer outstanding no other reader can use it."""
        if self._asked is not None:
            self._asked.close()
            self._asked = None
