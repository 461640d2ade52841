"""The runs of these tests on Strandline and on Apache Kafka 3.9, by hand: how long, what Java complains of.

    python -m tests.conformance.streams.beside [words|rate|lines] [strandline|kafka-3.9]

That Kafka's brokers pass shows that what is asked of ours is right. `words` is the word count, `lines`
Connect, `rate` a longer word count in peace.
"""

import sys
import tempfile
import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from bench.systems import SYSTEMS

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from tests.conformance.streams import copying, jvm, scenario  # noqa: E402
from tests.conformance.streams.brokers import Brokers, measured  # noqa: E402
from tests.conformance.streams.copying import Copying  # noqa: E402
from tests.conformance.streams.wordcount import WordCount  # noqa: E402
from tests.conformance.streams.workers import Workers  # noqa: E402

LINES = 100
LINES_OF_RATE = 10_000
TOLD = {  # the same to both; Kafka notices that a broker is dead when its session ends
    "default.replication.factor": "3",
    "zookeeper.session.timeout.ms": "6000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
}
BOTH = ("strandline", "kafka-3.9")
Result = tuple[dict[str, float], Counter[str]]


def words(brokers: Brokers, folder: Path) -> Result:
    """What the standing test does."""
    application = WordCount(
        brokers, folder, jvm.compiled(folder / "classes"), f"words-{uuid.uuid4().hex[:8]}"
    )
    try:
        laps = scenario.whoever_dies(application, LINES)
        scenario.verify(application)
        return laps, application.complaints()
    finally:
        application.end()


def rate(brokers: Brokers, folder: Path) -> Result:
    """Many lines for two instances, after as many to warm them up."""
    application = WordCount(
        brokers, folder, jvm.compiled(folder / "classes"), f"words-{uuid.uuid4().hex[:8]}"
    )
    try:
        application.start("a", "b")
        laps = scenario.Laps()
        for what in ("to warm up", "measured"):
            before = application.expected.total()
            application.feed(LINES_OF_RATE)
            application.wait_counted()
            laps.lap(f"{application.expected.total() - before:,} words of {LINES_OF_RATE:,} lines, {what}")
        return laps.taken, application.complaints()
    finally:
        application.end()


def lines(brokers: Brokers, folder: Path) -> Result:
    """What the long test of Connect does."""
    workers = Workers(brokers, folder, f"connect-{uuid.uuid4().hex[:8]}")
    copied = Copying(brokers, workers, folder)
    try:
        laps = copying.in_peace(copied) | copying.whoever_dies(copied)
        copying.all_stop(copied)
        copying.begin_again(copied)
        return laps, workers.complaints()
    finally:
        workers.end()
        copied.close()


RUNS: dict[str, Callable[[Brokers, Path], Result]] = {"words": words, "rate": rate, "lines": lines}


def main(chosen: list[str]) -> None:
    """Every run on every system, or those that are named."""
    for run in [name for name in RUNS if name in chosen] or RUNS:
        for system in [name for name in BOTH if name in chosen] or BOTH:
            with (
                tempfile.TemporaryDirectory(prefix="streams-") as folder,
                SYSTEMS[system](Path(folder) / "cluster", 3, TOLD) as cluster,
            ):
                laps, complaints = RUNS[run](measured(cluster), Path(folder))
            sys.stdout.write(f"\n{run}, {system}\n")
            sys.stdout.writelines(f"{taken:8.1f} s  {step}\n" for step, taken in laps.items())
            sys.stdout.writelines(f"{count:8}    {line[:300]}\n" for line, count in complaints.most_common())
            sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
