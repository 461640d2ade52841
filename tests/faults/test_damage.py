"""F25-F29: bytes that are not what was written: in logs, indexes, checkpoints and identities."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer as StockConsumer
from confluent_kafka import TopicPartition as StockPartition

from strandline.base.types import TopicPartition
from strandline.client.sync import Consumer
from strandline.local.cluster import LocalCluster
from strandline.local.processes import BrokerProcess, machine_is_slower
from strandline.protocol.batches import headers
from strandline.testing.workload import Workload
from tests.faults.disks import data
from tests.faults.drill import WARM_S, Drill
from tests.faults.looks import last_said, told_of
from tests.faults.test_power import come_back, doubts, flip
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
    "{topic}-*/partition.metadata",
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
        for how, do in (("gone", Path.unlink), ("garbage", garbage), ("half", halved))
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
    mended(cluster, drill, damage, found_by_readers)


@pytest.mark.parametrize("damage", [d for d in DAMAGES if d.fault == "F26"], ids=lambda d: d.what)
def test_f26_a_header(cluster: LocalCluster, drill: Callable[..., Drill], damage: Damage) -> None:
    mended(cluster, drill, damage, found_by_readers)


@pytest.mark.parametrize("damage", [d for d in DAMAGES if d.fault == "F27"], ids=lambda d: d.what)
def test_f27_the_end_of_a_log(cluster: LocalCluster, drill: Callable[..., Drill], damage: Damage) -> None:
    mended(cluster, drill, damage)


def test_f27_a_log_is_shorter_than_its_watermark(cluster: LocalCluster, drill: Callable[..., Drill]) -> None:
    """Whole batches are gone, and nothing else. What was written of the watermark knows better."""
    controller = cluster.controller()
    victim = next(b for b in sorted(cluster.brokers) if b != controller)
    broker = cluster.brokers[victim]
    with drill("F27", "the log ends below the high watermark that was written", [victim] * 3) as it:
        it.more_files = SEGMENTS
        it.warm(WARM)
        names = [str(tp) for tp in it.load.partitions]
        file = "replication-offset-checkpoint"
        until(
            lambda: min(checkpointed(broker, file).get(name, 0) for name in names) > 0,
            WARM_S,
            "it is written",
        )
        broker.kill()
        marks = checkpointed(broker, file)
        ends = [cut_before(data(broker) / name, marks[name]) for name in names]
        intact = come_back(it, broker)
        it.row.remark = f"cut at {ends}, below {[marks[name] for name in names]}; came back " + told(
            intact, doubtful(it, broker)
        )
        assert not intact or {*names} <= {*doubtful(it, broker)}, "no log ends there by itself"


def checkpointed(broker: BrokerProcess, checkpoint: str) -> dict[str, int]:
    """The offset of each partition in a checkpoint; none before the broker has written it."""
    path = data(broker) / checkpoint
    lines = path.read_text().splitlines()[2:] if path.exists() else []
    return {f"{topic}-{partition}": int(offset) for topic, partition, offset in map(str.split, lines)}


def cut_before(place: Path, offset: int) -> int:
    """Cut a log before the batch that holds the last record below `offset`; where it ends now."""
    segments = sorted(place.glob("*.log"))
    holder = next(path for path in reversed(segments) if int(path.stem) < offset)
    for path in segments[segments.index(holder) + 1 :]:
        for each in place.glob(f"{path.stem}.*"):
            each.unlink()
    end = int(holder.stem)
    for at, header in headers(holder.read_bytes()):
        if header.next_offset >= offset:
            os.truncate(holder, at)
            break
        end = header.next_offset
    return end


@pytest.mark.parametrize("damage", [d for d in DAMAGES if d.fault == "F28"], ids=lambda d: d.what)
def test_f28_files_beside_a_log(cluster: LocalCluster, drill: Callable[..., Drill], damage: Damage) -> None:
    mended(cluster, drill, damage, looked_up)


@pytest.mark.parametrize("damage", [d for d in DAMAGES if d.fault == "F29"], ids=lambda d: d.what)
def test_f29_checkpoints(cluster: LocalCluster, drill: Callable[..., Drill], damage: Damage) -> None:
    mended(cluster, drill, damage, ids_are_known)


Look = Callable[[Drill, int], str]  # what is made of the one that has come back; a remark


def mended(
    cluster: LocalCluster, drill: Callable[..., Drill], damage: Damage, look: Look | None = None
) -> None:
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
        if look is not None:
            it.row.remark += look(it, victim)


def found_by_readers(it: Drill, victim: int) -> str:
    return f"; {led_and_read(it, victim)} found by their first reader"


def ids_are_known(it: Drill, victim: int) -> str:
    """What topic a log is of is written beside it, here as elsewhere."""
    files = {
        id: {
            path.parent.name: path.read_bytes()
            for path in data(broker).glob(f"{it.topic}-*/partition.metadata")
        }
        for id, broker in it.cluster.brokers.items()
    }
    assert len(files[victim]) == 6 and all(each == files[victim] for each in files.values()), files
    return ""


def looked_up(it: Drill, victim: int) -> str:
    """It leads again, and finds by time what is first in a scan of all."""
    asked = 0
    for load in (it.load, it.stock):
        let_lead(it, load, victim)
        for partition in load.partitions:
            asked += compare_lookups(it.cluster.bootstrap, partition)
    return f"; {asked} lookups by time were right"


def compare_lookups(bootstrap: str, partition: TopicPartition) -> int:
    """Ask for the offset of each time that a record has, and of the moments before and after; how many."""
    with Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([partition])
        end = consumer.end_offsets([partition])[partition]
        times: list[int] = []
        deadline = time.monotonic() + READ_S * machine_is_slower()
        while len(times) < end and time.monotonic() < deadline:
            times += [record.timestamp for record in consumer.poll(300)]
        chosen = sorted({at + near for at in times[:: len(times) // 20 or 1] for near in (-1, 0, 1)})
        for at in chosen:
            first = next((offset for offset, each in enumerate(times) if each >= at), None)
            found = consumer.offsets_for_times({partition: at}).get(partition)
            if first is not None:
                assert found is not None and found.offset == first, f"{partition}: {at}: {found}, not {first}"
        return len(chosen)


def first_are_closed(broker: BrokerProcess, topic: str) -> bool:
    """Whether each partition of the drill's topics has a segment that a start need not read: the recovery
    point is past it.
    """
    flushed = checkpointed(broker, "recovery-point-offset-checkpoint")
    second = {place.name: sorted(place.glob("*.log"))[1:2] for place in data(broker).glob(f"{topic}-*")}
    return all(at and flushed.get(name, 0) >= int(at[0].stem) for name, at in second.items())


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


def read_what_was_written(it: Drill, load: Workload, victim: int) -> None:
    """Let it lead these partitions, and read what was acknowledged in them; that must be what comes."""
    written = {(send.partition, send.offset): send.value for send in load.history.acknowledgements}
    let_lead(it, load, victim)
    found = read_by_librdkafka(it.cluster.bootstrap, load.partitions, set(written))
    wrong = sorted(place for place in written if found[place] != written[place])
    assert not wrong, f"what nobody had written was read at {wrong[:3]}"


def let_lead(it: Drill, load: Workload, broker: int) -> None:
    """Its preferred leader leads these partitions again."""
    admin = it.view.admin
    admin.elect_leaders(partitions=load.partitions)

    def leads() -> bool:
        (described,) = admin.describe_topics([load.partitions[0].topic])
        return {one.leader for one in described.partitions} == {broker}

    until(leads, 30, "the damaged replica leads")


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
