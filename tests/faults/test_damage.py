"""F25-F29: bytes that are not what was written: in logs, indexes, checkpoints and identities."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from strandline.local.cluster import LocalCluster
from tests.faults.disks import data
from tests.faults.drill import Drill
from tests.faults.test_deaths import last_said
from tests.faults.test_power import doubts, flip
from tests.integration.support import until

BASE_OFFSET, LENGTH, EPOCH, RECORDS = 7, 11, 15, 70  # of bytes within a batch
TAIL = 500
WARM = 600
SEGMENTS = 600  # small ones, which brokers hold open


@pytest.fixture(scope="module")
def cluster(start) -> LocalCluster:
    return start(3, **{"log.segment.bytes": "16384", "log.index.interval.bytes": "1024"})


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
        broker.kill()
        count = damaged(damage, data(broker), it.topic)
        broker.start()
        it.heal()
        it.resumed()
        intact = last_said(broker.log, "broker_registered")["intact"]
        it.row.remark = f"{count} files; came back {told(intact, doubts(broker))}"
        assert count, f"there is no {damage.files}"


def told(intact: bool, partitions: list[str]) -> str:
    """What a broker says of itself."""
    if not intact:
        return "not intact"
    return f"with {len(partitions)} doubtful replicas" if partitions else "intact"


def test_f25_a_closed_segment_under_its_leader(cluster: LocalCluster, drill: Callable[..., Drill]) -> None:
    """Its broker runs on: a reader comes by, and the replica is made again from the others."""
    controller = cluster.controller()
    victim = next(b for b in sorted(cluster.brokers) if b != controller)
    broker = cluster.brokers[victim]
    with drill("F25", "a flipped byte in a closed segment, broker up", [victim] * 3) as it:
        it.more_files = SEGMENTS
        it.warm(WARM)
        for path in data(broker).glob(FIRST.format(topic=it.topic)):
            flip(path, RECORDS)
        it.resumed()
        it.row.remark = "found by a restart, not by a reader"
        broker.stop()
        broker.start()
        it.heal()


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
        it.row.remark = last[:120]
        assert words in last, last
