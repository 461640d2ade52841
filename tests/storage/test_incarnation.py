"""The files in which a broker remembers who it was."""

import errno
import stat
from pathlib import Path
from uuid import UUID

import pytest

from strandline.storage.disk import DirectoryLocked, RealDisk
from strandline.storage.incarnation import Incarnations, Verdict, WrongDirectory

from .conftest import T0

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
    properties = (tmp_path / "d0" / "meta.properties").read_text()
    assert properties.startswith("version=0\nbroker.id=1\ncluster.id=cluster\ndirectory.id=AAAA")


def test_a_clean_stop_is_believed_once(tmp_path: Path) -> None:
    state = load(tmp_path)
    state.write(Verdict(4, 2), flush_mode=False)
    state.mark_clean()
    known = dir_ids(state)
    state.release()
    marker = tmp_path / "d1" / ".kafka_cleanshutdown"
    assert marker.read_bytes() == b'{"version":0,"brokerEpoch":4}'
    state = load(tmp_path, boot="other")
    assert state.clean
    assert not marker.exists(), "it goes before anything is loaded"
    assert state.verdict(4, known) == Verdict(5, 2)
    state.release()
    state = load(tmp_path, boot="other")
    assert not state.clean
    assert state.verdict(4, known).intact_since == 5, "killed while loading, in another boot than the data's"
    state.release()


def test_a_marker_of_another_incarnation_is_not_believed(tmp_path: Path) -> None:
    state = load(tmp_path)
    state.write(Verdict(3, 2), flush_mode=False)
    state.mark_clean()
    state.write(Verdict(4, 2), flush_mode=False)
    state.release()
    state = load(tmp_path)
    assert not state.clean
    state.release()


def test_a_note_outlives_a_kill_before_the_registration(tmp_path: Path) -> None:
    state = load(tmp_path)
    state.write(Verdict(4, 2), flush_mode=False)
    known = dir_ids(state)
    state.note_doubt(T0, "bit rot")
    state.release()
    state = load(tmp_path)
    verdict = state.verdict(4, known)
    assert verdict == Verdict(5, 2, {"t-0": 5})
    state.write(verdict, flush_mode=False)
    state.note_doubt(None, "EIO")
    state.release()
    state = load(tmp_path)
    assert state.verdict(5, known).intact_since == 6
    state.release()


def test_an_empty_directory_takes_the_proof_away(tmp_path: Path) -> None:
    state = load(tmp_path)
    state.write(Verdict(4, 2), flush_mode=False)
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
    state.write(Verdict(4, 2), flush_mode=False)
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
    state.write(Verdict(4, 2), flush_mode=False)
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
