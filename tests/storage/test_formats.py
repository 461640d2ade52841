"""Each file, byte for byte as Kafka writes it. The expected bytes are written by hand."""

from pathlib import Path
from uuid import UUID

import pytest
from crc32c import crc32c

from strandline.base.types import TopicPartition
from strandline.protocol.batches import TRANSACTIONAL, read_header
from strandline.storage.config import InvalidOption, StorageConfig, TopicConfig
from strandline.storage.disk import RealDisk
from strandline.storage.log import checkpoints
from strandline.storage.log.checkpoints import Unreadable
from strandline.storage.log.producer_state import InvalidSnapshot, ProducerStates
from strandline.storage.segment.index import OffsetIndex, TimeIndex
from tests.storage.conftest import START_MS, Place, make_batch, put

DISK = RealDisk()


def test_offset_index_entry_is_relative_offset_and_position() -> None:
    index = OffsetIndex()
    index.append(4053, 80899)
    index.append(0x01020304, 0x0A0B0C0D)
    assert index.dump() == bytes.fromhex("00000fd5 00013c03 01020304 0a0b0c0d")
    assert OffsetIndex.load(index.dump() + b"\x00\x01").dump() == index.dump()


def test_time_index_entry_is_timestamp_and_relative_offset() -> None:
    times = TimeIndex()
    times.append(1_700_000_000_000, 7)
    times.append(1_600_000_000_000, 8)  # not newer: tells nothing
    assert times.dump() == bytes.fromhex("0000018bcfe56800 00000007")
    assert TimeIndex.load(times.dump()).last() == (1_700_000_000_000, 7)


def test_index_entries_name_the_last_offset_of_the_batch_at_their_position(place: Place) -> None:
    """Three batches of 3 records: the first gets no entry, for no bytes lie before it."""
    for _ in range(3):
        put(place.log, b"a" * 20, b"b" * 20, b"c" * 20)
    place.stop()
    size = read_header(place.file("00000000000000000000.log").read_bytes()).size
    assert size > 100
    expected = b"".join(n.to_bytes(4, "big") for n in (5, size, 8, 2 * size))
    assert place.file("00000000000000000000.index").read_bytes() == expected
    # the newest record of all is offset 2's time; equal later ones add nothing
    assert place.file("00000000000000000000.timeindex").read_bytes() == (
        (START_MS + 2).to_bytes(8, "big") + (2).to_bytes(4, "big")
    )


def test_offset_checkpoint(tmp_path: Path) -> None:
    path = str(tmp_path / "replication-offset-checkpoint")
    offsets = {TopicPartition("b", 10): 7, TopicPartition("a-b", 2): 0, TopicPartition("b", 9): 1 << 40}
    checkpoints.write_offsets(DISK, path, offsets)
    assert Path(path).read_bytes() == b"0\n3\na-b 2 0\nb 9 1099511627776\nb 10 7\n"
    assert checkpoints.read_offsets(DISK, path) == offsets
    assert checkpoints.read_offsets(DISK, path + ".none") == {}


def test_a_checkpoint_that_kafka_has_made_but_not_written_has_no_entries(tmp_path: Path) -> None:
    path = tmp_path / "cleaner-offset-checkpoint"
    path.touch()
    assert checkpoints.read_offsets(DISK, str(path)) == {}
    assert checkpoints.read_epochs(DISK, str(path)) is None  # to be built from the batches


def test_leader_epoch_checkpoint(tmp_path: Path) -> None:
    path = str(tmp_path / "leader-epoch-checkpoint")
    checkpoints.write_epochs(DISK, path, [(0, 0), (1, 50)], sync=True)
    assert Path(path).read_bytes() == b"0\n2\n0 0\n1 50\n"
    assert checkpoints.read_epochs(DISK, path) == [(0, 0), (1, 50)]
    assert checkpoints.read_epochs(DISK, path + ".none") is None


@pytest.mark.parametrize(
    "content",
    [
        b"0\n",
        b"1\n0\n",
        b"0\n2\nt 0 1\n",
        b"0\n1\nt 0 -1\n",
        b"0\n1\nt 0 1e5\n",
        b"0\n1\nt 0\n",
        b"0\n2\nt 0 1\nt 0 2\n",
        b"\x00\x00\x00",
        b"\xff\xfe",
        b"0\nnan\n",
        b"0\n1\nt 0 9223372036854775808\n",
    ],
)
def test_a_damaged_checkpoint_is_unreadable_and_never_a_guess(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "recovery-point-offset-checkpoint"
    path.write_bytes(content)
    with pytest.raises(Unreadable):
        checkpoints.read_offsets(DISK, str(path))


def test_partition_metadata(tmp_path: Path) -> None:
    path = str(tmp_path / "partition.metadata")
    topic_id = UUID("01020304-0506-0708-090a-0b0c0d0e0fff")
    checkpoints.write_partition_metadata(DISK, path, topic_id)
    assert Path(path).read_bytes() == b"version: 0\ntopic_id: AQIDBAUGBwgJCgsMDQ4P_w"
    assert checkpoints.read_partition_metadata(DISK, path) == topic_id


def test_meta_properties(tmp_path: Path) -> None:
    path = tmp_path / "meta.properties"
    path.write_bytes(b"#\n#Sat Nov 21 2026\ncluster.id=abc\nversion=0\nbroker.id = 1\n")
    assert checkpoints.read_properties(DISK, str(path)) == {
        "cluster.id": "abc",
        "version": "0",
        "broker.id": "1",
    }


SNAPSHOT = bytes.fromhex(
    "0001"  # version
    "00000000"  # CRC-32C of all that follows; the test reckons it
    "00000001"  # one producer
    "0000000000000007 0003 00000009 0000000000000013 00000004 0000018bcfe56800 ffffffff ffffffffffffffff"
)


def test_a_snapshot_keeps_all_batches_that_may_be_sent_again() -> None:
    """A leader that stops may leave five batches of a producer unanswered; they all come again."""
    states, last = ProducerStates(10), 7
    for batch in range(7):
        states.update(read_header(make_batch(b"a", b"b", pid=7, seq=2 * batch)), 100 + 2 * batch)
        states.update(read_header(make_batch(b"c", pid=8, seq=batch)), 500 + batch)
    again = ProducerStates(10)
    again.restore(states.snapshot())
    for batch in range(last - 5, last):
        found = again.check(read_header(make_batch(b"a", b"b", pid=7, seq=2 * batch)))
        assert found is not None
        assert (found.base_offset, found.last_offset) == (100 + 2 * batch, 101 + 2 * batch)
        other = again.check(read_header(make_batch(b"c", pid=8, seq=batch)))
        assert other is not None
        assert other.base_offset == 500 + batch
    assert again.check(read_header(make_batch(b"new", pid=7, seq=14))) is None
    assert again.snapshot() == states.snapshot()


def test_producer_snapshot() -> None:
    states = ProducerStates(10)
    header = read_header(make_batch(b"a", b"b", b"c", b"d", b"e", pid=7, seq=5))
    states.update(header._replace(producer_epoch=3, max_timestamp=START_MS), 15)
    data = states.snapshot()
    assert data[:2] == SNAPSHOT[:2]
    assert int.from_bytes(data[2:6], "big") == crc32c(SNAPSHOT[6:])
    assert data[6:] == SNAPSHOT[6:]
    again = ProducerStates(10)
    again.restore(data)
    assert again.snapshot() == data
    with pytest.raises(InvalidSnapshot):
        again.restore(data[:-1] + b"\x00")
    assert len(again) == 0


def test_an_open_transaction_stays_open_wherever_it_begins() -> None:
    """Whatever its offset: only one behind the snapshot is impossible."""
    states = ProducerStates(10)
    header = read_header(make_batch(b"a", pid=7, seq=0))
    states.update(header._replace(attributes=TRANSACTIONAL), 1_000_000)
    data, again = states.snapshot(), ProducerStates(10)
    again.restore(data, 1_000_001)
    assert list(again.open_transactions()) == [(7, 1_000_000)]
    with pytest.raises(InvalidSnapshot, match="begin where none can"):
        again.restore(data, 1_000_000)
    assert len(again) == 0


def test_names_have_twenty_digits(place: Place) -> None:
    for _ in range(20):
        put(place.log, b"x" * 100)
    place.stop()
    names = {path.name for path in place.file("").iterdir()}
    assert {"00000000000000000000.log", "00000000000000000005.log", "00000000000000000005.index"} <= names
    assert "00000000000000000005.snapshot" in names
    assert "leader-epoch-checkpoint" in names


def test_file_calls_are_all_or_error(tmp_path: Path) -> None:
    file = DISK.open(str(tmp_path / "f"), create=True)
    parts = [bytes([n % 256]) * (n % 7) for n in range(3000)]  # more than the kernel takes at once
    assert file.append(parts) == sum(map(len, parts))
    assert file.pread(0, 1 << 20) == b"".join(parts)
    file.truncate(10)
    assert file.append((b"ab", b"cd")) == 4
    assert file.pread(8, 100) == b"".join(parts)[8:10] + b"abcd"
    file.close()
    file.close()


def test_a_topic_says_which_setting_cannot_stand() -> None:
    defaults = StorageConfig(retention_ms=5)
    config = TopicConfig.from_names({"segment.bytes": "1000", "cleanup.policy": "compact,delete"}, defaults)
    assert (config.segment_bytes, config.retention_ms, config.compacted, config.deletes) == (
        1000,
        5,
        True,
        True,
    )
    for name, value in (
        ("segment.bytes", "3"),
        ("cleanup.policy", "keep"),
        ("no.such", "1"),
        ("retention.ms", "x"),
    ):
        with pytest.raises(InvalidOption) as caught:
            TopicConfig.from_names({name: value}, defaults)
        assert caught.value.name == name
        assert caught.value.value == value
