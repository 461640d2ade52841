"""The same requests to Strandline and to Apache Kafka 3.9: the answers differ only where a list says so.

Each is one broker with a ZooKeeper of its own kind: the same process, other chroots. What is asked stands in
`cases/`, what may differ, and why, in `differences.txt`; docs/differences.md is made of that.
"""

import os
import time
from collections.abc import Iterator

import pytest
from kafka_peer import ONE_BROKER, KafkaBroker
from kazoo.client import KazooClient

from strandline.local.cluster import LocalCluster
from strandline.testing.nursery import forked
from tests.conformance.differential.known import LIST, KnownDifferences, told
from tests.conformance.differential.notation import Block, blocks
from tests.conformance.differential.running import Pair
from tests.conformance.differential.sides import Side, served_by_both

COMPARED_MIN = 3000
SHOWN_MAX = 60
BLOCKS = blocks()
SETTINGS = {
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
    "zookeeper.session.timeout.ms": "6000",
    "log.retention.ms": "-1",
    "num.partitions": "2",
}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory, zookeeper: str) -> Iterator[Pair]:
    """Both brokers, ready."""
    folder = tmp_path_factory.mktemp("differential")
    client = KazooClient(zookeeper)
    client.start(10)
    for chroot in ("/differential-ours", "/differential-theirs"):
        client.ensure_path(chroot)
    client.stop()
    client.close()
    ours = forked(
        LocalCluster(folder / "ours", 1, settings=SETTINGS, zookeeper=f"{zookeeper}/differential-ours")
    )
    theirs_at = folder / "theirs"
    theirs_at.mkdir()
    theirs = KafkaBroker(
        theirs_at, [theirs_at / "data"], f"{zookeeper}/differential-theirs", {**ONE_BROKER, **SETTINGS}
    )
    try:
        ours.start()
        theirs.start()
        sides = Side("Strandline", ours.brokers[1].port), Side("Kafka", theirs.port)
        for side in sides:
            side.make_ready()
        yield Pair(*sides, served_by_both(*sides))
        for side in sides:
            side.close()
        assert ours.brokers[1].alive, "our broker has ended"
    finally:
        theirs.kill()
        ours.kill()


@pytest.fixture(scope="module")
def known() -> KnownDifferences:
    """The list, read once: it counts what is met."""
    return KnownDifferences(LIST.read_text())


@pytest.mark.parametrize("number", range(len(BLOCKS)), ids=lambda number: BLOCKS[number].id)
def test_answers_differ_only_where_it_is_listed(pair: Pair, known: KnownDifferences, number: int) -> None:
    block: Block = BLOCKS[number]
    began = time.monotonic()
    found = list(known.unlisted(pair.run(block, number)))
    pair.done.add(number)
    lines = list(told(found))
    if lines:
        count = f"{len(lines)} differences in {time.monotonic() - began:.1f} s"
        pytest.fail("\n".join(["", *lines[:SHOWN_MAX], count]), pytrace=False)


@pytest.fixture
def whole(pair: Pair) -> Pair:
    """For what can be said only after all of the cases."""
    if len(pair.done) < len(BLOCKS):
        assert not os.environ.get("CI"), "some cases did not run"
        pytest.skip("only some of the cases were run")
    return pair


def test_every_listed_difference_is_met(whole: Pair, known: KnownDifferences) -> None:
    assert known.gone() == [], "the brokers no longer differ there: strike these lines"


def test_every_request_is_compared_in_every_version(whole: Pair) -> None:
    missing = {
        f"{api.name.lower()} v{version}"
        for api, versions in whole.versions.items()
        for version in versions
        if version not in whole.asked.get(api, ())
    }
    assert missing == set()
    assert whole.compared >= COMPARED_MIN
