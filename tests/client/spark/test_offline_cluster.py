"""Log directories that real brokers have left: killed, stopped, and after an unclean election."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import InputPartition

from strandline.client.admin.admin import NewTopic
from strandline.client.spark.options import parse
from strandline.client.spark.plan import PlanError
from strandline.client.spark.reader import StrandlineReader
from strandline.client.sync import Admin, Producer
from strandline.local.cluster import LocalCluster
from strandline.storage.log.checkpoints import HIGH_WATERMARKS
from strandline.testing.nursery import forked
from tests.integration.support import View, until

pytestmark = pytest.mark.slow

SETTINGS = {
    "default.replication.factor": "3",
    "min.insync.replicas": "1",
    "replica.high.watermark.checkpoint.interval.ms": "100",
    "zookeeper.session.timeout.ms": "6000",
}
WAIT_S = 60.0


@pytest.fixture(scope="module")
def cluster(zookeeper: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    directory = tmp_path_factory.mktemp("closed")
    local = forked(LocalCluster(directory, 3, settings=SETTINGS, zookeeper=f"{zookeeper}/{directory.name}"))
    local.start()
    yield local
    local.kill()


def data(cluster: LocalCluster, broker: int) -> Path:
    return cluster.brokers[broker].directory / "data"


def wait_kept(cluster: LocalCluster, topic: str, high_watermark: int, *brokers: int) -> None:
    """Wait until these brokers' checkpoints have it."""

    def kept() -> bool:
        files = [data(cluster, each) / HIGH_WATERMARKS for each in brokers]
        wanted = f"{topic} 0 {high_watermark}"
        return all(file.exists() and wanted in file.read_text().splitlines() for file in files)

    until(kept, WAIT_S, f"high watermark {high_watermark} of {topic} is checkpointed by {brokers}")


def wait_led(cluster: LocalCluster, topic: str, leader: int, isr: tuple[int, ...]) -> None:
    with View(cluster, topic) as view:
        view.wait_led_by(leader, isr, WAIT_S)


def fill(cluster: LocalCluster, topic: str, texts: list[str]) -> None:
    with Producer(cluster.bootstrap, acks="all") as producer:
        sent = [producer.send(topic, text.encode()) for text in texts]
        for receipt in sent:
            receipt.result(30)


def rows(cluster: LocalCluster, topic: str, *brokers: int, **options: Any) -> list[dict[str, Any]]:
    paths = ",".join(str(data(cluster, each)) for each in brokers)
    given = {"logDirs": paths, "subscribe": topic, **{name: str(value) for name, value in options.items()}}
    parsed = parse(given)
    reader = StrandlineReader(parsed, list(parsed.columns))
    return [
        row
        for part in reader.partitions()
        for records in reader.read(InputPartition(part.value))
        for row in records.to_pylist()
    ]


def values(cluster: LocalCluster, topic: str, *brokers: int, **options: Any) -> list[str]:
    return [row["value"].decode() for row in rows(cluster, topic, *brokers, **options)]


def test_what_killed_and_stopped_brokers_have_committed(cluster: LocalCluster) -> None:
    texts = [f"{number:04}" for number in range(300)]
    with Admin(cluster.bootstrap) as admin:
        admin.create_topics([NewTopic("ends", assignments={0: [1, 2, 3]})])
    wait_led(cluster, "ends", 1, (1, 2, 3))
    fill(cluster, "ends", texts)
    wait_kept(cluster, "ends", 300, 1, 2, 3)
    with pytest.raises(PlanError, match=r"a living broker holds .*/data/\.lock"):
        values(cluster, "ends", 1)
    late = [f"late {number}" for number in range(50)]
    fill(cluster, "ends", late)
    for broker in cluster.brokers.values():
        broker.kill()
    for given in ([1], [2], [3], [1, 2, 3]):
        found = values(cluster, "ends", *given)
        assert len(found) >= 300 and found == (texts + late)[: len(found)]
    for each in (1, 2, 3):
        assert values(cluster, "ends", 1, 2, 3, replica=each, upto="leo") == texts + late, (
            "all were in the ISR"
        )
    for broker in cluster.brokers.values():
        broker.start()
    cluster.wait_ready()
    wait_led(cluster, "ends", cluster.leader("ends", 0), (1, 2, 3))
    wait_kept(cluster, "ends", 350, 1, 2, 3)
    for broker in cluster.brokers.values():
        broker.stop()
    facts = rows(cluster, "ends", 1, 2, 3, columns="value,servedBy,highWatermark,file")
    assert [row["value"].decode() for row in facts] == texts + late
    assert {row["highWatermark"] for row in facts} == {350}
    for broker in cluster.brokers.values():
        broker.start()
    cluster.wait_ready()


def test_an_unclean_election_leaves_two_histories(
    cluster: LocalCluster, caplog: pytest.LogCaptureFixture
) -> None:
    common, lost, after = ([f"{kind} {n}" for n in range(20)] for kind in ("common", "lost", "after"))
    with Admin(cluster.bootstrap) as admin:
        configs = {"unclean.leader.election.enable": "true"}
        admin.create_topics([NewTopic("torn", assignments={0: [1, 2]}, configs=configs)])
    wait_led(cluster, "torn", 1, (1, 2))
    fill(cluster, "torn", common)
    wait_kept(cluster, "torn", 20, 1, 2)
    cluster.brokers[2].kill()
    wait_led(cluster, "torn", 1, (1,))
    fill(cluster, "torn", lost)
    wait_kept(cluster, "torn", 40, 1)
    cluster.brokers[1].kill()
    cluster.brokers[2].start()
    wait_led(cluster, "torn", 2, (2,))
    fill(cluster, "torn", after[:5])
    wait_kept(cluster, "torn", 25, 2)
    for broker in cluster.brokers.values():
        broker.kill()
    assert values(cluster, "torn", 1, 2) == common + after[:5]
    assert "committed_records_superseded" in caplog.text and "start=20 end=40" in caplog.text
    assert values(cluster, "torn", 1) == common + lost, "alone it knows no better"
    assert values(cluster, "torn", 1, 2, replica=1) == common
    assert values(cluster, "torn", 1, 2, replica=1, upto="leo") == common + lost
    assert values(cluster, "torn", 1, 2, replica=2, upto="leo") == common + after[:5]
