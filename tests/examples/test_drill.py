"""The drill of the pipeline: its judge finds what is wrong, and reads what Spark and the flights are."""

import json
from datetime import date
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from examples.pipeline import flights
from examples.pipeline.drill import judge
from examples.pipeline.drill.plot import KILLED, LETTER, WIDTH, Event, Panel, blocks, marks, svg
from examples.pipeline.drill.timeline import Outcome, Recovery, Sample
from examples.pipeline.drill.watch import Checkpoint, ParquetSink, Window

A = Window("AA", date(2013, 1, 1), 3, 17, 12)
B = Window("UA", date(2013, 1, 1), 1, -4, -4)
WANTED = {("AA", A.day): A, ("UA", B.day): B}


def test_flights_come_in_the_order_in_which_they_left() -> None:
    coming = flights.flights(3)
    assert [each.left_s for each in coming] == sorted(each.left_s for each in coming)
    parts = list(flights.ticks(coming))
    assert [flight for part in parts for flight in part] == coming
    for part in parts:
        assert len({flight.left_s // flights.TICK_S for flight in part}) <= 1
    sent = [json.loads(flight.value) for flight in coming]
    late = [each for each in sent if (each["dep_delay"] or 0) > 600]
    assert late, "some come hours after the others of their hour"
    assert any(each["dep_delay"] is None for each in sent)


def test_the_judge_adds_up_what_the_flights_say() -> None:
    """In another way than the producer reads them."""
    wanted = judge.expected(flights.archive(), 3)
    sent = [json.loads(flight.value) for flight in flights.flights(3)]
    left = [each for each in sent if each["dep_delay"] is not None]
    assert wanted.never_left == len(sent) - len(left) > 0
    assert wanted.late > 0
    (row,) = [window for key, window in wanted.windows.items() if key == ("UA", date(2013, 1, 2))]
    delays = [
        each["dep_delay"]
        for each in left
        if each["carrier"] == "UA" and each["scheduled"].startswith("2013-01-02")
    ]
    assert row == Window("UA", date(2013, 1, 2), len(delays), sum(delays), max(delays))


@pytest.mark.parametrize(
    ("rows", "missing", "wrong", "repeated"),
    [
        ([A, B], 0, 0, 0),
        ([A, B, A, A], 0, 0, 2),
        ([A], 1, 0, 0),
        ([A, B._replace(delay_sum=-5)], 0, 1, 0),
        ([A, B, B._replace(flights=2)], 0, 1, 0),
        ([A, B, Window("--", A.day, 1, 0, 0)], 0, 1, 0),
    ],
)
def test_the_judge_finds_what_is_missing_wrong_or_repeated(
    rows: list[Window], missing: int, wrong: int, repeated: int
) -> None:
    found = judge.compare(rows, WANTED)
    assert (len(found.missing), len(found.wrong), found.repeated) == (missing, wrong, repeated)


def outcome(parquet_rows: list[Window], topic_rows: list[Window], lag: int = 0) -> Outcome:
    found = Outcome(1, ["parquet", "topic"], is_isr_full=True)
    found.expected.windows = WANTED
    found.recoveries = [Recovery(name, 1.0) for name in ("a broker", "a worker", "the driver")]
    found.compared["parquet"] = judge.compare(parquet_rows, WANTED)
    found.compared["topic"] = judge.compare(topic_rows, WANTED)
    found.samples = [Sample(1.0, 4, {"parquet": 0, "topic": lag}, {"parquet": 2, "topic": 2})]
    return found


def test_a_window_that_stands_twice_is_a_fault() -> None:
    assert outcome([A, B], [A, B]).good
    twice = outcome([A, B], [A, B, B])
    assert not twice.good and twice.checks()["topic: 1 rows twice"] is False
    assert not outcome([A, B, B], [A, B]).good
    assert not outcome([A], [A, B]).good
    assert not outcome([A, B], [A]).good
    assert not outcome([A, B], [A, B], lag=3).good
    for fault in ("recoveries", "compared"):
        broken = outcome([A, B], [A, B])
        getattr(broken, fault).clear()
        assert not broken.good, fault
    broken = outcome([A, B], [A, B])
    broken.left_running = [1]
    assert not broken.good
    broken = outcome([A, B], [A, B])
    broken.is_isr_full = False
    assert not broken.good


def test_a_checkpoint_tells_the_last_batch_that_is_done(tmp_path: Path) -> None:
    found = Checkpoint(tmp_path, "flights")
    assert (found.last(), found.processed(), found.watermark_s()) == (-1, {}, 0.0)
    for folder in ("commits", "offsets"):
        (tmp_path / folder).mkdir()
    for batch in range(12):
        facts = json.dumps({"batchWatermarkMs": batch * 1000, "conf": {}})
        offsets = json.dumps({"flights": {"0": batch, "1": 2 * batch}, "delays": {"0": 7}})
        (tmp_path / "offsets" / str(batch)).write_text(f"v1\n{facts}\n{offsets}")
        if batch < 11:
            (tmp_path / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')
            (tmp_path / "commits" / f".{batch}.crc").touch()
    assert (found.last(), found.processed(), found.watermark_s()) == (10, {0: 10, 1: 20}, 10.0)


def test_only_files_that_are_listed_are_read(tmp_path: Path) -> None:
    """Batch 9 has compacted the list; a file of batch 11, which was cut short, is not on it."""
    listed = tmp_path / "_spark_metadata"
    listed.mkdir()

    def write(batch: int, row: Window) -> str:
        path = tmp_path / f"part-{batch}.parquet"
        parquet.write_table(pa.Table.from_pylist([row._asdict()]), path)
        return json.dumps({"path": path.as_uri(), "action": "add"})

    first, second, third = write(8, A), write(9, B), write(10, A)
    write(11, B)
    (listed / "8").write_text(f"v1\n{first}")
    (listed / "9.compact").write_text(f"v1\n{first}\n{second}")
    (listed / "10").write_text(f"v1\n{third}")
    sink = ParquetSink(tmp_path)
    assert sorted(sink.windows()) == sorted([A, B, A])
    assert (sink.count(), sink.unlisted()) == (3, 1)


def test_the_picture_is_a_picture() -> None:
    line = [(0.0, 0.0), (1.0, 50.0), (2.0, 100.0)]
    events = [Event(0.5, "broker 1 <killed>", KILLED), Event(1.5, "back")]
    drawn = ElementTree.fromstring(svg("a run", [Panel("lag", {"topic": line})], events))
    said = [each.text for each in drawn.iter() if each.tag.endswith("text")]
    assert {"a run", "lag", "— topic", "broker 1 <killed>", "100"} <= set(said)
    (drawn_line,) = [each for each in drawn.iter() if each.tag.endswith("polyline")]
    assert len(drawn_line.attrib["points"].split()) == 3
    assert svg("nothing", [Panel("lag", {"topic": []})], [])
    assert blocks(line, 2.0, 4) == "  ▄█"
    assert marks(events, 2.0, 4) == " a b"


def test_texts_of_events_are_apart_and_in_the_picture() -> None:
    """Many things at once, and one at the very end."""
    names = [f"broker {number} killed" for number in range(6)]
    events = [Event(float(number // 2), name) for number, name in enumerate(names)] + [Event(9.0, "the end")]
    drawn = ElementTree.fromstring(svg("a run", [Panel("lag", {"topic": [(0.0, 0.0), (9.0, 1.0)]})], events))
    rows: dict[str, list[tuple[float, float]]] = {}
    for text in drawn.iter("{http://www.w3.org/2000/svg}text"):
        if text.text in (*names, "the end"):
            at, width = float(text.attrib["x"]), LETTER * len(text.text)
            begin = at - width if text.attrib["text-anchor"] == "end" else at
            rows.setdefault(text.attrib["y"], []).append((begin, begin + width))
    assert sum(map(len, rows.values())) == len(events)
    for row in rows.values():
        assert all(one[1] < other[0] for one, other in pairwise(sorted(row)))
        assert all(begin >= 0 and end <= WIDTH for begin, end in row)
