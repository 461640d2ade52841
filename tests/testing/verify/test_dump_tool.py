"""What is made of the words of Kafka's dump tool: complaints, and replicas of which it tells differently."""

import shutil
import sys
from pathlib import Path

import pytest

from strandline.base.types import TopicPartition
from strandline.testing.verify.places import PlaceProblem
from strandline.testing.verify.places.dump_tool import complaints, differences, examined, sections

sys.path.append(str(Path(__file__).resolve().parents[2] / "conformance"))

from kafka_peer import jars

T0 = TopicPartition("t", 0)
LOG = """Dumping 1/t-0/00.log
Log starting offset: 0
baseOffset: 0 lastOffset: 1 count: 2 producerId: 7 position: 0 size: 91 crc: 11 isvalid: true
| offset: 0 CreateTime: 1 keySize: -1 valueSize: 8 payload: mismatch
baseOffset: 2 lastOffset: 2 count: 1 producerId: 7 position: 91 size: 70 crc: 12 isvalid: true
Dumping 1/t-0/00.txnindex
version: 0 producerId: 7 firstOffset: 0 lastOffset: 2 lastStableOffset: 3
Dumping 1/t-0/00.snapshot
producerId: 7 producerEpoch: 0 coordinatorEpoch: 0 currentTxnFirstOffset: OptionalLong.empty lastTimestamp: 1
Dumping 1/t-0/03.snapshot
producerId: 7 producerEpoch: 1 coordinatorEpoch: 0 currentTxnFirstOffset: OptionalLong.empty lastTimestamp: 1 firstSequence: 4 lastSequence: 5 lastOffset: 2
"""  # noqa: E501
BATCH = LOG.splitlines(keepends=True)[4]


def told(other: str) -> list[str]:
    """The differences between the replica above and another one's words."""
    words = dict(sections(LOG)) | dict(sections(other.replace("Dumping 1/", "Dumping 2/")))
    return list(differences(T0, {1: Path("1/t-0"), 2: Path("2/t-0")}, words))


def test_records_and_plain_readings_are_no_complaints() -> None:
    assert [line for _, lines in sections(LOG) for line in complaints(lines)] == []


def test_what_is_broken_is() -> None:
    broken = LOG.replace("crc: 12 isvalid: true", "crc: 12 isvalid: false")
    assert len([line for _, lines in sections(broken) for line in complaints(lines)]) == 1


def test_segments_may_begin_elsewhere_and_stable_offsets_be_others() -> None:
    rolled = LOG.replace(BATCH, "Dumping 1/t-0/02.log\n" + BATCH.replace("position: 91", "position: 0"))
    assert told(LOG) == [] == told(rolled)
    assert told(LOG.replace("lastStableOffset: 3", "lastStableOffset: 4")) == []


@pytest.mark.parametrize(
    ("was", "isnt", "what"),
    [
        ("crc: 12", "crc: 13", "batches"),
        (BATCH, "", "batches"),
        ("firstOffset: 0 lastOffset: 2", "firstOffset: 1 lastOffset: 2", "aborted transactions"),
        ("producerEpoch: 1", "producerEpoch: 2", "producers"),
        ("lastSequence: 5", "lastSequence: 6", "producers"),
    ],
)
def test_another_word_about_the_other_replica_is_told(was: str, isnt: str, what: str) -> None:
    (difference,) = told(LOG.replace(was, isnt))
    assert f"t-0: Kafka's dump tool finds other {what} at broker 1 than at broker 2" in difference


def test_the_tool_itself_reads_all_files_and_finds_the_one_that_was_changed(tmp_path: Path) -> None:
    fixture = Path(__file__).resolve().parents[2] / "fixtures" / "kafka" / "clean" / "transactions-0"
    places = {id: tmp_path / str(id) for id in (1, 2)}
    for data in places.values():
        shutil.copytree(fixture, data / "transactions-0")
    holders = {TopicPartition("transactions", 0): [1, 2]}
    assert examined(jars(), tmp_path, places, holders) == []
    times = places[2] / "transactions-0" / f"{0:020}.timeindex"
    times.write_bytes(times.read_bytes()[:7] + b"\x7f" + times.read_bytes()[8:])
    (told,) = examined(jars(), tmp_path, places, holders)
    assert "mismatch" in told and times.name in told
    assert examined(jars(), tmp_path, places, holders, unindexed=[2]) == []
    changed = next((places[2] / "transactions-0").glob("*3.log"))
    content = bytearray(changed.read_bytes())
    content[56] ^= 1  # in the header
    changed.write_bytes(content)
    found = examined(jars(), tmp_path, places, holders)
    assert any("isvalid: false" in one for one in found) and any("other batches" in one for one in found)
    with pytest.raises(PlaceProblem, match="ended with status"):
        examined(tmp_path, tmp_path, places, holders)
