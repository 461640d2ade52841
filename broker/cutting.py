"""How a follower's log is cut: what goes is kept aside, on the medium before the first byte leaves the log.

A fetcher collects the cuts of one answer. A thread copies what they will take away, all in one hop; then each
is made, if its replica is still as it was when the leader spoke. A copy that was not needed is deleted again.
If nothing can be kept for now (no room) nothing is cut: the follower waits and asks again. Where there is no
place at all (no right to write), waiting would be for ever: the cut is made and told as an error. Whoever
would rather lose it in any case sets strandline.log.aside.bytes.max=0.
Left to others: what to cut (replication/follower.py), where it is kept and for how long (storage/aside.py).
"""

import asyncio
import errno
import posixpath
from collections.abc import Iterable
from typing import TYPE_CHECKING

import structlog

from ..replication.effects import Truncate
from ..storage.aside import Aside, Removal, Shelf
from ..storage.checkpoints import kafka_uuid
from ..storage.disk import Disk, DiskError
from ..storage.leaving import Leaving

if TYPE_CHECKING:
    from .partition import Partition

NO_PLACE = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT})  # it will not pass by itself

log = structlog.get_logger(__name__)


class Cut:
    """One cut of one follower's log, from the leader's word to the log's new end."""

    def __init__(self, partition: "Partition", effect: Truncate) -> None:
        self.partition = partition
        self.effect = effect
        self.error: OSError | None = None
        self.has_no_place = False  # for what goes: there is no use in waiting for one
        self._segments = list(partition.log.segments)
        self._follower = partition.following
        self._log = partition.log
        self._generation = partition.log.generation
        self._end = partition.log.end_offset
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
    def must_wait(self) -> bool:
        """Whether something goes that has to be kept first."""
        return self._removal is not None and self.partition.host.keeps_aside

    def keep(self) -> None:
        """Copy what will go, and see it on the medium. Blocking, for any thread; `error` says how it went."""
        if self._removal is None or self._leaving is None:
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
        """Delete what was kept: it stays in the log after all. Blocking."""
        if self._shelf is not None:
            shelf, self._shelf = self._shelf, None
            try:
                shelf.disk.rmtree(shelf.path)
            except OSError as error:
                log.warning("removal_not_deleted", path=shelf.path, reason=str(error))

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

    def make(self) -> None:
        """Cut. Raises DiskError."""
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

    def tell_not_kept(self) -> None:
        """What goes is not kept aside: it waits for a place, or goes all the same."""
        name, why = str(self.partition.tp), str(self.error)
        log.error("removal_not_kept", partition=name, cut=self.has_no_place, reason=why)
        self.partition.host.recorder.note(name, "cut_unkept" if self.has_no_place else "cut_waits", why=why)


def cut_at_once(cut: Cut) -> None:
    """Keep and cut in one breath. Raises DiskError."""
    if cut.must_wait:
        cut.keep()
        if cut.error is not None:
            cut.tell_not_kept()
            if not cut.has_no_place:
                raise DiskError(cut.partition.log.directory, cut.error)
    cut.make()


async def carry_out(cuts: list[Cut]) -> dict["Partition", str]:
    """Keep aside what all of them take away, then cut; names the partitions to be asked for again later."""
    failed: dict[Partition, str] = {}
    loop = asyncio.get_running_loop()
    await loop.run_in_executor(None, _keep_all, cuts)
    void = []
    for cut in cuts:
        partition = cut.partition
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
    if void:
        await loop.run_in_executor(None, _discard_all, void)
    return failed


def _keep_all(cuts: Iterable[Cut]) -> None:
    for cut in cuts:
        cut.keep()


def _discard_all(cuts: Iterable[Cut]) -> None:
    for cut in cuts:
        cut.discard()
