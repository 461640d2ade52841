"""`strandline doctor` on Apache Kafka 3.9 with ZooKeeper: what it finds, and what it cannot see."""

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from strandline.cli.doctor.ask_broker import dial
from strandline.cli.doctor.collect import Wishes, collect
from strandline.cli.doctor.facts import Facts
from strandline.cli.doctor.findings import Finding
from strandline.cli.doctor.judge import judge, problems
from strandline.client.admin.admin import NewTopic
from strandline.client.sync import Admin, Consumer, Producer

sys.path.insert(0, str(Path(__file__).parent))

from kafka_peer import KafkaBroker

pytestmark = pytest.mark.long
OF_THE_MACHINE = ("log_dir_room", "zookeeper_slow")


@pytest.fixture(scope="module")
def kafka(zookeeper: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    folder = tmp_path_factory.mktemp("kafka")
    broker = KafkaBroker(folder, [folder / "data"], f"{zookeeper}/{folder.name}-doctor", {})
    broker.start(180)
    yield broker
    broker.kill()


def examined(kafka: KafkaBroker) -> tuple[Facts, dict[str, Finding]]:
    wishes = Wishes((("127.0.0.1", kafka.port),), wait_s=20.0, watch_s=2.0)
    facts = asyncio.run(collect(wishes))
    return facts, {one.check: one for one in judge(facts) if one.check not in OF_THE_MACHINE}


def test_what_is_wrong_is_found_and_what_is_not_told_is_listed(kafka: KafkaBroker) -> None:
    with Admin(kafka.bootstrap) as admin, Producer(kafka.bootstrap) as producer:
        admin.create_topics([NewTopic("well", 1, 1), NewTopic("never", 1, 1, {"min.insync.replicas": "2"})])
        producer.send_many("well", [b"a"] * 10)
    with Consumer(kafka.bootstrap, group_id="gone", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["well"])
        first = consumer.poll(60_000, max_records=1)[0]
        consumer.commit()
        assert first.offset == 0
    facts, found = examined(kafka)
    (broker,) = facts.brokers.values()
    assert broker.dial.broker == 1 and not broker.is_strandline and not broker.failed
    assert broker.directories and broker.directories[0].total_bytes > 0
    assert facts.zookeeper is not None and facts.zookeeper.controller == 1, "as the broker names it"
    assert {one.check for one in problems(found.values())} == {"min_isr_above_rf", "group_without_members"}
    assert found["min_isr_above_rf"].values["topics"] == ["never"]
    assert found["group_without_members"].values["lag"] == {"well-0": 9}
    assert any("clocks, memory and limits of brokers 1" in line for line in facts.not_seen)


def test_a_broker_of_kafka_tells_who_it_is_when_it_is_taken_for_another(kafka: KafkaBroker) -> None:
    taken = asyncio.run(dial(kafka.bootstrap, ("127.0.0.1", kafka.port), 20.0, expected=7))
    assert taken.answers and taken.broker == 1
