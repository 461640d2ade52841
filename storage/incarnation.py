"""Incarnations: which start of this broker id this is, and whether its data is what it was.

A broker may be elected only for what it can prove to hold. Each log directory keeps the number of the last
incarnation, the boot it ran in and since which incarnation the data is intact; a clean marker says that all
was on the medium. From these and from ZooKeeper's record the verdict of this start is drawn.
Left to others: the registration itself (broker/registration.py), what may be elected (controller/).
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from uuid import UUID

from pydantic import BaseModel, ValidationError

from ..protocol.kinds import TopicPartition
from . import checkpoints
from .disk import Disk, Lock

LOCK = ".lock"
INCARNATION = "incarnation.json"
CLEAN_MARKER = ".kafka_cleanshutdown"
SESSION = "zookeeper.session"
DOUBTS_MAX = 100  # more doubtful partitions than this condemn the broker as a whole


class WrongDirectory(Exception):
    """A log directory belongs to another broker or cluster; starting on it would mix their data."""


class IncarnationFile(BaseModel, frozen=True, extra="forbid"):
    """What a log directory remembers of the last start."""

    version: int = 1
    last_k: int
    boot_id: str
    intact_since: int
    intact_since_of: dict[str, int] = {}
    flush_mode: bool
    lost_note: bool = False  # written before data is cut, cleared by the next registration
    doubts: list[str] = []  # partitions about which the same must be said


class CleanMarker(BaseModel, frozen=True):
    """Kafka's clean shutdown file."""

    version: int = 0
    brokerEpoch: int


class Session(BaseModel, frozen=True):
    """The ZooKeeper session of the last start, kept so that the next one can end it."""

    session_id: int
    password: str  # hexadecimal

    @property
    def client_id(self) -> tuple[int, bytes]:
        return self.session_id, bytes.fromhex(self.password)


@dataclass(frozen=True, slots=True)
class Remembered:
    """The worst of what all log directories say: None where one of them says nothing."""

    last_k: int | None
    boot_id: str | None
    intact_since: int
    intact_since_of: Mapping[str, int]
    flush_mode: bool
    lost_note: bool
    doubts: frozenset[str]
    clean: bool


@dataclass(frozen=True, slots=True)
class Verdict:
    """This incarnation, and since which one the data is intact; exceptions by partition."""

    k: int
    intact_since: int
    intact_since_of: dict[str, int] = field(default_factory=dict)
    reasons: tuple[str, ...] = ()

    @property
    def intact(self) -> bool:
        """Whether the broker as a whole holds what it held before."""
        return self.intact_since < self.k


def worst(files: Sequence[IncarnationFile | None], clean: bool) -> Remembered:
    """Fold the directories' files into one: any that is missing or disagrees takes the proof away."""
    there = [file for file in files if file is not None]
    complete = bool(there) and len(there) == len(files)
    ks = {file.last_k for file in there}
    boots = {file.boot_id for file in there}
    of: dict[str, int] = {}
    for file in there:
        for partition, k in file.intact_since_of.items():
            of[partition] = max(k, of.get(partition, 0))
    return Remembered(
        last_k=ks.pop() if complete and len(ks) == 1 else None,
        boot_id=boots.pop() if complete and len(boots) == 1 else None,
        intact_since=max((file.intact_since for file in there), default=0),
        intact_since_of=of,
        flush_mode=complete and all(file.flush_mode for file in there),
        lost_note=any(file.lost_note for file in there),
        doubts=frozenset(p for file in there for p in file.doubts),
        clean=clean,
    )


def judge(
    before: Remembered,
    *,
    boot_id: str,
    z_k: int,
    z_dirs: Collection[str],
    dirs: Collection[str],
    failed_dirs: Collection[str] = (),
    recovery_lost: bool = False,
) -> Verdict:
    """The data-intact proof. `z_k` and `z_dirs` are ZooKeeper's record, `dirs` the directories present."""
    k = z_k + 1
    survived = before.clean or before.boot_id == boot_id or before.flush_mode
    broken = {
        "no incarnation file in every log directory, or they differ": before.last_k is None,
        "another boot, no clean shutdown, no flush before ack": not survived,
        "a log directory is missing": not set(z_dirs) <= set(dirs),
        "a log directory had failed": not set(failed_dirs).isdisjoint(z_dirs) or bool(failed_dirs),
        "the directories are not those of the last incarnation": before.last_k not in (z_k, z_k + 1),
        "recovery lost data": recovery_lost,
        "an earlier start noted a loss": before.lost_note,
    }
    reasons = tuple(reason for reason, holds in broken.items() if holds)
    if reasons:
        return Verdict(k, k, {}, reasons)
    of = {p: since for p, since in before.intact_since_of.items() if since > before.intact_since}
    of.update(dict.fromkeys(before.doubts, k))
    if len(of) > DOUBTS_MAX:
        return Verdict(k, k, {}, (f"{len(of)} partitions are doubtful",))
    return Verdict(k, before.intact_since, dict(sorted(of.items())))


class Incarnations:
    """The locked log directories of a broker and what they remember. All methods block."""

    def __init__(self, disk: Disk, dirs: Sequence[str], boot_id: str) -> None:
        self.disk = disk
        self.dirs = list(dirs)
        self.boot_id = boot_id
        self.clean = False
        self.dir_ids: dict[str, str] = {}  # directory -> its id, after `identify`
        self._locks: list[Lock] = []
        self._files: dict[str, IncarnationFile | None] = {}

    @classmethod
    def load(cls, disk: Disk, dirs: Sequence[str], boot_id: str) -> "Incarnations":
        """Lock the directories, read what they remember, and take the clean markers away at once."""
        state = cls(disk, dirs, boot_id)
        with ExitStack() as undo:
            undo.callback(state.release)
            for directory in dirs:
                disk.mkdir(directory)
                state._locks.append(disk.lock(f"{directory}/{LOCK}"))
                state._files[directory] = state._read_file(directory)
            undo.pop_all()
        marked = [state._take_marker(directory) for directory in dirs]
        state.clean = bool(marked) and all(marked)
        return state

    def _read_file(self, directory: str) -> IncarnationFile | None:
        try:
            return IncarnationFile.model_validate_json(self.disk.read(f"{directory}/{INCARNATION}"))
        except (FileNotFoundError, ValidationError):
            return None

    def _take_marker(self, directory: str) -> bool:
        """Whether the marker fits the incarnation. It goes before anything is loaded (KAFKA-10471)."""
        path = f"{directory}/{CLEAN_MARKER}"
        try:
            marker = CleanMarker.model_validate_json(self.disk.read(path))
            file = self._files[directory]
            return file is not None and marker.brokerEpoch == file.last_k
        except (FileNotFoundError, ValidationError):
            return False
        finally:
            if self.disk.exists(path):
                self.disk.unlink(path)
                self.disk.sync_dir(directory)

    def identify(self, broker_id: int, cluster_id: str, new_id: Callable[[], UUID]) -> None:
        """Hold each directory's meta.properties against this broker; a directory without gets its own."""
        for directory in self.dirs:
            path = f"{directory}/{checkpoints.META_PROPERTIES}"
            try:
                found = checkpoints.read_properties(self.disk, path)
            except checkpoints.Unreadable as error:
                raise WrongDirectory(f"nobody can say whose directory this is: {error}") from error
            if found is None:
                found = {"version": "0", "broker.id": str(broker_id), "cluster.id": cluster_id}
            for name, mine in (("broker.id", str(broker_id)), ("cluster.id", cluster_id), ("version", "0")):
                if found.get(name, mine) != mine:
                    raise WrongDirectory(f"{path} has {name}={found[name]}, this broker has {mine}")
            if "directory.id" not in found:
                found = {**found, "directory.id": checkpoints.kafka_uuid(new_id())}
                checkpoints.write_properties(self.disk, path, found)
            self.dir_ids[directory] = found["directory.id"]

    def remembered(self) -> Remembered:
        """The worst of all directories."""
        return worst(list(self._files.values()), self.clean)

    def note_doubt(self, partition: TopicPartition | None, _reason: str = "") -> None:
        """Write down, on the medium, that data of one partition (or of all: None) is about to be lost.

        One directory that has the note is enough: the worst counts. OSError if none could take it.
        Fits the `before_loss` of `Logs.open`.
        """
        if all(file is None for file in self._files.values()):
            return  # nothing is claimed that could be withdrawn: the verdict is "not intact" already
        noted_somewhere, trouble = False, None
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
            except OSError as error:  # this may be the directory that has failed: the others must know
                trouble = error
        if trouble is not None and not noted_somewhere:
            raise trouble

    def verdict(
        self,
        z_k: int,
        z_dirs: Collection[str],
        recovery_lost: bool = False,
        failed_dirs: Collection[str] = (),
    ) -> Verdict:
        """What this start may claim. `z_dirs` are directory ids as ZooKeeper knows them."""
        return judge(
            self.remembered(),
            boot_id=self.boot_id,
            z_k=z_k,
            z_dirs=z_dirs,
            dirs=self.dir_ids.values(),
            failed_dirs=failed_dirs,
            recovery_lost=recovery_lost,
        )

    def write(self, verdict: Verdict, flush_mode: bool) -> None:
        """Remember the verdict in every directory, before ZooKeeper is told."""
        for directory in self.dirs:
            self._write_file(
                directory,
                IncarnationFile(
                    last_k=verdict.k,
                    boot_id=self.boot_id,
                    intact_since=verdict.intact_since,
                    intact_since_of=verdict.intact_since_of,
                    flush_mode=flush_mode,
                ),
            )

    def _write_file(self, directory: str, file: IncarnationFile) -> None:
        self.disk.replace(f"{directory}/{INCARNATION}", file.model_dump_json().encode())
        self._files[directory] = file

    def mark_clean(self) -> None:
        """All logs are closed and on the medium: say so in every directory, for the incarnation it knows.

        That one need not have come to be known elsewhere: a start may fail after it has counted itself.
        """
        k = self.remembered().last_k
        if k is None:
            return
        marker = CleanMarker(brokerEpoch=k).model_dump_json().encode()
        for directory in self.dirs:
            self.disk.replace(f"{directory}/{CLEAN_MARKER}", marker)

    def previous_session(self) -> Session | None:
        """The ZooKeeper session that the last start left behind."""
        try:
            return Session.model_validate_json(self.disk.read(f"{self.dirs[0]}/{SESSION}"))
        except (FileNotFoundError, ValidationError):
            return None

    def save_session(self, session_id: int, password: bytes) -> None:
        """Keep the session; nobody else may read the file."""
        session = Session(session_id=session_id, password=password.hex())
        self.disk.replace(f"{self.dirs[0]}/{SESSION}", session.model_dump_json().encode(), mode=0o600)

    def release(self) -> None:
        """Let go of the directory locks."""
        while self._locks:
            self._locks.pop().release()
