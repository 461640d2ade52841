"""Option `logDirs` where something is not as it should be: directories that have changed, replicas of which
nothing tells whose they are, partitions that nobody has, and transactions whose end is damaged.
"""

from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest
from pyspark.sql.datasource import InputPartition

from strandline.base.types import TopicPartition
from strandline.client.spark.helpers import take_snapshot
from strandline.client.spark.options import parse
from strandline.client.spark.plan import DataLoss, PlanError
from strandline.client.spark.reader import StrandlineReader
from strandline.protocol.batches import headers, seal
from strandline.storage.directories.incarnation import INCARNATION
from strandline.storage.directory_lock import RealLock
from strandline.storage.log import checkpoints
from strandline.storage.segment.file_names import LOG, file_name
from tests.client.spark.closed import offsets, options_of, refusal, rows, values
from tests.storage.closed_dirs import DISK, START_MS, T0, ClosedBroker, Facts, batch, marker

pytestmark = pytest.mark.usefixtures("heard_anew")

COMMON = [batch(0), batch(2), batch(4), batch(6)]
COMMITTED = {"kafka.isolation.level": "read_committed"}


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 0x55
    path.write_bytes(data)


def told(caplog: pytest.LogCaptureFixture, event: str) -> list[str]:
    return [text for text in caplog.messages if text.startswith(event)]


# ------------------------------------------------------------ what has changed since the read was planned


@pytest.fixture
def broker(tmp_path: Path) -> ClosedBroker:
    made = ClosedBroker(tmp_path, 1)
    made.put([(0, COMMON[:2]), (4, COMMON[2:])], Facts(high_watermark=8))
    return made


def another_cluster(broker: ClosedBroker) -> None:
    broker.own(cluster="other")


def another_broker(broker: ClosedBroker) -> None:
    broker.own(number=9)


def unmounted(broker: ClosedBroker) -> None:
    (broker.path / checkpoints.META_PROPERTIES).unlink()


def made_again(broker: ClosedBroker) -> None:
    path = broker.path / str(T0) / checkpoints.PARTITION_METADATA
    checkpoints.write_partition_metadata(DISK, str(path), UUID(int=8))


def another_start(broker: ClosedBroker) -> None:
    (broker.path / INCARNATION).write_text('{"last_k": 2}')


def a_later_checkpoint(broker: ClosedBroker) -> None:
    broker.high_watermarks[T0] = 6
    broker.checkpoint()


def another_history(broker: ClosedBroker) -> None:
    path = broker.path / str(T0) / checkpoints.EPOCHS
    checkpoints.write_epochs(DISK, str(path), [(0, 0), (1, 6)], sync=False)


CHANGES: list[tuple[Callable[[ClosedBroker], None], str]] = [
    (
        another_cluster,
        r"data-1 is the log directory of cluster.id=other, broker.id=1, and the read was planned",
    ),
    (
        another_broker,
        r"cluster.id=cluster, broker.id=9, and the read was planned on .* broker.id=1: mount the",
    ),
    (unmounted, r"data-1 is the log directory of no broker \(it has no meta.properties\)"),
    (made_again, r"data-1/t-0 has topic id .*8, and the read was planned on .*7: mount the same"),
    (another_start, r"a broker has worked in .*data-1 since .*/incarnation.json differ.*plan the read again"),
    (a_later_checkpoint, r"\(.*/replication-offset-checkpoint differ\)"),
    (another_history, r"\(.*/t-0/leader-epoch-checkpoint differ\)"),
]


@pytest.mark.parametrize(("change", "said"), CHANGES, ids=[each.__name__ for each, _ in CHANGES])
@pytest.mark.parametrize("strict", ["true", "false"])
def test_a_task_reads_only_what_was_planned_on(
    broker: ClosedBroker, change: Callable[[ClosedBroker], None], said: str, strict: str
) -> None:
    reader = StrandlineReader(parse(options_of(broker, failOnDataLoss=strict)), ["offset"])
    (part,) = reader.partitions()
    change(broker)
    with pytest.raises(PlanError, match=said):
        next(reader.read(InputPartition(part.value)))


def test_a_task_does_not_read_beside_a_living_broker(broker: ClosedBroker) -> None:
    reader = StrandlineReader(parse(options_of(broker)), ["offset"])
    (part,) = reader.partitions()
    lock = RealLock(str(broker.path / ".lock"))
    try:
        with pytest.raises(PlanError, match=r"t-0, as seen on .*: a living broker holds .*/.lock: stop it"):
            next(reader.read(part))
    finally:
        lock.release()
    assert sum(each.num_rows for each in reader.read(part)) == 8


def test_a_broker_that_begins_while_a_task_reads_is_noticed(broker: ClosedBroker) -> None:
    reader = StrandlineReader(parse(options_of(broker)), ["offset"])
    (part,) = reader.partitions()
    batches = reader.read(part)
    assert next(batches).num_rows == 4
    another_start(broker)
    with pytest.raises(PlanError, match="a broker has worked in"):
        list(batches)


# ------------------------------------------------------------ replicas without a topic id


def test_a_replica_without_a_topic_id_is_of_no_topic_that_has_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Both logs are of epoch 0, for that begins anew with each topic: nothing but the id tells them apart."""
    new, old = ClosedBroker(tmp_path, 1), ClosedBroker(tmp_path, 2)
    new.put([(0, COMMON[:2])], Facts(high_watermark=4))
    old.put([(0, [batch(0, 20, text=" of old")])], Facts(high_watermark=20, topic_id=None))
    said = refusal(new, old)
    assert f"{old.path}/t-0 has no topic id (partition.metadata is missing)" in said
    assert "read one broker with the option replica, or set failOnDataLoss=false" in said
    assert values(new, old, failOnDataLoss="false") == values(new) == [f"{n}@0" for n in range(4)]
    (left,) = told(caplog, "replica_left_out")
    assert "partition=t-0 broker=2" in left
    assert offsets(new, old, replica=1) == list(range(4)), "the other one is left out"
    assert len(offsets(new, old, replica=2)) == 20, "here the one with an id is"


def test_a_replica_without_an_id_is_refused_beside_another_partition_of_the_topic_too(tmp_path: Path) -> None:
    one, two = ClosedBroker(tmp_path, 1), ClosedBroker(tmp_path, 2)
    one.put([(0, COMMON)], Facts(high_watermark=8))
    two.put([(0, COMMON)], Facts(high_watermark=8, topic_id=None), TopicPartition("t", 1))
    assert "t-1 has no topic id" in refusal(one, two)
    assert len(rows(one, two, failOnDataLoss="false")) == 8


def test_a_replica_without_an_id_and_without_records_is_nothing(tmp_path: Path) -> None:
    one, two = ClosedBroker(tmp_path, 1), ClosedBroker(tmp_path, 2)
    one.put([(0, COMMON)], Facts(high_watermark=8))
    two.put([(0, [])], Facts(high_watermark=0, topic_id=None))
    assert offsets(one, two) == list(range(8))


def test_where_no_replica_has_an_id_that_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    brokers = [ClosedBroker(tmp_path, number) for number in (1, 2)]
    for each in brokers:
        each.put([(0, COMMON)], Facts(high_watermark=8, topic_id=None))
    assert offsets(brokers[0]) == list(range(8)) and told(caplog, "topic_without_id") == []
    assert offsets(*brokers) == list(range(8))
    (said,) = told(caplog, "topic_without_id")
    assert "topic=t" in said and "brokers=1, 2" in said


def test_a_snapshot_whose_topic_nobody_can_verify_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    named, nameless = ClosedBroker(tmp_path, 1), ClosedBroker(tmp_path, 2)
    named.put([(0, COMMON)], Facts(high_watermark=8))
    nameless.put([(0, COMMON)], Facts(high_watermark=8, topic_id=None))
    assert offsets(nameless, snapshot=take_snapshot(options_of(named))) == list(range(8))
    (said,) = told(caplog, "topic_not_verified")
    assert "no replica has its id" in said
    assert offsets(named, snapshot=take_snapshot(options_of(nameless))) == list(range(8))
    assert "the snapshot has no id of it" in told(caplog, "topic_not_verified")[-1]


# ------------------------------------------------------------ partitions that nobody has


def test_that_there_may_be_more_partitions_is_told(
    broker: ClosedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    assert offsets(broker)
    (said,) = told(caplog, "partition_count_not_known")
    assert "highest=t-0" in said and "no file in a log directory says how many partitions" in said
    caplog.clear()
    assert offsets(broker, assign='{"t": [0]}') and told(caplog, "partition") == []


def test_a_partition_that_only_a_checkpoint_tells_of_is_missing(
    broker: ClosedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    broker.high_watermarks[TopicPartition("t", 2)] = 5
    broker.checkpoint()
    assert "t lacks partitions 1, 2: add the log directories" in refusal(broker)
    assert offsets(broker, failOnDataLoss="false") == list(range(8))
    (said,) = told(caplog, "partitions_not_read")
    assert "t lacks partitions 1, 2" in said
    assert offsets(broker, assign='{"t": [0]}') == list(range(8))
    (broker.path / f"t-2.{UUID(int=7).hex}-delete").mkdir()
    assert offsets(broker) == list(range(8)), "its broker has given it up"


def test_a_topic_that_only_a_checkpoint_tells_of_is_missing(broker: ClosedBroker) -> None:
    broker.high_watermarks[TopicPartition("tu", 0)] = 5
    broker.checkpoint()
    assert "tu lacks partitions 0" in refusal(broker, subscribePattern="t.*")
    assert offsets(broker) == list(range(8))


def test_what_one_broker_does_not_have_and_others_have_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = ClosedBroker(tmp_path, 1), ClosedBroker(tmp_path, 2)
    one.put([(0, COMMON)], Facts(high_watermark=8))
    two.put([(0, COMMON)], Facts(high_watermark=8), TopicPartition("t", 1))
    assert len(rows(one, two, replica=1)) == 8
    (said,) = told(caplog, "partitions_not_read")
    assert "t lacks partitions 1" in said


def test_what_another_replica_has_deleted_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    one, two = ClosedBroker(tmp_path, 1), ClosedBroker(tmp_path, 2)
    one.put([(0, COMMON)], Facts(high_watermark=8))
    two.put([(0, COMMON)], Facts(high_watermark=8, start=4))
    assert offsets(one, two) == list(range(4, 8))
    (said,) = told(caplog, "replicas_start_apart")
    assert "start=4" in said and "earlier=0 on broker 1" in said
    assert offsets(one, two, replica=1) == list(range(8)) and len(told(caplog, "replicas_start_apart")) == 1


def test_a_replica_that_was_left_behind_is_no_sign_of_an_unclean_election(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Reassigned to other brokers while its own was down; they have deleted all that it knows."""
    here, behind = ClosedBroker(tmp_path, 1), ClosedBroker(tmp_path, 2)
    here.put([(20, [batch(20, epoch=5)])], Facts(high_watermark=22, start=20))
    behind.put([(2, COMMON[1:])], Facts(high_watermark=8, start=2))
    assert offsets(here, behind) == [20, 21]
    (said,) = told(caplog, "replica_shares_no_epoch")
    assert "broker=2 start=2 end=8" in said and "deleted elsewhere since" in said
    assert told(caplog, "committed_records_superseded") == []


def test_a_log_that_is_read_to_its_end_and_ends_below_its_high_watermark_has_lost_something(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker = ClosedBroker(tmp_path, 1)
    broker.put([(0, COMMON)], Facts(high_watermark=10))
    with pytest.raises(
        DataLoss, match=r"records \[8, 10\) cannot be read: .*ends at offset 8, below its high"
    ):
        offsets(broker, replica=1, upto="leo")
    assert offsets(broker, replica=1, upto="leo", failOnDataLoss="false") == list(range(8))
    assert len(told(caplog, "records_lost")) == 1
    kafka = ClosedBroker(tmp_path / "kafka", 1, kafka=True)
    kafka.put([(0, COMMON)], Facts(high_watermark=10))
    assert offsets(kafka, replica=1, upto="leo") == list(range(8)), "it may have been cut: not believed"


# ------------------------------------------------------------ transactions whose end is damaged


def sent(base: int, producer: int) -> bytes:
    return batch(base, producer_id=producer, producer_epoch=0, base_sequence=base, transactional=True)


def with_damage(tmp_path: Path, batches: list[bytes], *damaged: int) -> tuple[ClosedBroker, Path, list[int]]:
    """A log with these batches, those with the numbers `damaged` bad; and where the bad bytes are."""
    made = ClosedBroker(tmp_path, 1)
    end = [header.next_offset for _, header in headers(batches[-1])][-1]
    log = made.put([(0, batches)], Facts(high_watermark=end)) / file_name(0, LOG)
    places = [sum(map(len, batches[:number])) + len(batches[number]) - 1 for number in damaged]
    for place in places:
        flip(log, place)
    return made, log, places


def test_rows_of_a_transaction_whose_marker_is_damaged_are_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The next marker of the producer is that of its next transaction: it says nothing about the first."""
    aborted = [sent(0, 7), marker(2, 7, commit=False)]
    committed = [sent(3, 7), marker(5, 7, commit=True)]
    broker, _, _ = with_damage(tmp_path, [*aborted, *committed, batch(6)], 1)
    for most in (2, 100):
        options = {**COMMITTED, "failOnDataLoss": "false", "maxRecordsPerPartition": most}
        assert offsets(broker, **options) == [3, 4, 6, 7]
    (said,) = told(caplog, "transactions_never_decided")
    assert "partition=t-0 transactions=1" in said and "[2, 3)" in said
    with pytest.raises(DataLoss, match=r"records \[2, 3\) cannot be read"):
        offsets(broker, **COMMITTED)


def test_what_is_undecided_behind_damage_is_not_read(tmp_path: Path) -> None:
    batches = [sent(0, 7), sent(2, 8), batch(4), batch(6), marker(8, 7, commit=True), batch(9), sent(11, 8)]
    broker, _, _ = with_damage(tmp_path, [*batches, batch(13)], 2)
    options = {**COMMITTED, "failOnDataLoss": "false"}
    assert offsets(broker, **options) == [6, 7, 9, 10], "of 0 to 3 nothing is known, and 11 is open"


def test_a_transaction_that_was_damaged_at_planning_and_can_be_read_later_stays_out(tmp_path: Path) -> None:
    """Its marker was looked for when nothing of it could be read."""
    batches = [
        sent(0, 7),
        marker(2, 7, commit=True),
        sent(3, 8),
        batch(5),
        marker(7, 8, commit=False),
        batch(8),
    ]
    broker, log, places = with_damage(tmp_path, batches, 2, 4)
    reader = StrandlineReader(parse(options_of(broker, **COMMITTED, failOnDataLoss="false")), ["offset"])
    (part,) = reader.partitions()
    for place in places:
        flip(log, place)
    found = [offset for rows in reader.read(part) for offset in rows["offset"].to_pylist()]
    assert found == [0, 1, 5, 6, 8, 9]


def changed(data: bytes, change: Callable[[bytearray], None]) -> bytes:
    """A batch with other bytes and a good checksum: as a faulty producer makes it."""
    found = bytearray(data)
    change(found)
    seal(found, 0, len(found))
    return bytes(found)


def test_a_marker_that_says_nothing_counts_as_an_abort(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def nameless(data: bytearray) -> None:
        data[61 + 4] = 1  # the length of the key: -1

    odd = changed(marker(2, 7, commit=True), nameless)
    broker, log, _ = with_damage(tmp_path, [sent(0, 7), odd, batch(3)])
    with pytest.raises(DataLoss, match=rf"t-0: {log}, position \d+: .*offset 2"):
        offsets(broker, **COMMITTED)
    assert offsets(broker, **COMMITTED, failOnDataLoss="false") == [3, 4]
    assert len(told(caplog, "marker_counts_as_abort")) == 1


def test_a_batch_that_cannot_be_read_is_told_with_its_place_when_a_time_is_looked_for(tmp_path: Path) -> None:
    def compressed(data: bytearray) -> None:
        data[22] |= 1  # gzip, says the batch

    odd = changed(batch(4), compressed)
    broker, log, _ = with_damage(tmp_path, [batch(0), batch(2), odd, batch(6), batch(8)])
    place = len(batch(0)) + len(batch(2))
    with pytest.raises(
        DataLoss, match=rf"records \[4, 6\) cannot be read: {log}, position {place}: cannot read"
    ):
        offsets(broker, startingTimestamp=START_MS + 5)
    assert offsets(broker, startingTimestamp=START_MS + 5, failOnDataLoss="false") == [6, 7, 8, 9]
