"""F25-F29: bytes that are not what was written: in logs, indexes, checkpoints and identities."""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer as StockConsumer
from confluent_kafka import TopicPartition as StockPartition

from strandline.base.types import TopicPartition
from strandline.local.cluster import LocalCluster
from strandline.local.processes import BrokerProcess, machine_is_slower
from strandline.testing.workload import Workload
from tests.faults.disks import data
from tests.faults.drill import WARM_S, Drill
from tests.faults.test_deaths import last_said
from tests.faults.test_power import doubts, flip
from tests.integration.support import until

BASE_OFFSET, LENGTH, EPOCH, RECORDS = 7, 11, 15, 70  # of bytes within a batch
TAIL = 500
WARM = 600
SEGMENTS = 600  # small ones, which brokers hold open
READ_S = 30.0


@pytest.fixture(scope="module")
def cluster(start) -> LocalCluster:
    """Small segments, of which only the newest records are in memory."""
    return start(
        3,
        **{
            "log.segment.bytes": "16384",
            "log.index.interval.bytes": "1024",
            "strandline.log.tail.cache.bytes": "4096",
        },
    )


class Damage(NamedTuple):
    """What is done to the files of one replica, of those that match."""

    fault: str
    what: str
    files: str  # below the log directory; {topic} is the drill's
    do: Callable[[Path], None]


def flipped(position: int) -> Callable[[Path], None]:
    return lambda path: flip(path, position) if path.stat().st_size > position else None


def garbage(path: Path) -> None:
    path.write_bytes(bytes(range(256)) * 2)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def halved(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def appended(tail: bytes) -> Callable[[Path], None]:
    def do(path: Path) -> None:
        with path.open("ab") as file:
            file.write(tail)

    return do


def torn(path: Path) -> None:
    os.truncate(path, max(0, path.stat().st_size - 7))


FIRST = "{topic}-*/00000000000000000000.log"
LAST = "{topic}-*/*.log"  # the last of each partition (damaged())
CHECKPOINTS = (
    "replication-offset-checkpoint",
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "{topic}-*/leader-epoch-checkpoint",
)
DAMAGES = [
    Damage("F25", "a flipped byte in a closed segment, broker down", FIRST, flipped(RECORDS)),
    Damage("F26", "a flipped byte in a base offset", FIRST, flipped(BASE_OFFSET)),
    Damage("F26", "a flipped byte in a length", FIRST, flipped(LENGTH)),
    Damage("F26", "a flipped byte in an epoch", FIRST, flipped(EPOCH)),
    Damage("F27", "the last batch is torn", LAST, torn),
    Damage("F27", "garbage behind the last batch", LAST, appended(os.urandom(TAIL))),
    Damage("F27", "zeroes behind the last batch", LAST, appended(bytes(TAIL))),
    *(
        Damage("F28", f"every {kind} is {how}", f"{{topic}}-*/*.{kind}", do)
        for kind in ("index", "timeindex", "snapshot")
        for how, do in (("gone", Path.unlink), ("garbage", garbage))
    ),
    *(
        Damage("F29", f"{name.rpartition('/')[2]} is {how}", name, do)
        for name in CHECKPOINTS
        for how, do in (("empty", empty), ("garbage", garbage), ("half", halved))
    ),
]


def damaged(damage: Damage, place: Path, topic: str) -> int:
    """Do it; to how many files."""
    files = sorted(place.glob(damage.files.format(topic=topic)))
    if damage.files == LAST:
        files = [*{path.parent: path for path in files}.values()]
    for path in files:
        damage.do(path)
    return len(files)


@pytest.mark.parametrize("damage", [d for d in DAMAGES if d.fault == "F25"], ids=lambda d: d.what)
def test_f25_a_closed_segment(cluster: LocalCluster, drill: Callable[..., Drill], damage: Damage) -> None:
    mended(cluster, drill, damage)


@pytest.mark.parametrize("damage", [d for d in DAMAGES if d.fault == "F26"], ids=lambda d: d.what)
def test_f26_a_header(cluster: LocalCluster, drill: Callable[..., Drill], damage: Damage) -> None:
    mended(cluster, drill, damage)


@pytest.mark.parametrize("damage", [d for d in DAMAGES if d.fault == "F27"], ids=lambda d: d.what)
def test_f27_the_end_of_a_log(cluster: LocalCluster, drill: Callable[..., Drill], damage: Damage) -> None:
    mended(cluster, drill, damage)


@pytest.mark.parametrize("damage", [d for d in DAMAGES if d.fault == "F28"], ids=lambda d: d.what)
def test_f28_files_beside_a_log(cluster: LocalCluster, drill: Callable[..., Drill], damage: Damage) -> None:
    mended(cluster, drill, damage)


@pytest.mark.parametrize("damage", [d for d in DAMAGES if d.fault == "F29"], ids=lambda d: d.what)
def test_f29_checkpoints(cluster: LocalCluster, drill: Callable[..., Drill], damage: Damage) -> None:
    mended(cluster, drill, damage)


def mended(cluster: LocalCluster, drill: Callable[..., Drill], damage: Damage) -> None:
    """A leader dies, is damaged, comes back; at the end all replicas are alike, and nothing is lost."""
    controller = cluster.controller()
    victim = next(b for b in sorted(cluster.brokers) if b != controller)
    broker = cluster.brokers[victim]
    with drill(damage.fault, damage.what, [victim] * 3) as it:
        it.more_files = SEGMENTS
        it.warm(WARM)
        if damage.files == FIRST:
            until(lambda: first_are_closed(broker, it.topic), WARM_S, "each partition has a closed segment")
        broker.kill()
        count = damaged(damage, data(broker), it.topic)
        broker.start()
        it.heal()
        it.resumed()
        intact = last_said(broker.log, "broker_registered")["intact"]
        it.row.remark = f"{count} files; came back {told(intact, doubtful(it, broker))}"
        assert count, f"there is no {damage.files}"
        if damage.fault in ("F25", "F26"):
            it.row.remark += f"; {led_and_read(it, victim)} found by their first reader"


def first_are_closed(broker: BrokerProcess, topic: str) -> bool:
    """Whether each partition of the drill's topics has more than one segment."""
    return all(len([*place.glob("*.log")]) > 1 for place in data(broker).glob(f"{topic}-*"))


def doubtful(it: Drill, broker: BrokerProcess) -> list[str]:
    """Which of the drill's replicas have lost something."""
    return [name for name in doubts(broker) if name.startswith(f"{it.topic}-")]


def led_and_read(it: Drill, victim: int) -> int:
    """A start does not read what it knows to be on the medium. So the replica leads again, and all is read,
    by librdkafka, which does not look at checksums unless told to. What was wrong must be found by then, in
    all six partitions, and nobody be given it. In how many it was found only now; another start mends these.
    """
    broker = it.cluster.brokers[victim]
    mended = set(doubtful(it, broker))
    said_before = broker.log.stat().st_size
    for load in (it.load, it.stock):
        read_what_was_written(it, load, victim)
    found = {each["partition"] for each in told_of(broker, "log_corrupt", said_before)}
    assert mended | found == {str(tp) for load in (it.load, it.stock) for tp in load.partitions}, (
        f"found by the start: {mended}, by readers: {found}"
    )
    if found:
        it.view.wait_led_without(victim)
        it.resumed()
        broker.stop()
        broker.start()
        it.heal()
    return len(found)


def told_of(broker: BrokerProcess, event: str, since: int) -> list[dict[str, Any]]:
    """The lines of a broker's log that tell of this event, from a position of the file on."""
    lines = broker.log.read_bytes()[since:].decode().splitlines()
    return [told for line in lines if f'"{event}"' in line and (told := json.loads(line))["event"] == event]


def read_what_was_written(it: Drill, load: Workload, victim: int) -> None:
    """Let it lead these partitions, and read what was acknowledged in them; that must be what comes."""
    written = {(send.partition, send.offset): send.value for send in load.history.acknowledgements}
    admin = it.view.admin
    admin.elect_leaders(partitions=load.partitions)

    def leads() -> bool:
        (described,) = admin.describe_topics([load.partitions[0].topic])
        return {one.leader for one in described.partitions} == {victim}

    until(leads, 30, "the damaged replica leads")
    found = read_by_librdkafka(it.cluster.bootstrap, load.partitions, set(written))
    wrong = sorted(place for place in written if found[place] != written[place])
    assert not wrong, f"what nobody had written was read at {wrong[:3]}"


def told(intact: bool, partitions: list[str]) -> str:
    """What a broker says of itself."""
    if not intact:
        return "not intact"
    return f"with {len(partitions)} doubtful replicas" if partitions else "intact"


def test_f25_a_closed_segment_under_its_leader(cluster: LocalCluster, drill: Callable[..., Drill]) -> None:
    """Its broker runs on. The first reader finds it: another replica leads, and a start mends this one."""
    controller = cluster.controller()
    victim = next(b for b in sorted(cluster.brokers) if b != controller)
    broker = cluster.brokers[victim]
    with drill("F25", "a flipped byte in a closed segment, broker up", [victim] * 3) as it:
        it.more_files = SEGMENTS
        it.warm(WARM)
        until(lambda: first_are_closed(broker, it.topic), WARM_S, "each partition has a closed segment")
        for path in data(broker).glob(FIRST.format(topic=it.topic)):
            flip(path, RECORDS)
        assert led_and_read(it, victim) == 6, "no start has looked"
        it.row.remark = "found by the first reader, who got the records from others"


def read_by_librdkafka(
    bootstrap: str, partitions: list[TopicPartition], wanted: set[tuple[TopicPartition, int]]
) -> dict[tuple[TopicPartition, int], int]:
    """The numbers at these places, and what else came by; whoever reads is told of no error."""
    consumer = StockConsumer({"bootstrap.servers": bootstrap, "group.id": "damage"})
    consumer.assign([StockPartition(*each, 0) for each in partitions])
    found: dict[tuple[TopicPartition, int], int] = {}
    ends = time.monotonic() + READ_S * machine_is_slower()
    try:
        while wanted - set(found):
            assert time.monotonic() < ends, f"{len(wanted - set(found))} of {len(wanted)} were not read"
            for message in consumer.consume(500, 1.0):
                assert message.error() is None, message.error()
                place = TopicPartition(message.topic(), message.partition()), message.offset()
                found[place] = int.from_bytes(message.value()[:8], "big")
    finally:
        consumer.close()
    return found


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("version=0\nbroker.id=7\ncluster.id=x\n", "7"),
        ("nonsense", "meta.properties"),
    ],
    ids=["another broker's", "garbage"],
)
def test_f29_an_identity(cluster: LocalCluster, drill: Callable[..., Drill], text: str, words: str) -> None:
    """A wrong identity is no matter of recovery: the start is refused, in a sentence that names it."""
    controller = cluster.controller()
    victim = next(b for b in sorted(cluster.brokers) if b != controller)
    broker = cluster.brokers[victim]
    with drill("F29", f"meta.properties is {text.splitlines()[0]!r}", [victim] * 3) as it:
        it.more_files = SEGMENTS
        it.warm()
        broker.kill()
        identity = data(broker) / "meta.properties"
        kept = identity.read_bytes()
        identity.write_text(text)
        broker.start()
        until(lambda: not broker.alive, 60, "it has ended", every_s=0.1)
        it.resumed()
        last = broker.log.read_text(errors="replace").strip().splitlines()[-1]
        identity.write_bytes(kept)
        it.row.remark = last.replace(str(broker.directory.parent), "…")[:120]
        assert words in last, last
