"""`strandline add` and `remove`: brokers that join the cluster of `up`, and leave it."""

from pathlib import Path

from strandline.local.cluster import LocalCluster, find
from strandline.local.roster import with_data
from tests.cli.conftest import Shell, free_port, until

QUICK = ("--override", "zookeeper.session.timeout.ms=6000", "--override", "log.retention.hours=7")


def test_a_broker_joins_and_leaves(alone: Shell) -> None:
    directory = alone.directory / "cluster"
    place = ("--dir", directory)
    assert "no cluster in" in alone("add", *place, expect=1).err
    alone.up("--brokers", 2, *QUICK)
    first = find(directory).brokers[1]
    by_hand = first.config.read_text().replace("log.retention.hours=7", "log.retention.hours=8")
    first.config.write_text(by_hand + "broker.rack=a\n")  # of broker 1 alone
    told = alone("add", *place, "--override", "num.partitions=4", "--json").json
    joined = find(directory).brokers[3]
    assert told == {"id": 3, "address": joined.address, "web": joined.page} and joined.page
    assert (joined.port, joined.web_port) == (first.port + 2, (first.web_port or 0) + 2)
    lines = joined.config.read_text().splitlines()
    assert "zookeeper.session.timeout.ms=6000" in lines and "num.partitions=4" in lines
    assert "offsets.topic.replication.factor=2" in lines, "as the others have it"
    assert not [line for line in lines if line.startswith(("broker.rack", "log.retention.hours"))]
    assert [one["node_id"] for one in alone("status", "--json").json["brokers"]] == [1, 2, 3]
    assert "broker 3 already belongs" in alone("add", 3, *place, expect=1).err
    assert f"port {first.port} is in use" in alone("add", *place, "--port", first.port, expect=1).err

    alone("topics", "create", "t", "--partitions", 2, "--replication-factor", 3)
    refused = alone("remove", 3, *place, expect=1).err
    assert (
        "broker 3 still holds 2 replicas (t-0, t-1)" in refused
        and "reassign --generate --without 3" in refused
    )
    assert joined.directory.is_dir() and find(directory).brokers[3].alive
    assert "zookeeper is no broker" in alone("remove", "zookeeper", *place, expect=2).err
    assert "9: the cluster in" in alone("remove", 9, *place, expect=2).err
    alone("pause", 3, *place)
    assert "broker 3 is paused" in alone("remove", 3, *place, "--force", expect=1).err
    alone("resume", 3, *place)
    assert "holds 2 replicas" in alone("remove", 3, *place, expect=1).err
    alone("remove", "broker-3", *place, "--force")
    assert not joined.alive and (directory / "broker-3.removed" / "data").is_dir()
    assert with_data(directory) == [1, 2] == list(find(directory).brokers)


def test_what_cannot_start_leaves_no_trace(alone: Shell) -> None:
    directory = alone.directory / "cluster"
    place = ("--dir", directory)
    alone.up("--brokers", 1, "--no-web", *QUICK)
    assert "no.such" in alone("add", *place, "--override", "no.such=1", expect=1).err
    assert list(find(directory).brokers) == [1] and not (directory / "broker-2").exists()
    assert "broker 1 is the last one" in alone("remove", 1, *place, expect=1).err
    alone("kill", "zookeeper", *place)
    assert "first `strandline start zookeeper" in alone("add", *place, expect=1).err


def test_up_starts_all_that_have_data(alone: Shell) -> None:
    """It started three, whoever belonged to the cluster, and what the others held was under-replicated."""
    directory = alone.directory / "cluster"
    place = ("--dir", directory)
    alone.up("--brokers", 2, "--no-web", *QUICK)
    alone("add", *place)
    alone("remove", 2, *place)
    alone("add", *place)
    assert list(find(directory).brokers) == [1, 3, 4], "no id twice while its number is in use"
    alone("topics", "create", "t", "--replication-factor", 3)
    alone("produce", "t", given="kept\n")
    alone("down", *place)
    assert "--brokers 2 would leave" in alone("up", *place, "--brokers", 2, expect=1).err
    alone.up("--no-web")
    assert list(find(directory).brokers) == [1, 3, 4]
    until(lambda: alone("status", "--json").json["under_replicated"] == 0, "all replicas are in sync")
    assert alone("consume", "t").lines == ["kept"]


def test_ports_follow_ids(tmp_path: Path) -> None:
    first = free_port()
    cluster = LocalCluster(tmp_path, [1, 3], first_port=first, web=True)
    assert [(b.port, b.internal_port, b.web_port) for b in cluster.brokers.values()] == [
        (first, first + 10_000, first + 100),
        (first + 2, first + 10_002, first + 102),
    ]
