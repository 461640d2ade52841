"""A log directory without room: what is refused, what goes on, and how it passes by itself."""

import errno
from pathlib import Path
from threading import Event

import pytest

from strandline.base.types import BrokerId
from strandline.protocol.errors import ErrorCode, KafkaStorageError
from strandline.storage.disk import DiskFull
from strandline.storage.log.checkpoints import EPOCHS, read_epochs
from strandline.storage.segment.file_names import LOG
from tests.broker.replica_harness import until
from tests.broker.storage_harness import ME, RESERVE, box, run, tp
from tests.storage.faulty_disk import FaultyDisk


@pytest.fixture(autouse=True)
def looking_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.broker.upkeep.full_disks.LOOK_S", 0.01)


def test_a_full_directory_refuses_records_serves_what_it_has_and_recovers(tmp_path: Path) -> None:
    async def story() -> None:
        async with box(tmp_path) as b:
            await b.lead(0, 1, 2, 3)
            b.append(0, b"kept")
            b.disk.fill(b.dirs[0])
            for _ in range(2):
                with pytest.raises(KafkaStorageError):
                    b.append(0, b"no room")
            with pytest.raises(KafkaStorageError):
                b.append(2, b"another log of that directory")
            assert b.append(1, b"the other directory") == 0
            assert b.replicas.get(tp(0)).log.end_offset == 1
            assert b.replicas.get(tp(0)).read(0, 1000, 1, True).nbytes > 0
            await until(lambda: b.events() == [{"version": 1, "broker": ME, "event": 1}])
            b.disk.make_room(b.dirs[0])
            await until(lambda: b.replicas.get(tp(2)).full is None)
            assert (b.append(0, b"again"), b.append(2, b"again")) == (1, 0)
            await until(lambda: len(b.events()) == 2)
            assert b.failed_dirs() == [] and not b.remembered(0)["lost_note"] and not b.failures
            assert b.names(".strandline-room") == []

    run(story)


def test_no_room_for_one_log_is_no_room_for_any_of_that_directory(tmp_path: Path) -> None:
    """Also for one that comes later: who leads there should lead elsewhere, before it finds out itself."""

    async def story() -> None:
        async with box(tmp_path) as b:
            await b.lead(0, 1, 2)
            b.disk.fail("append", "*/t-0/*.log", errno.ENOSPC)
            b.disk.free_bytes = lambda path: 0  # type: ignore[method-assign]
            with pytest.raises(KafkaStorageError):
                b.append(0, b"no room")
            with pytest.raises(KafkaStorageError):
                b.append(2, b"x")
            assert b.append(1, b"x") == 0
        async with box(tmp_path / "single", "x") as b:
            await b.lead(0)
            b.disk.fail("append", "*/t-0/*.log", errno.ENOSPC)
            b.disk.free_bytes = lambda path: 0  # type: ignore[method-assign]
            with pytest.raises(KafkaStorageError):
                b.append(0, b"no room")
            (answer,) = await b.lead(1)
            assert answer.is_full
            with pytest.raises(KafkaStorageError):
                b.append(1, b"x")

    run(story)


def test_room_counts_when_the_reserve_is_free_and_a_file_can_be_written(tmp_path: Path) -> None:
    """A quota, or a lack of inodes, does not show in the free bytes."""

    async def story() -> None:
        async with box(tmp_path) as b:
            await b.lead(0)
            full = b.disk.fail("append replace", f"{b.dirs[0]}/*", errno.EDQUOT)
            with pytest.raises(KafkaStorageError):
                b.append(0, b"no room")
            await until(lambda: b.disk.asked("replace", "*/.strandline-room") > 2)
            assert b.replicas.get(tp(0)).full is not None
            few = b.disk.fail("free_bytes", error=errno.EIO, times=0)
            b.disk.free_bytes = lambda path: RESERVE - 1  # type: ignore[method-assign]
            b.disk.heal(full, few)
            looks = b.disk.asked("unlink", "*/.strandline-room")
            await until(lambda: b.disk.asked("unlink", "*/.strandline-room") > looks + 3)
            assert b.replicas.get(tp(0)).full is not None
            b.disk.free_bytes = lambda path: RESERVE  # type: ignore[method-assign]
            await until(lambda: b.replicas.get(tp(0)).full is None)

    run(story)


def test_a_directory_that_hangs_while_it_is_looked_at_holds_no_other(tmp_path: Path) -> None:
    async def story() -> None:
        async with box(tmp_path) as b:
            await b.lead(0, 1)
            hangs, let_go, free_bytes = b.dirs[0], Event(), b.disk.free_bytes

            def slow(path: str) -> int:
                assert path != hangs or let_go.wait(20)
                return free_bytes(path)

            for place, directory in enumerate(b.dirs):
                b.disk.fill(directory)
                with pytest.raises(KafkaStorageError):
                    b.append(place, b"no room")
            b.disk.free_bytes = slow  # type: ignore[method-assign]
            for directory in b.dirs:
                b.disk.make_room(directory)
            await until(lambda: b.replicas.get(tp(1)).full is None)
            assert b.append(1, b"again") == 0 and b.replicas.get(tp(0)).full is not None
            let_go.set()
            await until(lambda: b.replicas.get(tp(0)).full is None)

    run(story)


def test_the_controller_is_told_which_replicas_are_full(tmp_path: Path) -> None:
    async def story() -> None:
        async with box(tmp_path) as b:
            await b.lead(0, 1)
            b.disk.fill(b.dirs[0])
            with pytest.raises(KafkaStorageError):
                b.append(0, b"no room")
            answers = await b.lead(0, 1)
            assert [(a.error_code, a.is_full) for a in answers] == [(0, True), (0, False)]

    run(story)


def test_a_new_leader_whose_epoch_finds_no_room_serves_reads_alone(tmp_path: Path) -> None:
    async def story() -> None:
        async with box(tmp_path) as b:
            await b.lead(0)
            b.append(0, b"kept")
            b.disk.fill(b.dirs[0])
            assert [(a.error_code, a.is_full) for a in await b.lead(0)] == [(0, True)]
            leader = b.replicas.get(tp(0))
            assert leader.read(0, 1000, 1, True).nbytes > 0
            with pytest.raises(KafkaStorageError):
                b.append(0, b"before its epoch is written")
            b.disk.make_room(b.dirs[0])
            await until(lambda: leader.full is None)
            written = read_epochs(b.disk, f"{leader.log.directory}/{EPOCHS}")  # type: ignore[arg-type]
            assert written == [(1, 0), (2, 1)]

    run(story)


def test_a_follower_without_room_stops_asking_and_begins_again(tmp_path: Path) -> None:
    async def story() -> None:
        async with box(tmp_path) as b:
            await b.lead(0, leader=2)
            follower, fetcher = b.replicas.get(tp(0)), b.parts.fetchers._by_leader[BrokerId(2)]
            b.disk.fill(b.dirs[0])
            follower.disk_failed(DiskFull(b.dirs[0], OSError(errno.ENOSPC, "no room")))
            assert follower not in fetcher.partitions and follower.offline is None
            b.disk.make_room(b.dirs[0])
            fetchers = b.parts.fetchers._by_leader
            await until(lambda: BrokerId(2) in fetchers and follower in fetchers[BrokerId(2)].partitions)

    run(story)


def test_a_replica_that_finds_no_room_to_begin_is_made_later(tmp_path: Path) -> None:
    async def story() -> None:
        async with box(tmp_path, "x") as b:
            b.disk.fill(b.dirs[0])
            (answer,) = await b.lead(0)
            assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            await until(lambda: len(b.events()) == 1)
            b.disk.make_room(b.dirs[0])
            await until(lambda: len(b.events()) == 2)
            (answer,) = await b.lead(0, is_new=False)
            assert (answer.error_code, b.append(0, b"x")) == (0, 0)

    run(story)


def test_checkpoints_that_find_no_room_are_no_harm(tmp_path: Path) -> None:
    async def story() -> None:
        async with box(tmp_path) as b:
            await b.lead(0)
            b.append(0, b"x")
            b.disk.fail("replace", "*-checkpoint", errno.ENOSPC)
            await b.parts.watermarks.write()
            assert not b.logs.places.full and not b.logs.places.offline and not b.failures

    run(story)


def tear(file: Path) -> None:
    file.write_bytes(file.read_bytes() + b"\xff" * 100)


@pytest.mark.parametrize(("call", "place"), [("mkdir", "*.aside"), ("replace", "*.aside/*")])
def test_a_log_that_finds_too_little_room_once_is_tried_until_it_is_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, place: str
) -> None:
    """The reserve is free, and is less than the log needs, or there is none beside the directory, where what
    is torn off is kept. Others are not held up by that.
    """
    monkeypatch.setattr("strandline.broker.upkeep.full_disks.OPEN_AGAIN_S", (0.01, 0.02))

    if call == "replace":
        (tmp_path / "x.aside").mkdir()

    async def story() -> None:
        async with box(tmp_path, "x") as b:
            await b.lead(0, 1)
            b.append(0, b"kept")
            torn = Path(b.replicas.get(tp(0)).log.segments[0].path(LOG))
            disk = FaultyDisk()
        tear(torn)
        too_little = disk.fail(f"mkdir {call}", "*.aside*", errno.ENOSPC)
        async with box(tmp_path, "x", disk) as b:
            assert b.logs.closed == {tp(0)}
            b.failing.room.begin()
            refused, led = await b.lead(0, 1, is_new=False)
            assert (refused.error_code, led.error_code) == (ErrorCode.KAFKA_STORAGE_ERROR, 0)
            tries = disk.asked(call, place)
            await until(lambda: b.replicas.get(tp(1)).full is None)
            assert b.append(1, b"x") == 0
            await until(lambda: len(b.events()) == 2)  # no room, and room again
            await until(lambda: disk.asked(call, place) > tries + 3)
            assert b.logs.closed == {tp(0)}
            disk.heal(too_little)
            await until(lambda: not b.logs.closed)
            await until(lambda: len(b.events()) == 3)  # the controller shall ask again
            (answer,) = await b.lead(0, is_new=False)
            assert (answer.error_code, b.append(0, b"again")) == (0, 1)

    run(story)
