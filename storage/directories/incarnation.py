"""Incarnations: which start of this broker id this is, and what its log directories remember of earlier ones.

The directories are locked and belong to one broker of one cluster. They keep what the verdict of this start
is based on. A loss is noted in them before it happens.
Left to others: the verdict (intact.py), the registration itself (broker/registration.py).
Why: docs/decisions/0007-incarnations.md
"""

from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from threading import Lock as Mutex
from uuid import UUID

import structlog
from pydantic import BaseModel, ValidationError

from ...base.types import TopicPartition
from .. import checked_json
from ..checked_json import WrongChecksum
from ..disk import FULL, Disk, Lock, disk_error
from ..log import checkpoints
from .intact import DOUBTS_MAX, IncarnationFile, Intactness, Remembered, judge, worst

LOCK = ".lock"
INCARNATION = "incarnation.json"
CLEAN_MARKER = ".kafka_cleanshutdown"
SESSION = "zookeeper.session"
DIRECTORY_ID = "directory.id"

logger = structlog.get_logger(__name__)


class WrongDirectory(Exception):
    """A log directory belongs to another broker or cluster; starting on it would mix their data."""


class CleanMarker(BaseModel, frozen=True):
    """Kafka's clean shutdown file."""

    version: int = 0
    brokerEpoch: int


class KeptSession(BaseModel, frozen=True):
    """The ZooKeeper session of the last start, kept so that the next one can end it."""

    session_id: int
    password: str  # hexadecimal

    @property
    def client_id(self) -> tuple[int, bytes]:
        return self.session_id, bytes.fromhex(self.password)


def put_small(disk: Disk, path: str, data: bytes, mode: int = 0o644) -> None:
    """Replace a file of less than a block. On a full disk overwrite it in place, which needs no room.

    A machine crash at that moment may tear it, and a torn file counts as missing. Then we can no longer claim
    to be intact, but we claim nothing false. OSError if even that cannot be done.
    """
    try:
        disk.replace(path, data, mode=mode)
    except OSError as error:
        if error.errno not in FULL or not disk.exists(path):
            raise
        file = disk.open(path)
        try:
            file.pwrite(0, data.ljust(file.size()))
            file.sync()
        finally:
            file.close()


def _incarnation_in(marker: bytes) -> int | None:
    with suppress(ValidationError):
        return CleanMarker.model_validate_json(marker).brokerEpoch
    return None


class Incarnations:
    """The locked log directories of a broker, and what they remember. All methods block."""

    def __init__(self, disk: Disk, dirs: Sequence[str], boot_id: str) -> None:
        self.disk = disk
        self.dirs = list(dirs)  # those that can be used
        self.offline: dict[str, str] = {}  # the others, and why
        self.boot_id = boot_id
        self.clean = False
        self.is_kafkas = False  # Apache Kafka has closed all of them cleanly, and we never had one
        self.dir_ids: dict[str, str] = {}  # directory -> its id, after `identify`
        self._lost = False  # with `_doubts`: what was noted since the last verdict
        self._doubts: set[str] = set()
        self._locks: list[Lock] = []
        self._writing = Mutex()  # notes come from several threads, and each must include the earlier ones
        self._files: dict[str, IncarnationFile | None] = {}
        self._markers: dict[str, bytes] = {}  # clean markers that were found, by their paths

    @classmethod
    def load(cls, disk: Disk, dirs: Sequence[str], boot_id: str) -> "Incarnations":
        """Lock the directories, read what they remember, and delete the clean markers at once.

        A directory that cannot be used goes offline; if it is the last one its OSError is raised.
        """
        state = cls(disk, dirs, boot_id)
        marked = []
        with ExitStack() as undo:
            undo.callback(state.release)
            for directory in dirs:
                try:
                    marked.append(state._take(directory))
                except OSError as error:
                    state.give_up(directory, error)
            undo.pop_all()
        state.clean = all(marked)
        state.is_kafkas = not state.offline and all(
            not disk.exists(f"{directory}/{INCARNATION}")
            and f"{directory}/{CLEAN_MARKER}" in state._markers
            and disk.exists(f"{directory}/{checkpoints.META_PROPERTIES}")
            for directory in dirs
        )
        return state

    def _take(self, directory: str) -> bool:
        """Lock and read a directory; True if it was closed cleanly."""
        self.disk.mkdir(directory)
        lock = self.disk.lock(f"{directory}/{LOCK}")
        self._locks.append(lock)
        self._files[directory] = self._read_file(directory)
        return self._take_marker(directory)

    def give_up(self, directory: str, error: OSError) -> None:
        """A directory cannot be used, and counts as missing. Raises the error if there is no other one."""
        if directory not in self.dirs:
            return
        if self.dirs == [directory]:
            raise error
        self.dirs.remove(directory)
        self.offline[directory] = str(error)
        self._files[directory] = None

    def _read_file(self, directory: str) -> IncarnationFile | None:
        try:
            data = checked_json.load(self.disk.read(f"{directory}/{INCARNATION}"))
            return IncarnationFile.model_validate_json(data)
        except (FileNotFoundError, ValidationError, WrongChecksum):
            return None

    def _take_marker(self, directory: str) -> bool:
        """Whether the marker fits the incarnation. It is deleted before anything is loaded (KAFKA-10471).

        A marker that is not ours was left by another program, most likely Kafka, which has written here
        since. Then what we remember is worthless; that is made durable before the marker is deleted.
        """
        path = f"{directory}/{CLEAN_MARKER}"
        if not self.disk.exists(path):
            return False
        data, file = self.disk.read(path), self._files[directory]
        ours = file is not None and _incarnation_in(data) == file.last_k
        if file is not None and not ours:
            logger.warning("foreign_clean_marker", path=path, content=data[:100], incarnation=file.last_k)
            nothing = {"boot_id": "", "flush_mode": False, "lost_note": True}
            self._write_file(directory, file.model_copy(update=nothing))
        self.disk.unlink(path)
        self.disk.sync_dir(directory)
        self._markers[path] = data
        return ours

    def identify(self, broker_id: int, cluster_id: str, new_id: Callable[[], UUID]) -> None:
        """Check each directory's meta.properties against this broker; a directory without one gets one.

        A directory's id is kept in a file of its own: brokers of Kafka before 3.7 do not start on several
        directories whose meta.properties differ in anything.
        """
        for directory in list(self.dirs):
            try:
                self.dir_ids[directory] = self._identify(directory, broker_id, cluster_id, new_id)
            except OSError as error:
                self.give_up(directory, error)

    def _identify(self, directory: str, broker_id: int, cluster_id: str, new_id: Callable[[], UUID]) -> str:
        path = f"{directory}/{checkpoints.META_PROPERTIES}"
        try:
            found = checkpoints.read_properties(self.disk, path)
        except checkpoints.Unreadable as error:
            raise WrongDirectory(f"the directory's owner is unknown: {error}") from error
        if found is None:
            found = {"version": "0", "broker.id": str(broker_id), "cluster.id": cluster_id}
            checkpoints.write_properties(self.disk, path, found)
        for name, mine in (("broker.id", str(broker_id)), ("cluster.id", cluster_id), ("version", "0")):
            if found.get(name, mine) != mine:
                raise WrongDirectory(f"{path} has {name}={found[name]}, this broker has {mine}")
        if DIRECTORY_ID not in found:
            found = self._own_id(directory, new_id)
        return found[DIRECTORY_ID]

    def _own_id(self, directory: str, new_id: Callable[[], UUID]) -> dict[str, str]:
        """The id in our own file. A file that says none is replaced: then the directory counts as missing."""
        path = f"{directory}/{checkpoints.DIRECTORY_PROPERTIES}"
        with suppress(checkpoints.Unreadable):
            found = checkpoints.read_properties(self.disk, path)
            if found is not None and found.get(DIRECTORY_ID):
                return found
        made = {DIRECTORY_ID: checkpoints.kafka_uuid(new_id())}
        checkpoints.write_properties(self.disk, path, made)
        return made

    @property
    def same_boot(self) -> bool:
        """Whether the last process ran in this boot: then everything it wrote is still there."""
        return self.remembered().boot_id == self.boot_id

    def remembered(self) -> Remembered:
        """The worst of all directories."""
        known = worst(list(self._files.values()), self.clean)
        if self.is_kafkas and known.last_k is None:  # what was noted since is in memory alone
            known = replace(known, is_kafkas=True, lost_note=self._lost, doubts=frozenset(self._doubts))
        return known

    def mark_doubt(self, partition: TopicPartition | None) -> None:
        """Remember a doubt, so that every file written from now on has it."""
        if partition is None or len(self._doubts) >= DOUBTS_MAX:
            self._lost = True
        else:
            self._doubts.add(str(partition))

    def note_doubt(self, partition: TopicPartition | None, _reason: str = "") -> None:
        """Write durably that data of one partition (or of all: None) is about to be lost.

        One directory with the note is enough: the worst counts. OSError if none could take it.
        Fits the `before_loss` of `Logs.open`.
        """
        self.mark_doubt(partition)
        if all(file is None for file in self._files.values()):
            return  # there is no claim to withdraw: the verdict is "not intact" already
        noted_somewhere, trouble = False, None
        with self._writing:
            for directory, file in self._files.items():
                if file is None:
                    continue
                if partition is None or len(file.doubts) >= DOUBTS_MAX:
                    noted = file.model_copy(update={"lost_note": True})
                else:
                    noted = file.model_copy(update={"doubts": sorted({*file.doubts, str(partition)})})
                try:
                    self._write_file(directory, noted)
                    noted_somewhere = True
                except OSError as error:  # perhaps this directory has failed: still write the others
                    trouble = error
        if trouble is not None and not noted_somewhere:
            raise trouble

    def verdict(
        self,
        z_k: int,
        z_dirs: Collection[str],
        recovery_lost: bool = False,
        failed_dirs: Collection[str] = (),
    ) -> Intactness:
        """What this start may claim. `z_dirs` are the directory ids that ZooKeeper has."""
        return judge(
            self.remembered(),
            boot_id=self.boot_id,
            z_k=z_k,
            z_dirs=z_dirs,
            dirs=self.dir_ids.values(),
            failed_dirs=failed_dirs,
            recovery_lost=recovery_lost,
        )

    def write(self, verdict: Intactness, flush_mode: bool, keep_notes: bool = False) -> None:
        """Write the verdict in every directory, before ZooKeeper is told.

        `keep_notes`: the verdict does not include losses noted since it was drawn, so they stay noted.
        Raises DiskError.
        """
        with self._writing:
            if not keep_notes:
                self._lost, self._doubts = False, set()
            file = IncarnationFile(
                last_k=verdict.k,
                boot_id=self.boot_id,
                intact_since=verdict.intact_since,
                intact_since_of=verdict.intact_since_of,
                flush_mode=flush_mode,
                lost_note=self._lost,
                doubts=sorted(self._doubts),
            )
            for directory in list(self.dirs):
                try:
                    self._write_file(directory, file)
                except OSError as error:
                    raise disk_error(f"{directory}/{INCARNATION}", error) from error

    def _write_file(self, directory: str, file: IncarnationFile) -> None:
        put_small(self.disk, f"{directory}/{INCARNATION}", checked_json.dump(file))
        self._files[directory] = file

    def mark_clean(self) -> None:
        """All logs are closed and synced: write a clean marker in every directory, for its incarnation.

        ZooKeeper need not know that incarnation: a start may fail after it has counted itself.
        No marker is written while a doubt is in memory only.
        """
        files = [self._files.get(directory) for directory in self.dirs]
        noted = {doubt for file in files if file is not None for doubt in file.doubts}
        if not self._doubts <= noted:
            return  # a doubt could not be written
        ks = {None if file is None else file.last_k for file in files}
        k = ks.pop() if len(ks) == 1 else None
        if k is None:
            return
        marker = CleanMarker(brokerEpoch=k).model_dump_json().encode()
        for directory in self.dirs:
            self.disk.replace(f"{directory}/{CLEAN_MARKER}", marker)

    def put_markers_back(self) -> None:
        """Restore the markers that `load` deleted: no log has changed since, so they are still right."""
        for path, marker in self._markers.items():
            self.disk.replace(path, marker)

    def previous_session(self) -> KeptSession | None:
        """The ZooKeeper session that the last start left behind."""
        for directory in self.dirs:
            with suppress(OSError, ValidationError):
                return KeptSession.model_validate_json(self.disk.read(f"{directory}/{SESSION}"))
        return None

    def save_session(self, session_id: int, password: bytes) -> None:
        """Keep the session, in a file that only this user may read."""
        session = KeptSession(session_id=session_id, password=password.hex())
        put_small(self.disk, f"{self.dirs[0]}/{SESSION}", session.model_dump_json().encode(), mode=0o600)

    def forget_session(self) -> None:
        """Delete the kept session: it has ended."""
        for directory in self.dirs:
            self.disk.unlink(f"{directory}/{SESSION}")

    def release(self) -> None:
        """Release the directory locks."""
        while self._locks:
            self._locks.pop().release()
