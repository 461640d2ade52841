"""`strandline topics move-replicas`: to another log directory of the broker, and what is refused."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from strandline.base.types import TopicPartition
from strandline.cli import replica_moves
from strandline.cli.console import Failure
from strandline.client.admin.admin import NewTopic
from strandline.client.sync import Admin, Producer
from strandline.local.cluster import LocalCluster
from strandline.testing.nursery import forked
from tests.cli.conftest import Shell, until
from tests.cli.test_completion import completed
from tests.command_line import command_line

COUNT = 300


@pytest.fixture(scope="module")
def shell(zookeeper: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """The command, and two brokers with two log directories each."""
    place = tmp_path_factory.mktemp("moves")
    cluster = forked(LocalCluster(place, 2, zookeeper=f"{zookeeper}/{place.name}"))
    for id, broker in cluster.brokers.items():
        broker.settings["log.dirs"] = ",".join(dirs(place, id))
    with cluster:
        with Admin(cluster.bootstrap) as admin:
            admin.create_topics([NewTopic("orders", assignments={0: [1], 1: [1], 2: [2]})])
            admin.create_topics([NewTopic("elsewhere", assignments={0: [2]})])
        with Producer(cluster.bootstrap) as producer:
            for number in range(COUNT):
                producer.send("orders", b"%d" % number, partition=number % 3)
            producer.flush()
        yield Shell(place, command_line(), bootstrap=cluster.bootstrap)


def dirs(place: Path, broker: int) -> list[str]:
    return [str(place / f"broker-{broker}" / name) for name in ("data", "more")]


def where(shell: Shell, broker: int) -> dict[int, str]:
    """The directory of each replica of `orders`."""
    with Admin(shell.bootstrap) as admin:
        return {
            one.partition.partition: each.path
            for each in admin.describe_log_dirs([broker])[broker]
            for one in each.replicas
            if one.partition.topic == "orders" and not one.is_future
        }


def test_replicas_move_to_another_directory_of_their_broker(shell: Shell) -> None:
    move = ("topics", "move-replicas", "orders", "--broker", 1, "--to")
    data, more = dirs(shell.directory, 1)
    before = where(shell, 1)
    assert sorted(before) == [0, 1] and set(before.values()) == {data, more}
    done = shell(*move, more, "--wait", "--json")
    assert done.json == [
        {"topic": "orders", "partition": number, "from": before[number], "to": more, "is": "there"}
        for number in (0, 1)
    ]
    assert where(shell, 1) == {0: more, 1: more}
    table = shell(*move, data, "--partition", 0).lines
    assert table[0].split() == ["topic", "partition", "from", "to", "is"]
    assert table[1].split()[:4] == ["orders", "0", more, data] and len(table) == 2
    until(lambda: where(shell, 1) == {0: data, 1: more}, "the replica is there")
    assert len(shell("consume", "orders").lines) == COUNT


LACKS = "broker 1 has no replica of"


@pytest.mark.parametrize(
    "words, status, why",
    [
        ("orders --broker 1 --to /no", 1, "broker 1 has no log directory /no: it has {data}, {more}"),
        ("orders --broker 9 --to {data}", 1, "no broker 9 is running: the cluster has 1, 2"),
        ("orders --broker 1 --to {data} --partition 7", 1, f"{LACKS} orders 7: it has 0, 1"),
        ("orders --broker 1 --to {data} --partition 0 --partition 2", 1, f"{LACKS} orders 2: it has 0, 1"),
        ("elsewhere --broker 1 --to {data}", 1, f"{LACKS} elsewhere"),
        ("nope --broker 1 --to {data}", 1, "nope"),
        ("orders --broker 1", 2, "--to"),
        ("orders --to {data}", 2, "--broker"),
        ("orders --broker 1 --to {data} --partition -1", 2, "--partition"),
    ],
)
def test_what_cannot_be_moved_is_said(shell: Shell, words: str, status: int, why: str) -> None:
    data, more = dirs(shell.directory, 1)
    asked = [word.format(data=data) for word in words.split()]
    before = where(shell, 1)
    assert why.format(data=data, more=more) in shell("topics", "move-replicas", *asked, expect=status).err
    assert where(shell, 1) == before


def test_directories_are_completed(shell: Shell) -> None:
    line = "strandline topics move-replicas orders --broker 2 --to "
    assert completed(shell, line + str(shell.directory)) == dirs(shell.directory, 2)


def test_a_move_that_was_given_up_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker forgets it when a disk fails, and says why in its log."""
    monkeypatch.setattr(replica_moves, "AGAIN_S", 0.0)
    partition = TopicPartition("orders", 0)
    there = SimpleNamespace(partition=partition, is_future=False)
    told = [SimpleNamespace(path="/a", replicas=(there,)), SimpleNamespace(path="/b", replicas=())]
    admin = cast(Any, SimpleNamespace(describe_log_dirs=lambda brokers: {1: told}))
    with pytest.raises(Failure, match="not moved: orders-0; the log of broker 1 says why"):
        replica_moves._watch(admin, 1, "/b", [partition])
