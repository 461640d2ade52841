"""Truncates followers' logs, and keeps a copy of the removed records before the log loses a byte.

Without the copy, a truncation after an unclean election would destroy acknowledged records for good. What may
be their only copy is synced first. What a member of the ISR has and its leader lacks was never committed, and
acks=all waits for this follower now: its copy is written and left to the kernel to sync.
A fetcher collects the truncations that one response asks for. Per log directory, one hop to a thread copies
what will go and lowers the checkpoints; the event loop never waits for a disk. Then each cut is made, if its
replica is still as it was when the leader answered. A copy costs several syncs, so many copies share one; a
copy that turns out unneeded is deleted. A log that restarts at its leader's log start, because the leader has
nothing so old, goes the same way, but nothing is kept: a broker that was away for long does that with all of
its logs.
If the copy fails for now (disk full), nothing is cut: the follower waits and asks again. If there can be no
copy at all (no right to write), waiting would never end: the cut is made and logged as an error. To truncate
without copies, set strandline.log.aside.bytes.max=0.
Left to others: to which offset (replication/truncation.py), the cut itself (storage/log/log.py), where copies
are kept and for how long (storage/quarantine.py).
Why: docs/decisions/0039-nothing-is-cut-that-was-not-kept.md, 0065-a-failover-waits-for-no-sync.md
"""

import asyncio
import errno
import posixpath
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

import structlog

from ...base.types import NO_EPOCH, Offset
from ...protocol.batches import headers
from ...protocol.messages.fetch import PartitionData
from ...protocol.primitives import Malformed, Slices
from ...replication.effects import Effects, RestartAt, Truncate
from ...replication.follower import Follower
from ...storage.directories.offset_checkpoints import Bounds, Lowered
from ...storage.disk import Disk, DiskError, DiskFailed, LogDamaged
from ...storage.log.bulk_sync import MANY, settle_restarted
from ...storage.log.checkpoints import kafka_uuid
from ...storage.log.log import AsOf, CorruptBatch
from ...storage.log.truncation import Leaving
from ...storage.quarantine import Aside, Removal, Shelf, may_be_the_only_copy
from ...storage.segment.replicated_run import checked_run
from .per_directory import by_directory, side_by_side

if TYPE_CHECKING:
    from .partition import Partition
    from .shared import ReplicaShared

Uncut: TypeAlias = "tuple[Partition, Follower, Effects]"

BREATH = 20  # cuts between two yields to the event loop
AGAIN_SECONDS = 0.5  # until a cut by `cut_unasked` that failed is tried again
NO_PLACE = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT})  # they do not pass by themselves

logger = structlog.get_logger(__name__)


class PendingTruncation(ABC):
    """A truncation or restart of one follower's log, and the log's state when the leader asked for it."""

    begins_anew = False

    def __init__(self, partition: "Partition") -> None:
        self.partition = partition
        self.error: OSError | None = None
        self.has_no_place = False  # for the copy, and waiting will not help
        self._segments = list(partition.log.segments)
        self._follower = partition.following
        self._log = partition.log
        self._generation = partition.log.generation
        self._end = partition.log.end_offset

    @property
    @abstractmethod
    def bounds(self) -> Bounds:
        """What checkpoints may say of the log once it is cut."""

    def keep(self, sync: bool = True) -> None:  # noqa: B027
        """Copy what will go, synced if `sync`. Blocking, for any thread. A failure is in `error`."""

    def lose(self, error: OSError) -> None:  # noqa: B027
        """The copy failed or is not durable: discard it. Blocking."""

    @property
    def is_kept(self) -> bool:
        """Whether there is a copy."""
        return False

    @property
    def is_precious(self) -> bool:
        """Whether the copy must be on the medium before the cut."""
        return False

    def discard(self) -> None:  # noqa: B027
        """Delete the copy, because the records stay in the log. Blocking."""

    @abstractmethod
    def make(self) -> None:
        """Cut. Raises DiskError."""

    @property
    def directory(self) -> str:
        """The log directory."""
        return posixpath.dirname(self._log.directory)

    @property
    def is_wanted(self) -> bool:
        """Whether the replica still follows the leader that asked for it, in the same epoch."""
        return self.partition.following is self._follower

    def holds(self) -> bool:
        """Whether the log is as it was when its leader asked: what was copied is then what will go."""
        partition, held = self.partition, self._log
        return (
            self.is_wanted
            and partition.log is held
            and partition.offline is None
            and held.generation == self._generation
            and held.end_offset == self._end
            and held.segments == self._segments  # none was retired or compacted
        )

    def tell_not_kept(self) -> None:
        """Log that there is no copy: the cut waits, or is made all the same."""
        name, why = str(self.partition.tp), str(self.error)
        logger.error("removal_not_kept", partition=name, cut=self.has_no_place, reason=why)
        self.partition.shared.recorder.note(name, "cut_unkept" if self.has_no_place else "cut_waits", why=why)


class Restart(PendingTruncation):
    """A log that is emptied and restarts where its leader's log starts."""

    begins_anew = True

    def __init__(self, partition: "Partition", effect: RestartAt) -> None:
        super().__init__(partition)
        self.effect = effect

    @property
    def bounds(self) -> Bounds:
        return Bounds(0, self.effect.offset)

    def make(self) -> None:
        partition, begins_at = self.partition, self.effect.offset
        partition.shared.recorder.note(
            str(partition.tp), "restarted", end=self._log.end_offset, leader_begins_at=begins_at
        )
        partition.restart(self.effect)


class Rejoin(Restart):
    """A log that is empty restarts before its leader's records are appended.

    A little earlier than its leader's log starts, where the batch begins that holds the start
    (DeleteRecords): a batch is copied as a whole. Or at its end, if the leader's records are of an epoch
    before one in which this replica led, uncleanly, and wrote nothing.
    """

    def __init__(self, partition: "Partition", data: PartitionData, begins_at: int) -> None:
        super().__init__(partition, RestartAt(Offset(begins_at)))
        assert data.records is not None and self._follower is not None, "a follower has been sent records"
        self._data = replace(data, records=bytes(data.records))

    @staticmethod
    def needed(partition: "Partition", data: PartitionData) -> "Rejoin | None":
        """The restart that must come before these records are appended. None if they can be as it is.

        Raises CorruptBatch or NotNext if they could not be after it either.
        """
        log, follower, records = partition.log, partition.following, data.records
        if follower is None or not records or log.end_offset != log.start_offset:
            return None
        assert not isinstance(records, Slices), "received records are one view of a frame"
        first = None
        with suppress(Malformed):
            first = next((header for _, header in headers(records)), None)
        if first is None:
            return None
        is_around = first.base_offset < log.end_offset < first.next_offset
        if not is_around and first.leader_epoch >= log.epochs.latest:
            return None
        begins_at = first.base_offset if is_around else log.end_offset
        checked_run(records, begins_at, NO_EPOCH, follower.epoch)
        return Rejoin(partition, data, begins_at)

    def make(self) -> None:
        assert self._follower is not None, "only a follower's log restarts"
        super().make()
        self.partition.take(self._follower, self._data)


class Cut(PendingTruncation):
    """One truncation of one follower's log, from the leader's answer to the log's new end."""

    def __init__(self, partition: "Partition", effect: Truncate) -> None:
        super().__init__(partition)
        self.effect = effect
        self._leaving = partition.log.leaving(effect.to)
        self._shelf: Shelf | None = None
        self._producers: AsOf | None = None  # as of the cut; it may take reading a segment
        self._removal = self._described(self._leaving) if self._leaving is not None else None

    def _described(self, leaving: Leaving) -> Removal:
        partition, follower = self.partition, self._follower
        assert follower is not None, "only a follower's log is truncated"
        topic_id = self._log.topic_id
        unclean = partition.recovering
        how = "was elected uncleanly" if unclean else "leads"
        return Removal(
            partition=str(partition.tp),
            topic_id=None if topic_id is None else kafka_uuid(topic_id),
            at_ms=partition.shared.clock.wall_ms(),
            cause="truncation",
            reason=(
                f"broker {follower.leader} {how} in epoch {follower.epoch} and does not have these records"
            ),
            from_offset=leaving.from_offset,
            end_offset=leaving.end_offset,
            epochs=leaving.epochs,
            high_watermark=partition.high_watermark,
            leader=follower.leader,
            leader_epoch=follower.epoch,
            unclean=unclean or None,
        )

    @property
    def takes_away(self) -> bool:
        """Whether it removes any record."""
        return self._leaving is not None

    @property
    def bounds(self) -> Bounds:
        end = self._end if self._leaving is None else self._leaving.from_offset
        start = self._log.start_offset
        return Bounds(end if end >= start else 0, start)  # if the log starts within what goes, it is empty

    @property
    def is_kept(self) -> bool:
        return self._shelf is not None

    @property
    def is_precious(self) -> bool:
        return not self.partition.in_sync or may_be_the_only_copy(self._removal)

    def keep(self, sync: bool = True) -> None:
        self._keep_aside(sync)
        if self.error is None and self._leaving is not None:
            with suppress(OSError, CorruptBatch):  # tried again, and reported, when the log is cut
                self._producers = self._log.producers_as_of(self._leaving.from_offset)

    def _keep_aside(self, sync: bool) -> None:
        if self._removal is None or self._leaving is None or not self.partition.shared.keeps_aside:
            return
        try:
            self._shelf = Aside(self._log.disk, self.directory).shelf(self._removal, sync)
            for path, position in self._leaving.files:
                self._shelf.copy(path, position)
            self._shelf.close()
        except OSError as error:
            self.lose(error)

    def lose(self, error: OSError) -> None:
        assert self._leaving is not None, "a truncation removes records"
        self.error = error
        self.discard()
        disk: Disk = self._log.disk
        there = all(disk.exists(path) for path, _ in self._leaving.files)  # else the sources are missing
        self.has_no_place = error.errno in NO_PLACE and there

    def discard(self) -> None:
        if self._shelf is not None:
            shelf, self._shelf = self._shelf, None
            try:
                shelf.disk.rmtree(shelf.path)
            except OSError as error:
                logger.warning("removal_not_deleted", path=shelf.path, reason=str(error))

    def make(self) -> None:
        partition, follower = self.partition, self._follower
        assert follower is not None, "only a follower's log is truncated"
        watermark = partition.high_watermark
        end = partition.truncate(self.effect, self._producers)
        if end != self._end:
            told = {"end": end, "was": self._end, "watermark": watermark, "epoch": follower.epoch}
            aside = None if self._shelf is None else self._shelf.path
            (logger.error if end < watermark else logger.info)(
                "log_truncated", partition=str(partition.tp), aside=aside, **told
            )
            partition.shared.recorder.note(
                str(partition.tp),
                "truncated",
                leader=follower.leader,
                aside=aside,
                unclean=partition.recovering,
                **told,
            )
            partition.shared.truncated_below_watermark += end < watermark


async def carry_out(cuts: list[PendingTruncation]) -> dict["Partition", str]:
    """Copy what the cuts will remove, then cut. Returns the partitions to ask for again, with the reasons."""
    failed: dict[Partition, str] = {}
    if cuts:
        shared, there = cuts[0].partition.shared, by_directory({cut: cut.directory for cut in cuts})
        await side_by_side(_carry_out_in(shared, each, some, failed) for each, some in there.items())
    return failed


async def _carry_out_in(
    shared: "ReplicaShared", directory: str, cuts: Sequence[PendingTruncation], failed: dict["Partition", str]
) -> None:
    """The cuts in one log directory."""
    loop = asyncio.get_running_loop()
    async with shared.cutting_in[directory]:
        lowered = await loop.run_in_executor(None, _prepare, cuts)
        try:
            void, begun = [], []
            for place, cut in enumerate(cuts, 1):
                if place % BREATH == 0:
                    await asyncio.sleep(0)
                if not _may_be_made(cut, lowered, failed):
                    void += [] if cut.error is not None and not cut.has_no_place else [cut]
                elif _is_made(cut, failed) and cut.begins_anew:
                    begun.append(cut.partition)
            if void:
                await loop.run_in_executor(None, _discard_all, void)
            if begun:
                await _settle(begun, failed)
        finally:
            shared.lift(lowered)


async def cut_unasked(
    shared: "ReplicaShared", uncut: Sequence[Uncut], done: Callable[["Partition"], None]
) -> None:
    """Truncations that an old semantics profile makes without asking the leader. Calls `done` for each.

    Tried until it is made or the replica follows no more: nothing may be fetched behind records that must go.
    """
    while uncut := [each for each in uncut if each[0].following is each[1]]:
        cuts: list[PendingTruncation] = []
        for partition, _, effects in uncut:
            try:
                cuts += partition.apply(effects)
            except DiskError as error:
                partition.disk_failed(error)
        made = {cut.partition for cut in cuts} - set(await carry_out(cuts))
        for partition, follower, _ in uncut:
            if partition in made and partition.following is follower:
                done(partition)
        uncut = [each for each in uncut if each[0] not in made]
        if uncut:
            await asyncio.sleep(AGAIN_SECONDS)


def _may_be_made(cut: PendingTruncation, lowered: Lowered, failed: dict["Partition", str]) -> bool:
    """Whether the copy and the checkpoints are ready, and the replica is still as it was."""
    partition = cut.partition
    if cut.error is not None:
        cut.tell_not_kept()
        if not cut.has_no_place:
            failed[partition] = f"cannot keep a copy of the records to truncate: {cut.error}"
            return False
    if not cut.holds():
        if cut.is_wanted:
            failed[partition] = "its log changed while the records to truncate were copied"
        return False
    if (promised := lowered.errors.get(partition.tp)) is not None:
        partition.disk_failed(promised)
        failed[partition] = f"cannot lower the checkpoints below the truncation: {promised}"
        return False
    return True


def _is_made(cut: PendingTruncation, failed: dict["Partition", str]) -> bool:
    try:
        cut.make()
    except DiskError as error:
        cut.partition.disk_failed(error)
        failed[cut.partition] = str(error)
        return False
    return True


async def _settle(begun: Sequence["Partition"], failed: dict["Partition", str]) -> None:
    """Sync restarted logs before a fetch from their new start says "I hold everything before it"."""
    logs = [partition.log for partition in begun]
    loop = asyncio.get_running_loop()
    for held, error in await loop.run_in_executor(None, settle_restarted, logs[0].disk, logs):
        for partition in begun:
            if partition.log is held and partition.offline is None:
                whole = error if isinstance(error, DiskFailed) else LogDamaged(error.path, error.error)
                partition.disk_failed(whole)  # nobody would sync it again, but a fetch would claim it
                failed[partition] = str(error)


def _prepare(cuts: Sequence[PendingTruncation]) -> Lowered:
    """Copy, and lower the checkpoints, for the cuts in one log directory. Blocking."""
    one_by_one = len(cuts) < MANY
    for cut in cuts:
        cut.keep(sync=one_by_one and cut.is_precious)
    if not one_by_one:
        _sync_copies([cut for cut in cuts if cut.is_kept and cut.is_precious])
    ready = {cut.partition.tp: cut.bounds for cut in cuts if cut.error is None or cut.has_no_place}
    return cuts[0].partition.shared.lower(ready)


def _sync_copies(kept: Sequence[PendingTruncation]) -> None:
    """One sync for all copies: thousands would each wait for several syncs of their own."""
    if not kept:
        return
    first = kept[0]
    try:
        Aside(first.partition.log.disk, first.directory).sync()
    except OSError as error:
        for cut in kept:
            cut.lose(error)


def _discard_all(cuts: Iterable[PendingTruncation]) -> None:
    for cut in cuts:
        cut.discard()
