"""Lines of a file that grows, through a topic into another file: what happens to Connect, and what must hold.

The source is exactly once: what stands in the topic, read committed, is the file, whoever dies. Connect
promises less of a sink: each line at least once after a kill, just once without one.
"""

import threading
from itertools import zip_longest
from pathlib import Path
from random import Random

from tests.conformance.streams.brokers import Brokers, Reading, all_written
from tests.conformance.streams.scenario import Laps
from tests.conformance.streams.workers import Workers
from tests.patience import HANG_S

FILES = "org.apache.kafka.connect.file.FileStream{}Connector"
STEP_S = 0.05
STEP_LINES = 5
AGAIN_MAX = 3  # a source that is killed may have committed at the last moment


class Growing:
    """A file to which someone writes all the time, some lines at once and not always whole ones."""

    def __init__(self, path: Path) -> None:
        self.path, self.lines = path, list[str]()
        self._random = Random(1)
        self._ended = threading.Event()
        self._writer: threading.Thread | None = None

    def start(self) -> None:
        self._ended.clear()
        self._writer = threading.Thread(target=self._write, daemon=True)
        self._writer.start()

    def stop(self) -> None:
        """End with a whole line."""
        self._ended.set()
        if self._writer is not None:
            self._writer.join(HANG_S)
            self._writer = None

    def _write(self) -> None:
        while not self._ended.wait(STEP_S):
            self.more(self._random.randint(1, STEP_LINES))

    def more(self, count: int) -> None:
        """So many lines; the last one comes in two pieces."""
        fresh = [f"line {len(self.lines) + each} of the file" for each in range(count)]
        text = "".join(f"{line}\n" for line in fresh)
        cut = len(text) - self._random.randint(0, len(fresh[-1]))
        for piece in (text[:cut], text[cut:]):
            with self.path.open("a") as file:
                file.write(piece)
        self.lines += fresh


def same(found: list[str], wanted: list[str], what: str) -> None:
    """Both lists are the same, or else where they begin to differ is told."""
    pairs = zip_longest(found, wanted)
    at = next((number for number, (one, other) in enumerate(pairs) if one != other), 0)
    told = f"from {at} on {found[at : at + 3]} and not {wanted[at : at + 3]}"
    assert found == wanted, f"{what}: {len(found)} of {len(wanted)}, {told}"


class Copying:
    """A source and a sink, the topic between them, and both files."""

    def __init__(self, brokers: Brokers, workers: Workers, folder: Path) -> None:
        self.brokers, self.workers, self.topic = brokers, workers, f"{workers.group}-lines"
        self.source, self.sink = Growing(folder / "source.txt"), folder / "sink.txt"
        brokers.create(self.topic, 1)
        self.between = Reading(brokers, self.topic, 1)

    def begin(self) -> None:
        """Both connectors, each with one task."""
        self.source.more(1)
        tasks = {"tasks_max": 1}
        self.workers.create(
            "source",
            connector_class=FILES.format("Source"),
            file=self.source.path,
            topic=self.topic,
            transaction_boundary="interval",
            transaction_boundary_interval_ms=1000,
            **tasks,
        )
        self.workers.create(
            "sink", connector_class=FILES.format("Sink"), file=self.sink, topics=self.topic, **tasks
        )

    def close(self) -> None:
        self.source.stop()
        self.between.close()

    def copied(self) -> list[str]:
        return self.sink.read_text().splitlines() if self.sink.exists() else []

    def wait_copied(self, more: int | None = None) -> None:
        """Wait until the last line of now has come, or so many more lines than there are in the sink."""
        wanted = len(self.source.lines)
        if more is not None:
            wanted = min(len(self.copied()) + more, wanted + more)
            self.workers.until(lambda: len(self.copied()) >= wanted, f"{wanted} lines were copied", 180)
            return
        last = self.source.lines[-1]
        self.workers.until(lambda: last in self.copied()[-1:], f"the last of {wanted} lines was copied", 180)

    def verify(self, again: int | None = 0) -> None:
        """The topic is the source; so is the sink, but for so many lines that came again (None: any)."""
        lines = self.source.lines
        same([each.value().decode() for each in self.between.whole()], lines, "the topic is the source")
        copied = self.copied()
        same(list(dict.fromkeys(copied)), lines, "the sink has every line of the source, in order")
        assert again is None or len(copied) - len(lines) == again, len(copied) - len(lines)

    def is_open(self) -> bool:
        """Whether the source has written what is not decided yet."""
        return self.brokers.open_partitions(self.topic, 1) != set()

    def aborted(self) -> int:
        """How many lines were written and taken back, when all have come."""
        return all_written(self.brokers, self.topic, 1) - len(self.source.lines)

    @property
    def again(self) -> int:
        """How many lines of the sink have come again."""
        return len(self.copied()) - len(self.source.lines)


def in_peace(copying: Copying) -> dict[str, float]:
    """Two workers, no kill. Returns how long the steps took."""
    workers, laps = copying.workers, Laps()
    workers.start("x", "y")
    workers.ready()
    laps.lap("two workers answer, from the start of their JVMs on")
    copying.source.start()
    copying.begin()
    copying.wait_copied(more=100)
    laps.lap("100 lines in the sink, from the first connector on")
    copying.source.stop()
    copying.wait_copied()
    copying.verify()
    return laps.taken


def whoever_dies(copying: Copying) -> dict[str, float]:
    """While lines come the worker of the source is killed, then that of the sink; each comes back."""
    workers, laps = copying.workers, Laps()
    for connector in ("source", "sink", *["source"] * AGAIN_MAX):
        if laps.taken and connector == "source" and copying.aborted() > 0:
            break
        copying.source.start()
        copying.wait_copied(more=50)
        victim = workers.owner(connector)
        laps.lap(f"before the worker of the {connector} is killed")
        workers.until(copying.is_open, "a transaction is open", 180)
        workers.kill(victim)
        copying.wait_copied(more=50)
        laps.lap(f"the worker of the {connector} killed: 50 more lines in the sink")
        workers.start(victim)
        workers.joined()
        copying.wait_copied(more=50)
        copying.source.stop()
        copying.wait_copied()
        laps.lap(f"the worker of the {connector} is back, all is copied")
        copying.verify(again=None)
    assert copying.aborted() > 0, "who was killed had written"
    return laps.taken


def all_stop(copying: Copying) -> None:
    """Every worker leaves; lines come meanwhile; others go on where they were, with no line twice."""
    workers, again = copying.workers, copying.again
    for name in list(workers.running):
        workers.stop(name)
    copying.source.more(100)
    workers.start("x", "y")
    workers.ready()
    copying.wait_copied()
    copying.verify(again)


def begin_again(copying: Copying) -> None:
    """Through REST the sink's offset is set back to a place: the lines from there on come once more."""
    workers, again, back = copying.workers, copying.again, 7
    offsets = workers.ask("GET", "/connectors/source/offsets")["offsets"]
    size = copying.source.path.stat().st_size
    assert [each["offset"] for each in offsets] == [{"position": size}]
    workers.stopped("sink")
    (place,) = workers.ask("GET", "/connectors/sink/offsets")["offsets"]
    (_, end), *_ = copying.between.bounds()
    assert place["partition"] == {"kafka_topic": copying.topic, "kafka_partition": 0}
    assert (
        end - 1 <= place["offset"]["kafka_offset"] <= end
    )  # at the marker of the last transaction, or after it
    first = copying.between.records[0][-back].offset()
    workers.ask(
        "PATCH",
        "/connectors/sink/offsets",
        {"offsets": [{**place, "offset": {"kafka_offset": first}}]},
    )
    workers.ask("PUT", "/connectors/sink/resume")
    workers.until(lambda: copying.again == again + back, f"{back} lines came again")
    copying.verify(again=None)
    workers.stopped("sink")
    workers.ask("DELETE", "/connectors/sink/offsets")
    assert workers.ask("GET", "/connectors/sink/offsets")["offsets"] == []
    for connector in ("sink", "source"):
        workers.ask("DELETE", f"/connectors/{connector}")
    assert workers.ask("GET", "/connectors") == []
