"""The word count on Strandline and on Apache Kafka 3.9, by hand: how long it takes, what Java complains of.

    python -m tests.conformance.streams.beside [strandline|kafka-3.9 ...]

That Kafka's brokers pass shows that what is asked of ours is right.
"""

import sys
import tempfile
import uuid
from collections import Counter
from pathlib import Path

from bench.systems import SYSTEMS

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from tests.conformance.streams import jvm, scenario  # noqa: E402
from tests.conformance.streams.brokers import measured  # noqa: E402
from tests.conformance.streams.wordcount import WordCount  # noqa: E402

LINES = 100
TOLD = {  # the same to both; a broker that is dead is noticed by Kafka when its session ends
    "default.replication.factor": "3",
    "zookeeper.session.timeout.ms": "6000",
}


def counted(name: str, folder: Path) -> tuple[dict[str, float], Counter[str]]:
    """The run of the standing test on one system."""
    classes = jvm.compiled(folder / "classes")
    with SYSTEMS[name](folder / "cluster", 3, TOLD) as system:
        application = WordCount(measured(system), folder, classes, f"words-{uuid.uuid4().hex[:8]}")
        try:
            laps = scenario.whoever_dies(application, LINES)
            scenario.verify(application)
            return laps, application.complaints()
        finally:
            application.end()


def main(names: list[str]) -> None:
    for name in names or ["strandline", "kafka-3.9"]:
        with tempfile.TemporaryDirectory(prefix="streams-") as folder:
            laps, complaints = counted(name, Path(folder))
        sys.stdout.write(f"\n{name}\n")
        sys.stdout.writelines(f"{taken:8.1f} s  {step}\n" for step, taken in laps.items())
        sys.stdout.writelines(f"{count:8}    {line[:150]}\n" for line, count in complaints.most_common())


if __name__ == "__main__":
    main(sys.argv[1:])
