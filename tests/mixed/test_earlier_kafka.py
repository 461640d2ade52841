"""Brokers of Kafka 2.8 to 3.8 beside ours, as their own way up to 3.9 allows: nothing is lost."""

import json
import os
from pathlib import Path

import pytest

from bench.jars import JarsMissing, fetched
from strandline.client.admin.descriptions import NewTopic
from strandline.client.sync import Admin
from strandline.testing.verify import State, load, run
from strandline.testing.verify.places.kafka import KafkaPlace
from strandline.testing.verify.znodes import Znodes
from strandline.testing.waiting import until
from strandline.zookeeper.client import SetData
from tests.mixed.conftest import SETTINGS
from tests.mixed.test_mixed_cluster import jars as latest

POM = Path(__file__).with_name("earlier_pom.xml")
WITHIN_S = 60.0


def jars(version: str) -> Path:
    """Kafka's jars of this version. Without them the test is skipped, but never in CI."""
    try:
        return fetched(POM, f"kafka-{version}", {"kafka.version": version})
    except JarsMissing as error:
        assert not os.environ.get("CI"), f"Kafka's jars could not be fetched: {error}"
        pytest.skip(f"Kafka {version} could not be fetched: {error}")


@pytest.mark.long
@pytest.mark.parametrize("version", ["2.8.2", "3.2.3", "3.5.2", "3.8.1"])
@pytest.mark.parametrize(("ours", "first"), [({1}, 1), ({2, 3}, 1)], ids=["SKK", "KSS"])
def test_nothing_is_lost_beside_an_earlier_kafka(
    version: str, ours: set[int], first: int, tmp_path: Path
) -> None:
    scenario = load("mixed")
    properties = scenario.cluster.properties()
    place = KafkaPlace(tmp_path, 3, properties, jars(version), frozenset(ours), first, latest())
    outcome = run(scenario, place, tmp_path / "run")
    print(f"Kafka {version}, ours {sorted(ours)}: {outcome}")
    assert outcome.state is State.HELD, outcome
    assert outcome.verdict.faults.total() == len(scenario.faults.at) and outcome.verdict.acknowledged > 300


def announce(znodes: Znodes, broker: int, leaving: bool) -> None:
    """Write into the registration of a broker of ours that it is shutting down, or that it is not."""
    path = f"/brokers/ids/{broker}"
    data, stat = znodes._thread.run(lambda: znodes._client.get(path))
    changed = json.dumps({**json.loads(data), "leaving": leaving or None}).encode()
    znodes._thread.run(lambda: znodes._client.multi([SetData(path, changed, stat.version)]))


@pytest.mark.long
@pytest.mark.parametrize("version", ["2.8.2", "3.2.3"])
def test_a_leader_whose_new_member_was_refused_asks_again(version: str, tmp_path: Path) -> None:
    """A follower is shutting down when its leader would have it back in the ISR, and then it is not any more:
    as after a quick restart. Of an error Kafka 2.8 makes that it waits for ever, in the same leader epoch.
    """
    leader, controller, follower = 1, 2, 3
    there = KafkaPlace(
        tmp_path, 3, SETTINGS | {"replica.lag.time.max.ms": "2000"}, jars(version),
        frozenset({controller, follower}), controller,
    )  # fmt: skip
    there.start()
    try:
        with (
            Admin(there.cluster.brokers[controller].address) as admin,
            Znodes(there.cluster.zookeeper) as znodes,
        ):
            assert znodes.controller() == controller
            admin.create_topics([NewTopic("t", assignments={0: [leader, follower]})])
            until(lambda: sorted(znodes.isr("t", 0)) == [leader, follower], WITHIN_S, "both are in sync")
            there.pause(follower)
            until(lambda: znodes.isr("t", 0) == [leader], WITHIN_S, "the follower stands still")
            announce(znodes, follower, leaving=True)
            there.resume(follower)
            log = there.cluster.brokers[controller].log
            until(lambda: "isr_change_refused" in log.read_text(), WITHIN_S, "it may not come back yet")
            announce(znodes, follower, leaving=False)
            until(lambda: sorted(znodes.isr("t", 0)) == [leader, follower], WITHIN_S, "now it may")
    finally:
        there.close()
