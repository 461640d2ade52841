"""The files in which a broker remembers who it was."""

import errno
import stat
from pathlib import Path
from threading import Event, Thread
from uuid import UUID

import pytest

from strandline.base.types import TopicPartition
from strandline.storage.directories.incarnation import Incarnations, WrongDirectory
from strandline.storage.directories.intact import Intactness
from strandline.storage.disk import DirectoryLocked, RealDisk
from tests.storage.conftest import T0
from tests.storage.faulty_disk import FaultyDisk

DISK = RealDisk()


def load(root: Path, boot: str = "boot", count: int = 2) -> Incarnations:
    state = Incarnations.load(DISK, [str(root / f"d{n}") for n in range(count)], boot)
    state.identify(1, "cluster", lambda: UUID(int=len(state.dir_ids) + 1))
    return state


def dir_ids(state: Incarnations) -> set[str]:
    return set(state.dir_ids.values())


def test_a_new_broker_holds_nothing(tmp_path: Path) -> None:
    state = load(tmp_path)
    verdict = state.verdict(0, ())
    assert (verdict.k, verdict.intact_since) == (1, 1)
    state.release()
    for number in (0, 1):
        properties = (tmp_path / f"d{number}" / "meta.properties").read_text()
        assert properties == "version=0\nbroker.id=1\ncluster.id=cluster\n", "before 3.7 Kafka compares them"
    assert (tmp_path / "d0" / "directory.properties").read_text().startswith("directory.id=AAAA")


def test_a_directory_keeps_its_id(tmp_path: Path) -> None:
    """In a file of ours; where Kafka has given it one, or an earlier version of ours, that one counts."""
    state = load(tmp_path)
    known = dict(state.dir_ids)
    assert len(set(known.values())) == 2
    state.release()
    state = load(tmp_path)
    assert state.dir_ids == known
    state.release()
    with (tmp_path / "d0" / "meta.properties").open("a") as properties:
        properties.write("directory.id=Kafkas\n")
    (tmp_path / "d1" / "directory.properties").write_bytes(b"\xff")
    state = Incarnations.load(DISK, [str(tmp_path / name) for name in ("d0", "d1")], "boot")
    state.identify(1, "cluster", lambda: UUID(int=9))
    first, second = state.dir_ids.values()
    assert first == "Kafkas" and second not in known.values(), "one that cannot be read counts as missing"
    state.release()


def test_a_clean_stop_is_believed_once(tmp_path: Path) -> None:
    state = load(tmp_path)
    state.write(Intactness(4, 2), flush_mode=False)
    state.mark_clean()
    known = dir_ids(state)
    state.release()
    marker = tmp_path / "d1" / ".kafka_cleanshutdown"
    assert marker.read_bytes() == b'{"version":0,"brokerEpoch":4}'
    state = load(tmp_path, boot="other")
    assert state.clean
    assert not marker.exists(), "it goes before anything is loaded"
    assert state.verdict(4, known) == Intactness(5, 2)
    state.release()
    state = load(tmp_path, boot="other")
    assert not state.clean
    assert state.verdict(4, known).intact_since == 5, "killed while loading, in another boot than the data's"
    state.release()


@pytest.mark.parametrize(("mode_then", "mode_now", "intact"), [(False, True, False), (True, False, True)])
def test_after_a_power_loss_the_mode_of_the_run_before_counts(
    tmp_path: Path, mode_then: bool, mode_now: bool, intact: bool
) -> None:
    state = load(tmp_path)
    state.write(Intactness(4, 2), flush_mode=mode_then)
    known = dir_ids(state)
    state.release()
    state = load(tmp_path, boot="other")
    verdict = state.verdict(4, known)
    assert verdict.intact_since == (2 if intact else 5)
    state.write(verdict, flush_mode=mode_now)
    state.release()
    state = load(tmp_path, boot="a third one")
    assert state.verdict(5, known).intact_since == (verdict.intact_since if mode_now else 6)
    state.release()


def test_a_marker_of_another_incarnation_is_not_believed(tmp_path: Path) -> None:
    state = load(tmp_path)
    state.write(Intactness(3, 2), flush_mode=False)
    state.mark_clean()
    state.write(Intactness(4, 2), flush_mode=False)
    state.release()
    state = load(tmp_path)
    assert not state.clean
    state.release()


def test_a_note_outlives_a_kill_before_the_registration(tmp_path: Path) -> None:
    state = load(tmp_path)
    state.write(Intactness(4, 2), flush_mode=False)
    known = dir_ids(state)
    state.note_doubt(T0, "bit rot")
    state.release()
    state = load(tmp_path)
    verdict = state.verdict(4, known)
    assert verdict == Intactness(5, 2, {"t-0": 5})
    state.write(verdict, flush_mode=False)
    state.note_doubt(None, "EIO")
    state.release()
    state = load(tmp_path)
    assert state.verdict(5, known).intact_since == 6
    state.release()


@pytest.mark.parametrize(("last_k", "intact"), [(2, False), (4, True), (5, True), (7, False)])
def test_a_disk_from_another_time_proves_nothing(tmp_path: Path, last_k: int, intact: bool) -> None:
    """An image of an earlier incarnation was put back, or ZooKeeper was: what happened since is not on it.

    The last start may have been killed after it had noted its number and before it registered: then the disk
    is one ahead, and has missed nothing.
    """
    state = load(tmp_path)
    state.write(Intactness(last_k, 1), flush_mode=True)
    state.mark_clean()
    known = dir_ids(state)
    state.release()
    state = load(tmp_path)
    verdict = state.verdict(4, known)
    assert (verdict.k, verdict.intact) == (5, intact)
    assert intact or verdict.reasons == ("the log directories are not those of the last incarnation",)
    state.release()


def test_an_empty_directory_takes_the_proof_away(tmp_path: Path) -> None:
    state = load(tmp_path)
    state.write(Intactness(4, 2), flush_mode=False)
    known = dir_ids(state)
    state.release()
    (tmp_path / "d1").rename(tmp_path / "old")
    state = Incarnations.load(DISK, [str(tmp_path / "d0"), str(tmp_path / "d1")], "boot")
    state.identify(1, "cluster", lambda: UUID(int=99))
    verdict = state.verdict(4, known)
    assert verdict.intact_since == 5
    assert "a log directory is missing" in verdict.reasons
    state.release()


def test_a_directory_has_one_process_and_one_broker(tmp_path: Path) -> None:
    state = load(tmp_path)
    with pytest.raises(DirectoryLocked):
        load(tmp_path)
    for broker_id, cluster in ((2, "cluster"), (1, "another")):
        with pytest.raises(WrongDirectory):
            state.identify(broker_id, cluster, lambda: UUID(int=1))
    (tmp_path / "d1" / "meta.properties").write_bytes(b"\x00\x00junk")
    with pytest.raises(WrongDirectory):
        state.identify(1, "cluster", lambda: UUID(int=1))
    (tmp_path / "d1" / "meta.properties").unlink()
    state.release()
    load(tmp_path).release()


@pytest.mark.parametrize("content", [b"", b"{}", b"junk", b'{"version":1}'])
def test_a_damaged_file_is_no_file(tmp_path: Path, content: bytes) -> None:
    state = load(tmp_path)
    state.write(Intactness(4, 2), flush_mode=False)
    known = dir_ids(state)
    state.release()
    (tmp_path / "d0" / "incarnation.json").write_bytes(content)
    state = load(tmp_path)
    assert state.verdict(4, known).intact_since == 5
    state.release()


def test_the_session_is_kept_for_this_user_only(tmp_path: Path) -> None:
    state = load(tmp_path)
    assert state.previous_session() is None
    state.save_session(0x10000000000ABCD, b"\x00secret")
    found = state.previous_session()
    assert found is not None
    assert found.client_id == (0x10000000000ABCD, b"\x00secret")
    assert stat.S_IMODE((tmp_path / "d0" / "zookeeper.session").stat().st_mode) == 0o600
    state.release()


class HalfBroken(RealDisk):
    """A disk on which one directory can no longer be written."""

    def __init__(self, broken: str) -> None:
        self.broken = broken

    def replace(self, path: str, data: bytes, sync: bool = True, mode: int = 0o644) -> None:
        if path.startswith(self.broken):
            raise OSError(errno.EIO, "no more")
        super().replace(path, data, sync, mode)


def test_a_note_is_written_wherever_it_can_be(tmp_path: Path) -> None:
    state = load(tmp_path)
    state.write(Intactness(4, 2), flush_mode=False)
    known = dir_ids(state)
    state.disk = HalfBroken(str(tmp_path / "d0"))
    state.note_doubt(None, "d0 has failed")
    state.release()
    state = load(tmp_path)
    assert state.verdict(4, known).intact_since == 5, "d1 has the note"
    state.disk = HalfBroken(str(tmp_path))
    with pytest.raises(OSError):
        state.note_doubt(T0, "nobody can write it down")
    state.release()


def test_a_directory_that_cannot_be_used_is_offline_and_takes_the_proof_away(tmp_path: Path) -> None:
    state = load(tmp_path)
    state.write(Intactness(4, 2), flush_mode=False)
    state.mark_clean()
    known = dir_ids(state)
    state.release()
    disk = FaultyDisk()
    fault = disk.fail("lock", f"{tmp_path}/d1/*", errno.EROFS)
    state = Incarnations.load(disk, [str(tmp_path / name) for name in ("d0", "d1")], "boot")
    state.identify(1, "cluster", lambda: UUID(int=9))
    assert state.dirs == [str(tmp_path / "d0")] and list(state.offline) == [str(tmp_path / "d1")]
    assert state.clean, "the one that is left was closed"
    verdict = state.verdict(4, known)
    assert not verdict.intact
    state.write(verdict, flush_mode=False)
    state.mark_clean()
    state.release()
    disk.heal(fault)
    state = load(tmp_path)
    assert not state.verdict(5, dir_ids(state)).intact, "what it missed meanwhile it does not hold"
    state.release()


def test_the_last_directory_that_cannot_be_used_is_an_error(tmp_path: Path) -> None:
    disk = FaultyDisk()
    disk.fail("lock", f"{tmp_path}/*", errno.EACCES)
    with pytest.raises(PermissionError):
        Incarnations.load(disk, [str(tmp_path / name) for name in ("d0", "d1")], "boot")


def test_a_directory_whose_properties_cannot_be_read_is_offline(tmp_path: Path) -> None:
    load(tmp_path).release()
    disk = FaultyDisk()
    disk.fail("read", f"{tmp_path}/d0/meta.properties")
    state = Incarnations.load(disk, [str(tmp_path / name) for name in ("d0", "d1")], "boot")
    state.identify(1, "cluster", lambda: UUID(int=9))
    assert state.dirs == [str(tmp_path / "d1")]
    assert state.previous_session() is None
    state.save_session(1, b"p")
    assert state.previous_session() is not None
    state.release()


class Slow(RealDisk):
    """Its first write waits until the second one wants to begin, or long enough to see that it does not."""

    def __init__(self) -> None:
        self.writes = 0
        self.second = Event()

    def replace(self, path: str, data: bytes, sync: bool = True, mode: int = 0o644) -> None:
        self.writes += 1
        if self.writes > 1:
            self.second.set()
        self.second.wait(0.2)
        super().replace(path, data, sync, mode)


def test_doubts_noted_by_two_threads_at_once_are_both_on_the_medium(tmp_path: Path) -> None:
    state = load(tmp_path, count=1)
    state.write(Intactness(4, 2), flush_mode=False)
    known = dir_ids(state)
    state.disk = Slow()
    threads = [Thread(target=state.note_doubt, args=(TopicPartition("t", number),)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    state.release()
    state = load(tmp_path, count=1)
    assert state.verdict(4, known) == Intactness(5, 2, {"t-0": 5, "t-1": 5})
    state.release()


@pytest.mark.parametrize(
    "content", [b'{"version":0,"brokerEpoch":-1}', b'{"version":0,"brokerEpoch":3}', b""]
)
def test_after_another_program_nothing_is_remembered(tmp_path: Path, content: bytes) -> None:
    """Kafka 3.9 writes -1 where we write our incarnation; before 3.7 its marker was empty."""
    state = load(tmp_path)
    state.write(Intactness(4, 2), flush_mode=True)
    state.mark_clean()
    known = dir_ids(state)
    state.release()
    (tmp_path / "d1" / ".kafka_cleanshutdown").write_bytes(content)
    for _ in range(2):  # a start that is killed before it registers has not believed it either
        state = load(tmp_path)
        assert not state.clean and not state.same_boot
        assert state.verdict(4, known).intact_since == 5
        state.release()
    state = load(tmp_path)
    state.write(state.verdict(4, known), flush_mode=False)
    state.mark_clean()
    state.release()
    state = load(tmp_path)
    assert state.clean and state.verdict(5, known) == Intactness(6, 5)
    state.release()


KAFKAS_MARKER = b'{"version":0,"brokerEpoch":-1}'


def kafkas(root: Path, closed: int = 2) -> None:
    """Two directories of Apache Kafka, of which so many were closed cleanly."""
    for number in range(2):
        place = root / f"d{number}"
        place.mkdir()
        text = f"version=0\nbroker.id=1\ncluster.id=cluster\ndirectory.id={'AB'[number] * 22}\n"
        (place / "meta.properties").write_text(text)
        if number < closed:
            (place / ".kafka_cleanshutdown").write_bytes(KAFKAS_MARKER)


def test_the_first_start_after_kafka_has_what_kafka_had(tmp_path: Path) -> None:
    """As long as it finds no damage: that is in doubt, and told before anything is written."""
    kafkas(tmp_path)
    state = load(tmp_path)
    assert state.verdict(0, ()) == Intactness(1, 0)
    state.note_doubt(T0)
    assert state.verdict(0, ()) == Intactness(1, 0, {str(T0): 1})
    assert state.verdict(0, (), recovery_lost=True).intact_since == 1
    state.note_doubt(None)
    assert state.verdict(0, ()).intact_since == 1
    state.release()


def test_it_proves_nothing_a_second_time_or_where_we_have_been_before(tmp_path: Path) -> None:
    kafkas(tmp_path)
    state = load(tmp_path)
    assert state.verdict(3, ()).intact_since == 4, "ZooKeeper knows other starts of this id"
    state.release()
    assert load_and_judge(tmp_path) == 1, "the marker is gone: this start was killed before it had registered"
    (tmp_path / "d0" / "incarnation.json").write_text("damaged")
    for number in range(2):
        (tmp_path / f"d{number}" / ".kafka_cleanshutdown").write_bytes(KAFKAS_MARKER)
    assert load_and_judge(tmp_path) == 1


@pytest.mark.parametrize("closed", [0, 1])
def test_a_kafka_that_was_killed_proves_nothing(tmp_path: Path, closed: int) -> None:
    kafkas(tmp_path, closed)
    assert load_and_judge(tmp_path) == 1


def load_and_judge(root: Path) -> int:
    state = load(root)
    state.release()
    return state.verdict(0, ()).intact_since
