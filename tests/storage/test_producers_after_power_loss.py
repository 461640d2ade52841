"""Who has produced what, after a cut and a power loss: never a batch that the log does not hold.

A batch that was cut is sent again. If the broker takes it for one that it holds, it acknowledges a record
that is nowhere.
"""

from pathlib import Path
from random import Random

import pytest

from strandline.protocol.batches import headers
from strandline.storage.config import StorageConfig, TopicConfig
from strandline.storage.directories.log_manager import Logs
from strandline.storage.log.log import Log
from tests.storage.conftest import START_MS, T0, FixedClock, make_batch, put
from tests.storage.forgetful_names import ForgetfulNames

ONE, OTHER = 7, 9  # producers
CONFIG = StorageConfig(segment_bytes=1 << 20)


def opened(disk: ForgetfulNames, same_boot: bool) -> Logs:
    return Logs.open(
        ["/data"], disk, CONFIG, FixedClock(), clean=False, same_boot=same_boot,
        before_loss=lambda partition, why: None,
    )  # fmt: skip


def cut_and_filled_again(disk: ForgetfulNames) -> Logs:
    """A roll has written down who had produced all up to offset 5; then 4 is cut, and others come there."""
    logs = opened(disk, same_boot=True)
    log = logs.create(T0, None, TopicConfig.of(CONFIG))
    for number in range(5):
        put(log, b"a", epoch=1, pid=ONE, seq=number)
    log.roll(START_MS)
    log.flush()
    logs.checkpoint_recovery_points()
    log.truncate_to(4)
    for number in range(4):
        log.append_replicated(make_batch(b"b", base=4 + number, epoch=2, pid=OTHER, seq=number))
    return logs


def stored(log: Log) -> set[tuple[int, int, int]]:
    data = b"".join(bytes(part) for part in log.read(log.start_offset, 1 << 20, log.end_offset).parts)
    return {(each.producer_id, each.base_sequence, each.base_offset) for _, each in headers(data)}


def believed(log: Log) -> set[tuple[int, int, int]]:
    known = {producer: log.producers.get(producer) for producer in (ONE, OTHER)}
    return {
        (producer, batch.base_sequence, batch.base_offset)
        for producer, state in known.items()
        if state is not None
        for batch in state.batches
    }


@pytest.mark.parametrize("then", ["nothing", "flushed", "written down"])
@pytest.mark.parametrize("seed", range(12))
def test_a_deleted_snapshot_that_comes_back_is_not_believed(then: str, seed: int) -> None:
    disk = ForgetfulNames()
    logs = cut_and_filled_again(disk)
    if then != "nothing":
        logs.logs[T0].flush()
    if then == "written down":
        logs.checkpoint_recovery_points()
    disk.lose_names(Random(seed))
    log = opened(disk, same_boot=False).logs[T0]
    assert believed(log) <= stored(log)


def test_a_snapshot_that_comes_back_is_among_what_the_power_takes() -> None:
    """Else the test above would show nothing."""
    back = set()
    for seed in range(12):
        disk = ForgetfulNames()
        cut_and_filled_again(disk)
        back.update(Path(name).name for name in disk.lose_names(Random(seed)))
    assert "00000000000000000005.snapshot" in back


def test_on_the_same_boot_the_newest_snapshot_spares_the_reading() -> None:
    disk = ForgetfulNames()
    logs = opened(disk, same_boot=True)
    log = logs.create(T0, None, TopicConfig.of(CONFIG))
    for number in range(5):
        put(log, b"a", pid=ONE, seq=number)
    log.roll(START_MS)
    again = opened(disk, same_boot=True)
    assert believed(again.logs[T0]) == stored(log)
    assert disk.exists("/data/t-0/00000000000000000005.snapshot")
