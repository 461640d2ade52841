"""Compacted logs as others see them: followers, readers, groups; and the processes that made them so."""

import asyncio
import errno
import subprocess
import sys
from pathlib import Path

import pytest

from strandline.base.types import TopicPartition
from strandline.broker.groups.offset_loading import LoadedOffsets
from strandline.broker.groups.offset_records import OffsetCommitValue, offset_key, offset_value
from strandline.broker.upkeep import cleaner_processes
from strandline.broker.upkeep.cleaner_processes import HelperProcesses
from strandline.protocol.batches import read_header
from strandline.protocol.records import BatchBuilder
from strandline.storage.disk import NoDescriptor
from strandline.storage.segment.verify_batch import damage_at
from tests.broker.cleaning_harness import START_MS, T0, Stage, cleaning, in_loop
from tests.storage.faulty_disk import FaultyDisk


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        ("broker.node", "numpy"),  # a broker without work for a cleaner does not pay for one
        ("storage.cleaning.process", "asyncio pydantic structlog"),  # a helper is not another broker
        ("client.sync", "numpy rich structlog"),  # a program that sends a record
        ("client.spark", "asyncio pydantic rich structlog"),  # each of Spark's workers pays for its imports
    ],
)
def test_nobody_imports_what_the_other_needs(module: str, heavy: str) -> None:
    code = f"import sys, strandline.{module}; print(*set({heavy.split()}) & sys.modules.keys())"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout == b"\n"


@in_loop
async def test_a_helper_process_cleans_and_ends(stage: Stage) -> None:
    stage.put(100, keys=5)
    helpers = HelperProcesses(stage.failures.append)
    async with cleaning(stage, helpers) as part:
        assert await part.clean_filthiest()
        assert part.counts().cleanings == 1
        (helper,) = helpers.idle
        stage.put(300, keys=5)
        assert await part.clean_filthiest()
        assert list(helpers.idle) == [helper], "it is used again"
    assert helper.returncode == 0
    assert len(stage.log.segments) == 3


@in_loop
async def test_a_swap_that_finds_no_descriptor_is_one_failed_attempt(tmp_path: Path) -> None:
    """Nothing has been renamed yet. (In a simulated world it ended the broker.)"""
    stage, disk = Stage(tmp_path), FaultyDisk()
    stage.put(100, keys=5)
    stage.start_again(clean=True, disk=disk)
    stage.logs.high_watermarks[T0] = stage.log.end_offset
    disk.fail("listdir", "*/t-0", errno.EMFILE)
    async with cleaning(stage) as part:
        await part.clean_filthiest()
        assert part.counts().failures == 1
        (told,) = stage.replicas.disk_errors
        assert isinstance(told, NoDescriptor) and not stage.log.failed
    assert len(stage.records()) == 100, "nothing has been swapped"


@in_loop
async def test_the_death_of_a_helper_is_one_failed_attempt(stage: Stage) -> None:
    stage.put(100, keys=5)
    helpers = HelperProcesses(stage.failures.append)
    async with cleaning(stage, helpers) as part:
        await part.clean_filthiest()
        (helper,) = helpers.idle
        helper.kill()
        await helper.wait()
        stage.put(300, keys=5)
        before = stage.records()
        await part.clean_filthiest()
        assert part.counts().failures == 1
        assert not part.uncleanable
        assert stage.records() == before
        assert not await part.clean_filthiest(), "it is tried again later"
    assert not [name for name in stage.names() if "cleaned" in name]


@in_loop
async def test_no_room_for_a_helper_is_one_failed_attempt(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(*_: object, **__: object) -> None:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    stage.put(100, keys=5)
    monkeypatch.setattr(asyncio, "create_subprocess_exec", refused)
    async with cleaning(stage, HelperProcesses(stage.failures.append)) as part:
        await part.clean_filthiest()
        assert part.counts().failures == 1 and not part.uncleanable


@pytest.mark.parametrize(("end", "failures"), [("\\n", 0), ("", 1)])
@in_loop
async def test_a_report_may_be_long_or_break_off(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str, failures: int
) -> None:
    """One names all segments that have become one: twenty thousand small ones, if it comes to that."""
    stage.put(100, keys=5)
    report = (
        '{\\"kind\\": \\"done\\", \\"end_offset\\": 90, \\"keys\\": 0, '
        '\\"bytes_read\\": 0, \\"bytes_written\\": 0'
    )
    (tmp_path / "talker.py").write_text(
        f'input(); print("{report}" + " " * 200_000 + "}}{end}", end="", flush=True)'
    )
    monkeypatch.setattr(cleaner_processes, "MODULE", "talker")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    async with cleaning(stage, HelperProcesses(stage.failures.append)) as part:
        await part.clean_filthiest()
        assert part.counts().failures == failures
        assert part.counts().cleanings == 1 - failures


@in_loop
async def test_what_compaction_has_taken_is_no_damage(stage: Stage) -> None:
    """A slow follower asks for the same offset again and again; its leader looks whether it is bad."""
    stage.put(100, keys=5)
    async with cleaning(stage) as part:
        await part.clean_filthiest()
    log = stage.log
    assert log.segments[0].size == 0 and log.gaps_allowed
    for offset in range(log.end_offset):
        assert not damage_at(log.segments, offset, log.end_offset, log.gaps_allowed)
    flip(log.segments[1].path(".log"), 80)
    assert damage_at(log.segments, 0, log.end_offset, log.gaps_allowed)
    assert damage_at(log.segments[1:], log.segments[1].base_offset, log.end_offset, False)


def flip(path: str, position: int) -> None:
    data = bytearray(Path(path).read_bytes())
    data[position] ^= 1
    Path(path).write_bytes(data)


@in_loop
async def test_a_follower_takes_over_a_compacted_log(stage: Stage, tmp_path: Path) -> None:
    stage.put(200, keys=5)
    async with cleaning(stage) as part:
        await part.clean_filthiest()
    other = Stage(tmp_path / "follower")
    log, followed = stage.log, other.log
    while followed.end_offset < log.end_offset:
        data = bytes(log.read(followed.end_offset, 300, log.end_offset))
        assert data, f"nothing comes from {followed.end_offset} on"
        followed.append_replicated(memoryview(data))
    assert other.records() == stage.records()
    other.start_again(clean=False)
    assert other.records() == stage.records()


@in_loop
async def test_a_reader_in_a_gap_goes_on_behind_it(stage: Stage) -> None:
    stage.put(200, keys=5)
    async with cleaning(stage) as part:
        await part.clean_filthiest()
    (first, _, _), *_ = stage.records()
    for offset in (0, first - 1, first):
        for at_least_one in (True, False):
            data = bytes(stage.log.read(offset, 1 << 20, 200, at_least_one))
            assert read_header(data).base_offset == first


@in_loop
async def test_groups_are_what_they_were_after_their_offsets_were_compacted(stage: Stage) -> None:
    for number in range(400):
        group, partition = f"g{number % 3}", number % 2
        key, value = offset_record(group, partition, number)
        builder = BatchBuilder()
        builder.append(START_MS, key, value if number % 7 else None)
        batch = bytearray(builder.build())
        stage.log.append(memoryview(batch), read_header(batch), 0, START_MS)
    stage.commit()
    before = loaded(stage)
    async with cleaning(stage) as part:
        await part.clean_filthiest()
    assert len(stage.records()) < 60
    assert loaded(stage) == before


def offset_record(group: str, partition: int, offset: int) -> tuple[bytes, bytes]:
    value = OffsetCommitValue(
        offset=offset, leader_epoch=0, metadata="", commit_timestamp=START_MS, expire_timestamp=-1
    )
    return offset_key(group, "t", partition), offset_value(value)


def loaded(stage: Stage) -> dict[str, dict[TopicPartition, int]]:
    found, at = LoadedOffsets(), 0
    while data := bytes(stage.log.read(at, 500, stage.log.end_offset)):
        for _ in found.feed(data):
            pass
        at = found.after
    assert not found.damaged
    return {
        group: {tp: committed.offset for tp in offsets if (committed := offsets.get(tp))}
        for group, offsets in found.offsets.items()
    }


@in_loop
async def test_retention_passes_over_what_compaction_has_emptied(tmp_path: Path) -> None:
    stage = Stage(tmp_path, cleanup_policy="compact,delete", retention_ms=1000)
    stage.put(100, keys=5)
    stage.written_now()
    async with cleaning(stage) as part:
        await part.clean_filthiest()
    assert stage.log.segments[0].size == 0
    stage.clock.now += 5000
    assert stage.logs.retire(stage.log, stage.log.end_offset, 100) >= 2


@in_loop
async def test_the_last_batch_of_a_producer_stays_without_its_records(stage: Stage) -> None:
    for sequence in range(3):
        builder = BatchBuilder(producer_id=9, producer_epoch=0, base_sequence=sequence)
        builder.append(START_MS, b"key-1", b"mine")
        batch = bytearray(builder.build())
        stage.log.append(memoryview(batch), read_header(batch), 0, START_MS)
    stage.put(100, keys=5)
    async with cleaning(stage) as part:
        await part.clean_filthiest()
    header = read_header(bytes(stage.log.read(0, 1 << 20, 100)))
    assert (header.base_offset, header.producer_id, header.last_sequence, header.record_count) == (2, 9, 2, 0)
    stage.log.producers.clear()
    stage.start_again(clean=False)
    assert stage.log.producers.last_batches() == [(9, 2, 0)]
