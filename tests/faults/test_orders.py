"""F33-F38: what operators order - restarts, moves, deletions, elections - while things break."""

import itertools
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from strandline.base.types import NO_LEADER, TopicPartition
from strandline.client.admin.admin import NewTopic
from strandline.client.sync import Admin, Consumer
from strandline.local.cluster import LocalCluster
from strandline.local.processes import machine_is_slower
from strandline.protocol.errors import ApiError, TopicAlreadyExists
from strandline.protocol.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from strandline.testing.namespaces import Field
from tests.faults.drill import Drill
from tests.faults.looks import last_said, read, send, states
from tests.faults.table import Row
from tests.integration.support import View, Wire, incarnation, revive, strandline, until

RESTARTS = 10
GAP_S = 1.0
FROM, TO = [1, 2, 3], [3, 4, 5]
TROUBLES = ["none", "leader killed", "controller killed", "link cut", "rolling restart"]


@pytest.fixture(scope="module")
def cluster(start) -> LocalCluster:
    return start(5)


@pytest.fixture(autouse=True)
def whole(cluster: LocalCluster, field: Field) -> Iterator[None]:
    """All brokers run and reach each other before and after each story."""
    yield
    field.heal()
    revive(cluster)


def bystanders(cluster: LocalCluster) -> list[int]:
    controller = cluster.controller()
    return [b for b in sorted(cluster.brokers) if b != controller]


def restart(cluster: LocalCluster, id: int) -> None:
    broker = cluster.brokers[id]
    broker.stop()
    assert broker.child is not None and broker.child.returncode == 0
    assert (broker.directory / "data" / ".kafka_cleanshutdown").exists()
    broker.start()
    cluster.wait_ready()
    assert last_said(broker.log, "broker_registered")["intact"], "its marker was good"


def test_f33_rolling_restarts(cluster: LocalCluster, drill: Callable[..., Drill]) -> None:
    with drill("F33", f"{RESTARTS} controlled shutdowns in a row", FROM * 2) as it:
        it.warm()
        for id in itertools.islice(itertools.cycle(sorted(cluster.brokers)), RESTARTS):
            restart(cluster, id)
            it.view.wait_full_isr(60)
        gap_s = it.gap_s()
        assert gap_s < GAP_S * max(2.0, machine_is_slower()), f"longest gap {gap_s:.2f} s"


def reassign(cluster: LocalCluster, topic: str, partitions: int, replicas: list[int] | None) -> list[int]:
    """Ask the controller, whoever that is by now; the error code of each partition."""
    request = AlterPartitionReassignmentsRequest(
        topics=[
            ReassignableTopic(
                name=topic,
                partitions=[
                    ReassignablePartition(partition_index=p, replicas=replicas) for p in range(partitions)
                ],
            )
        ]
    )

    def answer() -> Any:
        try:
            controller = cluster.brokers[cluster.controller()]
            with Wire(controller.port, 30, host=controller.host) as wire:
                answer = wire.ask(request, 0)
        except (OSError, KeyError, ApiError):
            return None
        return answer if answer.error_code == 0 else None

    found = until(answer, 30, "the controller takes the order")
    return [one.error_code for one in found.responses[0].partitions]


def held_by(view: View) -> list[list[int]]:
    return [sorted(p.replicas) for p in view.partitions()]


@pytest.mark.parametrize("trouble", TROUBLES)
def test_f34_partitions_move_meanwhile(
    cluster: LocalCluster, drill: Callable[..., Drill], trouble: str, request: pytest.FixtureRequest
) -> None:
    field = request.getfixturevalue("links") if trouble == "link cut" else None
    with drill("F34", f"partitions move from {FROM} to {TO}: {trouble}", [1, 2, 3]) as it:
        move(cluster, it.topic, 3, FROM)  # the stage has them on all five: now on three
        until(lambda: held_by(it.view) == [FROM] * 3, 60, "three replicas each")
        it.warm(600)
        assert reassign(cluster, it.topic, 3, TO) == [0, 0, 0]
        make(cluster, trouble, it, field)
        until(lambda: held_by(it.view) == [TO] * 3, 90, "the move has ended")
        it.heal()
        until(lambda: set(it.view.leaders() or [NO_LEADER]) <= set(TO), 30, "those lead who have it now")
        it.row.remark = wait_moved_out(cluster, it.topic, (1, 2))
        it.replicas = TO


def wait_moved_out(cluster: LocalCluster, topic: str, brokers: tuple[int, ...]) -> str:
    """Wait until nothing of the topic is there; what a broker held while it was away may be a stray."""
    data = [cluster.brokers[id].directory / "data" for id in brokers]

    def found() -> list[Path]:
        return [place for each in data for place in each.glob(f"{topic}-[0-9]*")]

    until(lambda: all(place.name.endswith("-stray") for place in found()), 90, f"{topic} has left {brokers}")
    strays = found()
    for place in strays:
        shutil.rmtree(place)
    return f"{len(strays)} strays" if strays else ""


def move(cluster: LocalCluster, topic: str, partitions: int, replicas: list[int]) -> None:
    assert reassign(cluster, topic, partitions, replicas) == [0] * partitions


def make(cluster: LocalCluster, trouble: str, it: Drill, field: Any) -> None:
    """What goes wrong during a move."""
    if trouble == "leader killed":
        victim = it.view.leaders()[0]
        cluster.brokers[victim].kill()
        it.resumed()
        cluster.brokers[victim].start()
    elif trouble == "controller killed":
        victim = cluster.controller()
        cluster.brokers[victim].kill()
        it.resumed()
        cluster.brokers[victim].start()
    elif trouble == "link cut":
        leader = it.view.leaders()[0]
        field.nodes[4].cut(*(cluster.brokers[b].host for b in {1, 2, leader} - {4}))
        time.sleep(3)
        field.heal()
    elif trouble == "rolling restart":
        for id in (2, 4):
            restart(cluster, id)


def test_f34_a_move_is_taken_back(cluster: LocalCluster, drill: Callable[..., Drill]) -> None:
    with drill("F34", "a move is cancelled while its target is dead", [1, 2, 3]) as it:
        move(cluster, it.topic, 3, FROM)
        until(lambda: held_by(it.view) == [FROM] * 3, 60, "three replicas each")
        it.warm()
        if cluster.controller() == 5:
            restart(cluster, 5)
        cluster.brokers[5].pause()  # who is known to be dead would be refused
        assert reassign(cluster, it.topic, 3, TO) == [0, 0, 0]
        cluster.brokers[5].kill()
        until(lambda: all(set(TO) <= set(held) for held in held_by(it.view)), 30, "the move has begun")
        until(lambda: set(reassign(cluster, it.topic, 3, None)) <= {0, 85}, 30, "the move is taken back")
        until(lambda: held_by(it.view) == [FROM] * 3, 60, "all is as before")
        cluster.brokers[5].start()
        it.heal()
        it.row.remark = wait_moved_out(cluster, it.topic, (4, 5))
        it.replicas = FROM


def test_f35_a_topic_is_deleted_and_made_again_while_a_replica_is_dead(
    cluster: LocalCluster, table: Any
) -> None:
    row = Row("F35", "topic deleted and made again, then a dead replica returns")
    table.rows.append(row)
    dead = bystanders(cluster)[0]
    living = [b for b in sorted(cluster.brokers) if b != dead]
    first = [dead, *living[:2]]
    with View(cluster, "again") as view:
        names = ("again", "waits")
        view.admin.create_topics([NewTopic(name, assignments={0: first}) for name in names])
        view.wait_full_isr()
        send(cluster, "again", [b"old %d" % n for n in range(100)])
        cluster.brokers[dead].kill()
        view.wait_led_without(dead)
        with suppress(ApiError):  # it waits for the dead
            view.admin.delete_topics(["waits"], timeout_ms=2000)
        with pytest.raises(TopicAlreadyExists):
            view.admin.create_topics([NewTopic("waits", assignments={0: living[:3]})], timeout_ms=3000)
        assert reassign(cluster, "again", 1, living[:3]) == [0]
        until(lambda: held_by(view) == [sorted(living[:3])], 60, "nothing of it is on the dead any more")
        view.admin.delete_topics(["again"])
        new = NewTopic("again", assignments={0: living[:3]})  # nobody else is registered for sure
        until(lambda: was_created(view.admin, new), 30, "the name is free")
        until(lambda: view.leaders() and view.leaders()[0] >= 0, 30, "it is led")
        send(cluster, "again", [b"new %d" % n for n in range(50)])
        cluster.brokers[dead].start()
        cluster.wait_ready()
        assert reassign(cluster, "again", 1, [*first[1:], dead]) == [0]
        until(lambda: held_by(view) == [sorted(first)], 60, "the new topic moves to who had the old one")
        view.wait_full_isr(60)
        assert read(cluster, "again") == [b"new %d" % n for n in range(50)], (
            "nothing of the old topic is served"
        )
        until(lambda: copies(cluster, "again", first) == 1, 20, "the replicas are alike")
        stray = list((cluster.brokers[dead].directory / "data").glob("again-0.*-stray"))
        assert len(stray) == 1, "what it held is set aside"
        row.acknowledged, row.diverged = 150, "no"
        row.remark = f"kept as {stray[0].name}"
        view.admin.delete_topics(["again"])
        for broker in cluster.brokers.values():
            for place in (broker.directory / "data").glob("again-*-stray"):
                shutil.rmtree(place)
            for name in names:
                until(
                    lambda b=broker, n=name: not list((b.directory / "data").glob(f"{n}-*")),
                    90,
                    "all is gone",
                )
        row.passed = True


def was_created(admin: Admin, new: NewTopic) -> bool:
    try:
        admin.create_topics([new], timeout_ms=3000)
    except TopicAlreadyExists:
        return False
    return True


def copies(cluster: LocalCluster, topic: str, brokers: list[int]) -> int:
    """How many different contents there are."""
    places = [cluster.brokers[id].directory / "data" / f"{topic}-0" for id in brokers]
    return len({b"".join(s.read_bytes() for s in sorted(place.glob("*.log"))) for place in places})


class Seen:
    """What a reader has been handed."""

    def __init__(self, reader: Consumer) -> None:
        self._reader = reader
        self.values: list[bytes | None] = []

    def more(self) -> list[bytes | None]:
        self.values += [record.value for record in self._reader.poll(200)]
        return self.values


def test_f36_an_unclean_election(cluster: LocalCluster, table: Any) -> None:
    row = Row("F36", "unclean election, the ISR is dead")
    table.rows.append(row)
    short, long = bystanders(cluster)[:2]
    where = TopicPartition("unclean", 0)
    with View(cluster, "unclean") as view:
        config = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
        view.admin.create_topics([NewTopic("unclean", assignments={0: [long, short]}, configs=config)])
        view.wait_full_isr()
        send(cluster, "unclean", [b"both %d" % n for n in range(50)])
        cluster.brokers[short].kill()
        until(lambda: list(view.partitions()[0].isr) == [long], 30, "alone")
        send(cluster, "unclean", [b"lost %d" % n for n in range(30)])
        with Consumer(cluster.bootstrap, auto_offset_reset="earliest") as reader:
            reader.assign([where])
            seen = Seen(reader)
            until(lambda: len(seen.more()) == 80, 30, "it has read all that will be lost")
            cluster.brokers[long].kill()
            cluster.brokers[short].start()
            until(lambda: view.leaders() == [short], 60, "the one that is left leads")
            send(cluster, "unclean", [b"kept %d" % n for n in range(20)])
            cluster.brokers[long].start()
            cluster.wait_ready()
            view.wait_full_isr(60)
            until(lambda: len(seen.more()) >= 100, 30, "who had read further is told, and goes back")
            assert seen.values[80:] == [b"kept %d" % n for n in range(20)]
        until(lambda: copies(cluster, "unclean", [short, long]) == 1, 30, "the logs converge")
        wanted = [b"both %d" % n for n in range(50)] + [b"kept %d" % n for n in range(20)]
        assert read(cluster, "unclean") == wanted
        assert any(b"potential_data_loss" in b.log.read_bytes() for b in cluster.brokers.values())
        told = strandline("lost", "unclean-0", "-b", cluster.bootstrap, "--json", within_s=60)
        (removal,) = json.loads(told.stdout)
        assert (removal["cause"], removal["from_offset"], removal["end_offset"]) == ("truncation", 50, 80)
        row.acknowledged, row.lost, row.diverged, row.passed = 100, 30, "no", True
        row.remark = "30 lost, as it was asked for; reported, in the ledger, and to who had read them"
        view.admin.delete_topics(["unclean"])


def test_f37_two_brokers_with_one_id_and_two_clusters_on_one_path(
    cluster: LocalCluster, table: Any, tmp_path: Path
) -> None:
    row = Row("F37", "two brokers with one id; another cluster's directory")
    table.rows.append(row)
    twin = cluster.brokers[1]
    before = incarnation(twin)
    for id, wrong, words in (
        (1, None, "broker.id 1 is registered by another running broker"),
        (9, "cluster.id=SomebodyElse0000000000\nbroker.id=9\nversion=0\n", "has cluster.id=SomebodyElse"),
    ):
        place = tmp_path / f"twin-{id}"
        (place / "data").mkdir(parents=True)
        if wrong is not None:
            (place / "data" / "meta.properties").write_text(wrong)
        text = twin.config.read_text().replace(str(twin.directory / "data"), str(place / "data"))
        text = text.replace("broker.id=1", f"broker.id={id}").replace(f":{twin.port}", f":{twin.port + 1}")
        text = text.replace(f":{twin.internal_port}", f":{twin.internal_port + 1}")
        (place / "server.properties").write_text(text)
        ended = twin_ends(twin.within, place / "server.properties")
        said = [line for line in ended[1].splitlines() if not line.startswith("{")]
        assert ended[0] == 1, ended
        assert said and words in said[-1], said
    assert twin.alive and incarnation(twin) == before, "the first one has noticed nothing"
    assert sorted(b for b in cluster.brokers if cluster.brokers[b].alive) == [1, 2, 3, 4, 5]
    row.passed, row.remark = True, "both refused to start"


def twin_ends(within: tuple[str, ...], config: Path) -> tuple[int, str]:
    line = [*within, sys.executable, "-m", "strandline.cli.main", "broker", "--config", str(config)]
    ended = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)
    return ended.returncode, ended.stderr


@pytest.mark.parametrize("long_s", [0.15, 0.6], ids=["shorter-than-the-patience", "longer"])
def test_f38_the_controllers_connections_are_reset(
    cluster: LocalCluster, drill: Callable[..., Drill], links: Any, long_s: float
) -> None:
    controller = cluster.controller()
    single = create_single(cluster, bystanders(cluster)[0])
    with drill(
        "F38", f"RST for all of the controller's connections, 10 times {long_s:g} s", bystanders(cluster)[:3]
    ) as it:
        it.warm()
        rest = [b.host for b in cluster.brokers.values() if b.id != controller]
        moved = 0
        for _ in range(10):
            before = it.view.leaders()
            links.nodes[controller].cut(*rest, reset=True)
            time.sleep(long_s)
            links.heal()
            time.sleep(0.4)
            moved += before != it.view.leaders()
        it.resumed()
        assert led_by(cluster, single) == (bystanders_of(single), 0), "the only replica is not touched"
        it.row.remark = f"{moved} needless moves seen; controller {controller} -> {cluster.controller()}"


def create_single(cluster: LocalCluster, broker: int) -> str:
    name = f"single-{broker}"
    with View(cluster, name) as view:
        with_one = NewTopic(name, assignments={0: [broker]}, configs={"min.insync.replicas": "1"})
        until(lambda: was_created(view.admin, with_one) or view.leaders() == [broker], 20, "it is there")
        until(lambda: view.leaders() == [broker], 20, "it is led")
    return name


def bystanders_of(single: str) -> int:
    return int(single.rsplit("-", 1)[1])


def led_by(cluster: LocalCluster, topic: str) -> tuple[int, int]:
    """Leader and epoch, as ZooKeeper has them."""
    ((leader, epoch, _),) = states(cluster, topic)
    return leader, epoch
