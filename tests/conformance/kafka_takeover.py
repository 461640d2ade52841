"""Two systems that take over each other's log directories: who writes what, who is stopped, what is copied.

`Ours` is a broker of ours that was killed and stopped, `Kafkas` an Apache Kafka 3.9 on a copy of its log
directories. Left to others: what must hold (test_kafka_storage.py), what is written (kafka_workload.py).
"""

import asyncio
import shutil
import time
from itertools import product
from pathlib import Path

import kafka_workload as workload
import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, ConfigResource
from kafka_peer import QUIET, KafkaBroker, partitions_of, place, read_all, read_groups, wait_led
from kazoo.client import KazooClient

from strandline.base.types import TopicPartition
from strandline.client.network.connection import Connection
from strandline.local.cluster import LocalCluster
from strandline.protocol.batches import headers, read_header, stamp
from strandline.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from strandline.protocol.records import BatchBuilder
from strandline.storage.config import StorageConfig, TopicConfig
from strandline.storage.directories.log_manager import Logs
from strandline.storage.disk import DirectoryLocked, RealDisk
from strandline.storage.log.segments import RETIRED
from strandline.storage.segment.file_names import DELETED, GONE, file_name
from tests.patience import HANG_S
from tests.watermarks import watermarks

OURS = {
    "offsets.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "zookeeper.session.timeout.ms": "6000",
    "log.retention.ms": "-1",
    "log.cleaner.backoff.ms": "200",
}
KAFKAS = {"log.retention.ms": "-1"}
DIRS = ("believed", "scanned")  # what our marker and recovery points vouch for, and what Kafka must recover
TOPICS = ("codecs", "times", "append-time", "idempotent", "compacted", "epochs")
GROUPS = ("alone", "readers")


class Served:
    """What a broker serves: records by partition, committed offsets by group, answers about times."""

    def __init__(self, bootstrap: str, names: list[str] | None = None) -> None:
        self.names = names or partitions_of(bootstrap)
        wait_led(bootstrap, self.names)
        self.records = read_all(bootstrap, self.names)
        self.groups = read_groups(bootstrap, GROUPS, self.names)
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "-", **QUIET})
        asked = [workload.START_MS + ms for ms in range(0, 5100, 300)]
        self.times = [
            [one.offset for one in consumer.offsets_for_times([place("times-0", ms)], 30)] for ms in asked
        ]
        self.ends = {name: watermarks(consumer, place(name)) for name in self.names}
        consumer.close()


def send_again(bootstrap: str, data: Path, name: str, back: int = 1) -> tuple[int, int, int]:
    """Send a batch once more that lies in `data`, the last or one `back` from it.

    Returns the error code, the offset that is answered and the one that it has.
    """
    batches = [
        (header.base_offset, bytes(found[at : at + header.size]))
        for found in (path.read_bytes() for path in sorted(data.rglob(f"{name}/*.log")))
        for at, header in headers(found)
    ]
    base_offset, batch = batches[-back]
    error, answered = asyncio.run(_produce(bootstrap, name, bytearray(batch)))
    return error, answered, base_offset


async def _produce(bootstrap: str, name: str, batch: bytearray) -> tuple[int, int]:
    stamp(batch, 0, 0, -1)
    host, _, port = bootstrap.partition(":")
    topic, _, number = name.rpartition("-")
    partition = PartitionProduceData(index=int(number), records=batch)
    request = ProduceRequest(
        acks=-1, timeout_ms=9000, topic_data=[TopicProduceData(name=topic, partition_data=[partition])]
    )
    deadline = asyncio.get_running_loop().time() + HANG_S
    connection = await Connection.open(host, int(port), deadline=deadline)
    try:
        answer = await connection.request(request, deadline=deadline, version=9)
    finally:
        await connection.close()
    (found,) = answer.responses[0].partition_responses
    return found.error_code, found.base_offset


def cluster_on(folder: Path, zookeeper: str) -> LocalCluster:
    """One broker of ours, not yet started, with two log directories below `folder`/disks."""
    folder.mkdir(parents=True, exist_ok=True)
    dirs = ",".join(str(folder / "disks" / name) for name in DIRS)
    return LocalCluster(folder, 1, settings={**OURS, "log.dirs": dirs}, zookeeper=zookeeper)


class Ours:
    """What one broker of ours wrote: killed once, stopped at last. Copies of its log directories."""

    def __init__(self, folder: Path, zookeeper: str) -> None:
        self.zookeeper, self.killed, self.stopped = zookeeper, folder / "killed", folder / "stopped"
        cluster = cluster_on(folder, zookeeper)
        now_ms = int(time.time() * 1000)
        try:
            cluster.start()
            workload.create_topics(cluster.bootstrap, *TOPICS)
            workload.write_codecs(cluster.bootstrap)
            workload.write_times(cluster.bootstrap)
            workload.write_compacted(cluster.bootstrap)
            workload.produce(cluster.bootstrap, "epochs", [(b"first", b"epoch")])
            cluster.brokers[1].kill()
            shutil.copytree(folder / "disks", self.killed)
            cluster.start()
            workload.produce(cluster.bootstrap, "epochs", [(b"second", b"epoch")])
            workload.write_idempotent(cluster.bootstrap, now_ms)
            workload.write_group(cluster.bootstrap)
            workload.wait_cleaned(*(folder / "disks" / name for name in DIRS))
            self.served = Served(cluster.bootstrap)
            cluster.brokers[1].stop()
            shutil.copytree(folder / "disks", self.stopped)
        finally:
            cluster.kill()


def forget(directory: Path) -> list[str]:
    """As after a power cut: no clean marker, no recovery points, no indexes. Returns the partitions there."""
    (directory / ".kafka_cleanshutdown").unlink()
    (directory / "recovery-point-offset-checkpoint").unlink()
    for path in [*directory.rglob("*.index"), *directory.rglob("*.timeindex")]:
        path.unlink()
    return sorted(path.name for path in directory.iterdir() if path.is_dir())


def add_what_only_we_leave(*dirs: Path) -> None:
    """A deleted partition, one of an earlier topic, what recovery has set aside, what was cut and retired."""
    for number, directory in enumerate(dirs):
        logs = [path for path in sorted(directory.iterdir()) if path.is_dir()]
        source = logs[0]
        for log in [part for folder in logs for part in folder.glob("*.log")]:
            for base, suffix in product((int(log.stem), int(log.stem) + 7), RETIRED):
                shutil.copy(log, log.with_name(f"{file_name(base, suffix)}{GONE}{DELETED}"))
        shutil.copytree(source, directory / f"gone-{number}.{1:032x}-delete")
        shutil.copytree(source, directory / f"strayed-{number}.{2:032x}-stray")
        shutil.copytree(source, directory.with_name(directory.name + ".aside") / "codecs-0")


def gone(*dirs: Path) -> list[Path]:
    """What was cut or retired, and is to be deleted."""
    return [path for directory in dirs for path in directory.glob(f"*-[0-9]/*{GONE}{DELETED}")]


def is_locked(directory: Path) -> bool:
    """Whether we would be refused there."""
    try:
        RealDisk().lock(f"{directory}/.lock").release()
    except DirectoryLocked:
        return True
    return False


class Kafkas:
    """What a Kafka broker served from a copy of ours, then wrote itself. It is stopped."""

    def __init__(self, folder: Path, ours: Ours) -> None:
        self.ours, self.data = ours, folder / "disks"
        shutil.copytree(ours.stopped, self.data)
        self.scanned = forget(self.data / "scanned")
        dirs = [self.data / name for name in DIRS]
        add_what_only_we_leave(*dirs)
        self.going = gone(*dirs)
        broker = KafkaBroker(folder / "kafka", dirs, ours.zookeeper, KAFKAS)
        try:
            broker.start()
            self.locked = [is_locked(path) for path in dirs]
            self.found = Served(broker.bootstrap, ours.served.names)
            self.again = send_again(broker.bootstrap, ours.stopped, "idempotent-0")
            workload.create_topics(broker.bootstrap, "transactions")
            workload.write_transactions(broker.bootstrap)
            workload.write_codecs(broker.bootstrap)
            workload.write_idempotent(broker.bootstrap, int(time.time() * 1000))
            workload.produce(broker.bootstrap, "epochs", [(b"third", b"Kafka's")])
            self.left = Served(broker.bootstrap)
            broker.stop()
        finally:
            broker.kill()
        self.log = broker.log


def opened(*dirs: Path) -> Logs:
    return Logs.open(
        [str(path) for path in dirs],
        RealDisk(),
        StorageConfig(index_interval_bytes=256, segment_bytes=4096),
        _Stopped(),
        clean=False,
        before_loss=lambda partition, reason: pytest.fail(f"{partition}: {reason}"),
    )


class _Stopped:
    def wall_ms(self) -> int:
        return workload.START_MS


def truncated(data: Path) -> None:
    """A log of four segments, cut within the third, and written on from there in another epoch."""
    logs = opened(data)
    config = TopicConfig.of(StorageConfig(index_interval_bytes=256, segment_bytes=4096))
    log = logs.create(TopicPartition("truncated", 0), None, config)
    for epoch, count in ((0, 150), (3, 40)):
        for number in range(count):
            builder = BatchBuilder(producer_id=epoch, producer_epoch=0, base_sequence=2 * number)
            for n in range(2):
                builder.append(workload.START_MS + number, b"key", b"%030d" % n, ())
            batch = bytearray(builder.build())
            log.append(memoryview(batch), read_header(batch), epoch, workload.START_MS)
        if epoch == 0:
            assert len(log.segments) >= 4
            assert log.truncate_to(log.segments[2].base_offset + 11) < log.segments[2].base_offset + 11
    assert logs.close()


def described(bootstrap: str, topic: str) -> dict[str, str]:
    """The topic's settings; some of Kafka's mean nothing to us, and the others must be told nevertheless."""
    admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
    (answer,) = admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, topic)]).values()
    return {name: entry.value for name, entry in answer.result(30).items()}


def put_znodes(address: str, chroot: str, znodes: dict[str, str | None]) -> None:
    client = KazooClient(address)
    client.start(10)
    for path, content in znodes.items():
        whole = chroot + path.rstrip("/")
        client.create(whole, b"" if content is None else content.encode(), makepath=True)
    client.stop()
    client.close()
