"""Option `logDirs` with a snapshot as JSON: the same records again, or a refusal."""

import json
from pathlib import Path
from typing import Any

import pytest

from strandline.client.spark.helpers import take_snapshot
from strandline.client.spark.plan import DataLoss
from strandline.client.spark.snapshot import FORMAT
from tests.client.spark.closed import offsets, options_of, values
from tests.storage.closed_dirs import TOPIC_ID, ClosedBroker, Facts, batch

pytestmark = pytest.mark.usefixtures("heard_anew")

KEPT = [batch(0, epoch=3), batch(2, epoch=3), batch(4, epoch=3), batch(6, epoch=3)]  # below 8


def told(caplog: pytest.LogCaptureFixture, event: str) -> list[str]:
    return [text for text in caplog.messages if text.startswith(event)]


def taken(end: int, epoch: int, start: int = 0) -> str:
    """The snapshot of a read in that epoch."""
    span = {"topic": "t", "partition": 0, "start": start, "end": end, "leaderEpoch": epoch}
    return json.dumps({FORMAT: 1, "partitions": [{**span, "topicId": str(TOPIC_ID)}]})


def rewritten(root: Path, number: int = 1, **facts: Any) -> ClosedBroker:
    """Epoch 4 was begun at offset 8 by an election outside of the ISR."""
    broker = ClosedBroker(root, number)
    given = Facts(**{"high_watermark": 12, **facts})
    broker.put([(0, [*KEPT, batch(8, epoch=4), batch(10, epoch=4)])], given)
    return broker


@pytest.mark.parametrize("strict", ["true", "false"])
@pytest.mark.parametrize(
    "how", [{}, {"replica": 1}, {"replica": 1, "upto": "leo"}, {"kafka.isolation.level": "read_committed"}]
)
def test_records_that_others_have_replaced_are_not_read_for_them(
    tmp_path: Path, how: dict[str, Any], strict: str
) -> None:
    before = ClosedBroker(tmp_path / "before", 1)
    before.put([(0, [*KEPT, batch(8, epoch=3)])], Facts(high_watermark=10))
    snapshot = take_snapshot(options_of(before, **how))
    assert json.loads(snapshot)["partitions"][0]["leaderEpoch"] == 3
    after = rewritten(tmp_path)
    options = {"failOnDataLoss": strict, **how}
    with pytest.raises(
        DataLoss,
        match=r"t-0: leader epoch 4 begins at offset 8, but the snapshot was taken in epoch 3: records "
        r"\[8, 10\) were truncated and rewritten since",
    ):
        offsets(after, snapshot=snapshot, **options)
    assert offsets(after, snapshot=taken(8, 3), **options) == list(range(8)), "before the later epoch"
    assert offsets(after, snapshot=taken(12, 4), **options) == list(range(12))
    assert offsets(after, snapshot=taken(12, -1), **options) == list(range(12)), "of an unknown epoch"
    with pytest.raises(DataLoss, match=r"records \[9, 10\) were truncated and rewritten"):
        offsets(after, snapshot=taken(10, 3, start=9), **options)


def test_what_was_cut_and_not_written_again_is_gone(tmp_path: Path) -> None:
    broker = ClosedBroker(tmp_path, 1)
    broker.put([(0, KEPT)], Facts(high_watermark=8, epochs=[(3, 0), (4, 8)]))
    with pytest.raises(DataLoss, match=r"records \[0, 10\) are not all there: \[0, 8\) can be read"):
        offsets(broker, snapshot=taken(10, 3))
    assert offsets(broker, snapshot=taken(10, 3), failOnDataLoss="false") == list(range(8))


def test_what_replaced_records_may_have_been_compacted_away(tmp_path: Path) -> None:
    """No batch that is left tells of it: the history does."""
    broker = ClosedBroker(tmp_path, 1)
    facts = Facts(high_watermark=14, epochs=[(3, 0), (4, 8)], gaps=True)
    broker.put([(0, [*KEPT, batch(12, epoch=4)])], facts)
    with pytest.raises(DataLoss, match="leader epoch 4 begins at offset 8"):
        offsets(broker, snapshot=taken(10, 3))


def test_the_history_is_that_of_the_replica_that_is_read(tmp_path: Path) -> None:
    """A log that was deleted up to its epoch 4 begins that one where it begins itself."""
    whole, late = rewritten(tmp_path, 2), ClosedBroker(tmp_path, 1)
    late.put([(10, [batch(10, epoch=4)])], Facts(high_watermark=12, start=10))
    with pytest.raises(DataLoss, match="leader epoch 4 begins at offset 8"):
        offsets(whole, late, snapshot=taken(10, 3), replica=2)
    known = rewritten(tmp_path, 4, start=10)
    assert offsets(known, snapshot=taken(9, 3), failOnDataLoss="false") == [], "deleted since"
    old = ClosedBroker(tmp_path, 3)
    old.put([(0, [*KEPT, batch(8, epoch=3)])], Facts(high_watermark=10))
    assert offsets(whole, old, snapshot=taken(8, 3), replica=3) == list(range(8))
    with pytest.raises(DataLoss, match=r"are not all there: \[0, 8\) can be read"):
        offsets(whole, old, snapshot=taken(10, 3), replica=3)
    leo = {"replica": 3, "upto": "leo"}
    assert values(whole, old, snapshot=taken(10, 3), **leo)[8:] == ["8@3", "9@3"], "as it stands there"


def test_a_log_whose_history_its_batches_tell_is_held_against_the_snapshot_too(tmp_path: Path) -> None:
    broker = rewritten(tmp_path, epochs=())
    assert offsets(broker, snapshot=taken(8, 3)) == list(range(8))
    with pytest.raises(DataLoss, match="leader epoch 4 begins at offset 8"):
        offsets(broker, snapshot=taken(10, 3), failOnDataLoss="false")


def test_directories_that_do_not_know_the_snapshots_epoch_are_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A follower hears of an epoch with its first record: it may be as new as the snapshot, or older."""
    broker = rewritten(tmp_path)
    assert offsets(broker, snapshot=taken(12, 6)) == list(range(12))
    (said,) = told(caplog, "snapshot_epoch_not_known")
    assert "partition=t-0 epoch=6 latest=4" in said
    assert offsets(broker, snapshot=taken(12, 4)) and len(told(caplog, "snapshot_epoch_not_known")) == 1


def test_a_partition_without_a_replica_here_is_empty_however_it_is_split(tmp_path: Path) -> None:
    broker = ClosedBroker(tmp_path, 1)
    broker.put([(0, KEPT)], Facts(high_watermark=8))
    spans = json.loads(taken(8, 3))
    spans["partitions"].append({**spans["partitions"][0], "partition": 1})
    options = {"snapshot": json.dumps(spans), "failOnDataLoss": "false"}
    assert offsets(broker, **options, splitBytes=100) == list(range(8))
    with pytest.raises(DataLoss, match=r"t-1: records \[0, 8\) are not all there: \[0, 0\) can be read"):
        offsets(broker, **{**options, "failOnDataLoss": "true"}, splitBytes=100)
