"""The end of a run: everything is copied, and every partition is read from its first record to its end.

Left to others: what was noted meanwhile is judged by `testing/anomalies`.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from ...base.types import TopicPartition
from ...client.sync import Consumer
from ..anomalies import Action, HistoryWriter, Notes, Record, Type, read_history
from ..waiting import until
from .clients.client import copiers, value_in
from .enough import behind

FINAL = "final"
SETTLED_S = 90.0
LOOK_S = 10.0


def wait_copied(
    bootstrap: str, prefix: str, source: str, partitions: int, within_s: float, tend: Callable[[], None]
) -> None:
    """Wait until the copiers of `source` have committed all there is; `tend` is called meanwhile."""
    places = [TopicPartition(source, each) for each in range(partitions)]
    options = {"enable_auto_commit": False, "isolation_level": "read_committed"}
    with Consumer(bootstrap, group=copiers(prefix, source), **options) as consumer:
        ends = consumer.end_offsets(places)

        def done() -> bool:
            tend()
            marks = {place: mark.offset if mark else 0 for place, mark in consumer.committed(*ends).items()}
            return is_read(consumer, {place: at for place, at in marks.items() if at < ends[place]}, ends)

        until(done, within_s, f"{source} is copied to its end", every_s=0.5)


def is_read(
    consumer: Consumer, begins: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> bool:
    """Whether no record stands between these offsets: only what ends transactions, or was aborted."""
    consumer.assign(begins)
    for place, offset in begins.items():
        consumer.seek(place, offset)
    deadline = time.monotonic() + LOOK_S
    while any(consumer.position(place) < ends[place] for place in begins):
        if consumer.poll(200) or time.monotonic() > deadline:
            return False
    return True


def read_all(bootstrap: str, places: list[TopicPartition], folder: Path, within_s: float) -> None:
    """Wait until no transaction is open, then note what a reader of committed records finds."""
    with (
        HistoryWriter(folder / f"{FINAL}.history") as writer,
        Consumer(bootstrap) as everything,
        Consumer(bootstrap, isolation_level="read_committed") as committed,
    ):
        until(
            lambda: everything.end_offsets(places) == committed.end_offsets(places),
            SETTLED_S,
            "no transaction is open any more",
        )
        notes = Notes(writer, FINAL)
        notes.note(Type.INVOKE, Action.END)
        ends = everything.end_offsets(places)
        notes.note(Type.OK, Action.END, [Record(*tp, offset=end) for tp, end in ends.items()])
        seen = _read_to(committed, ends, notes, within_s)
        empty = [Record(*tp) for tp in places if tp not in seen]
        notes.note(Type.OK, Action.EMPTY, empty)


def _read_to(
    consumer: Consumer, ends: Mapping[TopicPartition, int], notes: Notes, within_s: float
) -> set[TopicPartition]:
    """Read every partition to its end; those in which anything was."""
    consumer.assign(ends)
    for place in ends:
        consumer.seek(place, 0)
    seen = set[TopicPartition]()
    deadline = time.monotonic() + within_s
    while any(consumer.position(tp) < end for tp, end in ends.items()):
        assert time.monotonic() < deadline, f"the final read does not come to its end within {within_s:g} s"
        found = [
            Record(one.topic, one.partition, one.offset, value_in(one.value))
            for one in consumer.poll(200, max_records=10_000)
        ]
        seen |= {TopicPartition(one.topic, one.partition) for one in found}
        notes.note(Type.OK, Action.WHOLE, found)
    return seen


def wait_read(
    folder: Path, readers: Mapping[str, Iterable[str]], within_s: float, tend: Callable[[], None]
) -> None:
    """Wait until all that only read have come to the ends of all partitions."""
    found: list[str] = []
    wanted = {name: tuple(topics) for name, topics in readers.items()}

    def read() -> bool:
        tend()
        names = (*(f"{name}-*" for name in wanted), FINAL)
        histories = [path for name in names for path in folder.glob(f"{name}.history")]
        found[:] = behind(read_history(*histories), wanted)
        return not found

    try:
        until(read, within_s, "everything is read by everybody", every_s=1)
    except AssertionError as failure:
        raise AssertionError("\n  ".join([str(failure), *found])) from None
