"""The pure rules: epochs, producer sequences, retention, the data-intact proof."""

from typing import NamedTuple

import pytest

from strandline.base.types import TopicPartition
from strandline.protocol.batches import BatchHeader, read_header
from strandline.protocol.errors import ApiError
from strandline.storage.config import StorageConfig, TopicConfig
from strandline.storage.directories.intact import IncarnationFile, Remembered, judge, worst
from strandline.storage.directories.log_manager import parse_directory
from strandline.storage.log.leader_epochs import EpochHistory
from strandline.storage.log.producer_state import ProducerStates
from strandline.storage.log.retention import expired
from tests.storage.conftest import make_batch


def test_an_epoch_begins_once_and_never_goes_back() -> None:
    history = EpochHistory([(0, 0), (2, 10)])
    assert not history.assign(2, 15)
    assert history.assign(5, 20)
    assert history.assign(6, 20), "epoch 5 got no record"
    assert history.entries == [(0, 0), (2, 10), (6, 20)]


@pytest.mark.parametrize(
    ("asked", "answer"),
    [(-1, (-1, -1)), (0, (0, 10)), (1, (0, 10)), (2, (2, 20)), (3, (2, 20)), (5, (5, 33)), (6, (-1, -1))],
)
def test_where_an_epoch_ends(asked: int, answer: tuple[int, int]) -> None:
    assert EpochHistory([(0, 0), (2, 10), (5, 20)]).end_offset_for(asked, 33) == answer


def test_an_epoch_before_all_known_ones_ends_where_they_begin() -> None:
    assert EpochHistory([(4, 7)]).end_offset_for(1, 33) == (1, 7)
    assert EpochHistory().end_offset_for(0, 33) == (-1, -1)


def test_epochs_follow_both_ends_of_the_log() -> None:
    history = EpochHistory([(0, 0), (2, 10), (5, 20)])
    assert history.truncate_from_end(20)
    assert history.entries == [(0, 0), (2, 10)]
    assert history.truncate_from_start(15)
    assert history.entries == [(2, 15)]
    assert not history.truncate_from_start(15)
    assert (history.epoch_at(14), history.epoch_at(15), history.latest) == (-1, 2, 2)


def header(seq: int, count: int = 1, epoch: int = 0) -> BatchHeader:
    made = read_header(make_batch(*[b"v"] * count, pid=9, seq=seq))
    return made._replace(producer_epoch=epoch)


def code_of(states: ProducerStates, asked: BatchHeader) -> int:
    with pytest.raises(ApiError) as caught:
        states.check(asked)
    return int(caught.value.code)


def test_five_batches_back_are_known() -> None:
    states = ProducerStates(10)
    for n in range(7):
        assert states.check(header(2 * n, 2)) is None
        states.update(header(2 * n, 2), 100 + 2 * n)
    for n in range(2, 7):
        duplicate = states.check(header(2 * n, 2))
        assert duplicate is not None
        assert (duplicate.base_offset, duplicate.last_offset) == (100 + 2 * n, 101 + 2 * n)
    assert code_of(states, header(2, 2)) == 45, "older than five"
    assert code_of(states, header(15)) == 45, "a gap"
    assert states.check(header(14)) is None


def test_epochs_fence_producers() -> None:
    states = ProducerStates(10)
    states.update(header(0, epoch=3), 0)
    assert code_of(states, header(1, epoch=2)) == 47
    assert code_of(states, header(1, epoch=4)) == 45
    assert states.check(header(0, epoch=4)) is None


def test_sequences_wrap_and_unknown_producers_may_start_anywhere() -> None:
    states = ProducerStates(10)
    last = (1 << 31) - 1
    assert states.check(header(last, 1)) is None
    states.update(header(last, 1), 0)
    assert states.check(header(0)) is None
    states.update(header(last, 3), 10)
    assert states.check(header(2)) is None


def test_the_silent_and_the_surplus_are_forgotten() -> None:
    states = ProducerStates(2)
    for pid in (1, 2, 1, 3):
        states.update(header(0)._replace(producer_id=pid, max_timestamp=pid), pid)
    assert states.get(2) is None
    assert len(states) == 2
    assert states.expire(1000, 10) == 0, "timestamps are the producers' own: old ones are no silence"
    states.update(header(0)._replace(producer_id=3, max_timestamp=0), 9)
    assert states.expire(1011, 10) == 1
    assert states.get(3) is not None
    assert states.expire(1022, 10) == 1


DEFAULTS = StorageConfig()


class Aged(NamedTuple):
    """A segment as retention sees it."""

    base_offset: int
    size: int
    age_from_ms: int


SEGMENTS = [(Aged(0, 100, 1000), 10), (Aged(10, 100, 2000), 20), (Aged(20, 100, 3000), 30)]


@pytest.mark.parametrize(
    ("names", "now", "start", "watermark", "count"),
    [
        ({"retention.ms": "1000"}, 3500, 0, 30, 2),
        ({"retention.ms": "1000"}, 9999, 0, 30, 3),
        ({"retention.ms": "1000"}, 9999, 0, 29, 2),
        ({"retention.ms": "1000"}, 9999, 0, 5, 0),
        ({"retention.ms": "-1"}, 9999, 0, 30, 0),
        ({"retention.ms": "-1", "retention.bytes": "150"}, 0, 0, 30, 1),
        ({"retention.ms": "-1", "retention.bytes": "100"}, 0, 0, 30, 2),
        ({"retention.ms": "-1", "retention.bytes": "0"}, 0, 0, 30, 3),
        ({"retention.ms": "1", "cleanup.policy": "compact"}, 9999, 0, 30, 0),
        ({"retention.ms": "-1"}, 0, 20, 30, 2),
        ({"retention.ms": "-1"}, 0, 19, 30, 1),
        ({"retention.ms": "-1"}, 0, 30, 30, 3),
        ({"retention.ms": "-1", "retention.bytes": "150", "cleanup.policy": "compact"}, 0, 0, 30, 0),
        ({"retention.ms": "-1", "cleanup.policy": "compact"}, 0, 20, 30, 2),
        ({"retention.ms": "1000", "cleanup.policy": "compact,delete"}, 3500, 0, 30, 2),
    ],
)
def test_which_segments_may_go(
    names: dict[str, str], now: int, start: int, watermark: int, count: int
) -> None:
    config = TopicConfig.from_names(names, DEFAULTS)
    assert expired(SEGMENTS, 300, config, now, start, watermark, 9) == count
    assert expired(SEGMENTS, 300, config, now, start, watermark, 2) == min(count, 2)


FILE = IncarnationFile(last_k=7, boot_id="boot", intact_since=3, flush_mode=False)


def intact_since(before: Remembered, boot: str = "boot", z_k: int = 7, **more: object) -> int:
    verdict = judge(before, boot_id=boot, z_k=z_k, z_dirs={"d"}, dirs={"d"}, **more)  # type: ignore[arg-type]
    assert verdict.k == z_k + 1
    return verdict.intact_since


def test_the_proof_of_intactness() -> None:
    killed = worst([FILE], clean=False)
    assert intact_since(killed) == 3, "the page cache outlives the process"
    assert intact_since(killed, boot="other") == 8, "but not the machine"
    assert intact_since(worst([FILE], clean=True), boot="other") == 3
    flushed = FILE.model_copy(update={"flush_mode": True})
    assert intact_since(worst([flushed], clean=False), boot="other") == 3, "the previous start's mode counts"
    assert intact_since(killed, recovery_lost=True) == 8
    assert intact_since(killed, failed_dirs={"d"}) == 8
    assert intact_since(worst([FILE.model_copy(update={"lost_note": True})], clean=True)) == 8


@pytest.mark.parametrize(("z_k", "since"), [(5, 6), (6, 3), (7, 3), (8, 9), (0, 1)])
def test_a_directory_of_another_incarnation_proves_nothing(z_k: int, since: int) -> None:
    assert intact_since(worst([FILE], clean=True), z_k=z_k) == since


def test_the_worst_directory_counts() -> None:
    later = FILE.model_copy(update={"intact_since": 5})
    assert intact_since(worst([FILE, later], clean=False)) == 5
    assert intact_since(worst([FILE, None], clean=True)) == 8
    assert intact_since(worst([FILE, FILE.model_copy(update={"last_k": 6})], clean=True)) == 8
    verdict = judge(worst([FILE], True), boot_id="b", z_k=7, z_dirs={"d", "gone"}, dirs={"d"})
    assert not verdict.intact
    assert verdict.reasons == ("a log directory is missing",)


def test_doubt_about_one_replica_does_not_condemn_the_broker() -> None:
    doubtful = FILE.model_copy(update={"doubts": ["t-3"], "intact_since_of": {"t-1": 6, "t-2": 2}})
    verdict = judge(worst([doubtful], False), boot_id="boot", z_k=7, z_dirs={"d"}, dirs={"d"})
    assert verdict.intact_since == 3
    assert verdict.intact_since_of == {"t-1": 6, "t-3": 8}
    many = FILE.model_copy(update={"doubts": [f"t-{n}" for n in range(101)]})
    assert not judge(worst([many], False), boot_id="boot", z_k=7, z_dirs={"d"}, dirs={"d"}).intact


@pytest.mark.parametrize(
    ("name", "partition"),
    [("t-0", TopicPartition("t", 0)), ("a-b.c-12", TopicPartition("a-b.c", 12))]
    + [(name, None) for name in ("t", "t-", "-1", "t-x", "t-01", "t-0.abc-delete", "lost+found", "t--")],
)
def test_names_of_partition_directories(name: str, partition: TopicPartition | None) -> None:
    assert parse_directory(name) == partition
