"""How a follower's log is cut: what goes is kept aside, on the medium before the first byte leaves the log.

A fetcher collects the cuts of one answer. A thread copies what they will take away and lowers what
checkpoints promise, all in one hop; then each is made, if its replica is still as it was when the leader
spoke. A copy that was not needed is deleted again. A log that begins anew, for its leader has nothing so
old, goes the same way, with nothing kept: a broker that was away for long does that with all of its logs.
If nothing can be kept for now (no room) nothing is cut: the follower waits and asks again. Where there is no
place at all (no right to write), waiting would be for ever: the cut is made and told as an error. Whoever
would rather lose it in any case sets strandline.log.aside.bytes.max=0.
Left to others: what to cut (replication/follower.py), where it is kept and for how long (storage/aside.py).
"""

import asyncio
import errno
import posixpath
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import structlog

from ..replication.effects import RestartAt, Truncate
from ..storage.aside import Aside, Removal, Shelf
from ..storage.checkpoints import kafka_uuid
from ..storage.disk import Disk, DiskError
from ..storage.leaving import Leaving
from ..storage.together import settle_restarted

if TYPE_CHECKING:
    from .partition import Partition

BREATH = 20  # after so many cuts, others get a turn
NO_PLACE = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT})  # it will not pass by itself

log = structlog.get_logger(__name__)


class Cutting:
    """What is to be taken from the end of one follower's log, and how that was when its leader spoke."""

    begins_anew = False

    def __init__(self, partition: "Partition") -> None:
        self.partition = partition
        self.error: OSError | None = None
        self.has_no_place = False  # for what goes: there is no use in waiting for one
        self._segments = list(partition.log.segments)
        self._follower = partition.following
        self._log = partition.log
        self._generation = partition.log.generation
        self._end = partition.log.end_offset

    @property
    def end(self) -> int:
        """Where the log ends once it is cut."""
        raise NotImplementedError

    def keep(self) -> None:
        """Copy what will go, and see it on the medium. Blocking, for any thread; `error` says how it went."""

    def discard(self) -> None:
        """Delete what was kept: it stays in the log after all. Blocking."""

    def make(self) -> None:
        """Cut. Raises DiskError."""
        raise NotImplementedError

    @property
    def is_wanted(self) -> bool:
        """Whether the leader that has spoken is still the one that is followed."""
        return self.partition.following is self._follower

    def holds(self) -> bool:
        """Whether the replica is as it was when its leader spoke, and what was copied is what goes."""
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
        """What goes is not kept aside: it waits for a place, or goes all the same."""
        name, why = str(self.partition.tp), str(self.error)
        log.error("removal_not_kept", partition=name, cut=self.has_no_place, reason=why)
        self.partition.host.recorder.note(name, "cut_unkept" if self.has_no_place else "cut_waits", why=why)


class Restart(Cutting):
    """A log that begins anew where its leader's does."""

    begins_anew = True

    def __init__(self, partition: "Partition", effect: RestartAt) -> None:
        super().__init__(partition)
        self._offset = effect.offset

    @property
    def end(self) -> int:
        return 0

    def make(self) -> None:
        partition, held, follower = self.partition, self._log, self._follower
        assert follower is not None, "only followers begin anew"
        partition.host.recorder.note(
            str(partition.tp), "restarted", end=held.end_offset, leader_begins_at=self._offset
        )
        held.restart_at(self._offset, partition.host.clock.wall_ms(), sync=False)
        follower.restarted()


class Cut(Cutting):
    """One cut of one follower's log, from the leader's word to the log's new end."""

    def __init__(self, partition: "Partition", effect: Truncate) -> None:
        super().__init__(partition)
        self.effect = effect
        self._leaving = partition.log.leaving(effect.to)
        self._shelf: Shelf | None = None
        self._removal = self._described(self._leaving) if self._leaving is not None else None

    def _described(self, leaving: Leaving) -> Removal:
        partition, follower = self.partition, self._follower
        assert follower is not None, "only followers cut"
        topic_id = self._log.topic_id
        unclean = partition.recovering
        how = "was elected uncleanly" if unclean else "leads"
        return Removal(
            partition=str(partition.tp),
            topic_id=None if topic_id is None else kafka_uuid(topic_id),
            at_ms=partition.host.clock.wall_ms(),
            cause="truncation",
            reason=f"broker {follower.leader} {how} in epoch {follower.epoch} and has not got these records",
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
        """Whether any record goes."""
        return self._leaving is not None

    @property
    def end(self) -> int:
        return self._end if self._leaving is None else self._leaving.from_offset

    def keep(self) -> None:
        if self._removal is None or self._leaving is None or not self.partition.host.keeps_aside:
            return
        disk: Disk = self._log.disk
        try:
            self._shelf = Aside(disk, posixpath.dirname(self._log.directory)).shelf(self._removal)
            for path, position in self._leaving.files:
                self._shelf.copy(path, position)
            self._shelf.close()
        except OSError as error:
            self.error = error
            self.discard()
            there = all(
                disk.exists(path) for path, _ in self._leaving.files
            )  # else it is they that are missing
            self.has_no_place = error.errno in NO_PLACE and there

    def discard(self) -> None:
        if self._shelf is not None:
            shelf, self._shelf = self._shelf, None
            try:
                shelf.disk.rmtree(shelf.path)
            except OSError as error:
                log.warning("removal_not_deleted", path=shelf.path, reason=str(error))

    def make(self) -> None:
        partition, held, follower = self.partition, self._log, self._follower
        assert follower is not None, "only followers cut"
        watermark = partition.high_watermark
        held.truncate_to(self.effect.to)
        end = held.end_offset
        if end != self._end:
            told = {"end": end, "was": self._end, "watermark": watermark, "epoch": follower.epoch}
            aside = None if self._shelf is None else self._shelf.path
            (log.error if end < watermark else log.info)(
                "log_truncated", partition=str(partition.tp), aside=aside, **told
            )
            partition.host.recorder.note(
                str(partition.tp),
                "truncated",
                leader=follower.leader,
                aside=aside,
                unclean=partition.recovering,
                **told,
            )
            partition.host.truncated_below_watermark += end < watermark
        follower.truncated(self.effect)


def cut_at_once(cut: Cut) -> None:
    """Keep and cut in one breath. Raises DiskError."""
    cut.keep()
    if cut.error is not None:
        cut.tell_not_kept()
        if not cut.has_no_place:
            raise DiskError(cut.partition.log.directory, cut.error)
    cut.make()


async def carry_out(cuts: list[Cutting]) -> dict["Partition", str]:
    """Keep aside what all of them take away, then cut; names the partitions to be asked for again later."""
    failed: dict[Partition, str] = {}
    loop = asyncio.get_running_loop()
    await loop.run_in_executor(None, _prepare, cuts)
    void, begun = [], []
    for place, cut in enumerate(cuts, 1):
        partition = cut.partition
        if place % BREATH == 0:
            await asyncio.sleep(0)
        if cut.error is not None and not cut.has_no_place:
            cut.tell_not_kept()
            failed[partition] = f"what must be cut cannot be kept aside: {cut.error}"
        elif not cut.holds():
            void.append(cut)
            if cut.is_wanted:
                failed[partition] = "its log has changed while what must be cut was copied"
        else:
            if cut.error is not None:
                cut.tell_not_kept()
            try:
                cut.make()
            except DiskError as error:
                partition.disk_failed(error)
                failed[partition] = str(error)
            else:
                begun += [partition] if cut.begins_anew else []
    if void:
        await loop.run_in_executor(None, _discard_all, void)
    if begun:
        await _settle(begun, failed)
    return failed


async def _settle(begun: Sequence["Partition"], failed: dict["Partition", str]) -> None:
    """That logs have begun anew is on the medium before a fetch says "I hold everything before"."""
    logs = [partition.log for partition in begun]
    loop = asyncio.get_running_loop()
    for held, error in await loop.run_in_executor(None, settle_restarted, logs[0].disk, logs):
        for partition in begun:
            if partition.log is held and partition.offline is None:
                partition.disk_failed(error)
                failed[partition] = str(error)


def _prepare(cuts: Sequence[Cutting]) -> None:
    for cut in cuts:
        cut.keep()
    ends = {cut.partition.tp: cut.end for cut in cuts if cut.error is None or cut.has_no_place}
    if ends:
        with suppress(DiskError):  # then each cut tries it for itself
            cuts[0].partition.host.lower(ends)


def _discard_all(cuts: Iterable[Cutting]) -> None:
    for cut in cuts:
        cut.discard()
