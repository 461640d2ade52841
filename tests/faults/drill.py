"""One fault of the matrix: load before, during and after it, then the verdict, a row of the table.

    with drill("F1", "kill -9 of a leader", [1, 2, 3] * 2) as it:
        it.warm()
        it.cluster.brokers[1].kill()
        it.resumed()

What is left broken at the end is healed; then all must be as the matrix demands: acks
resume, every ISR is full, nothing acknowledged is lost or doubled (by the bundled client or librdkafka),
all replicas are alike byte for byte and epoch for epoch, state znodes are well-formed, no broker has logged a
traceback.
"""

import asyncio
import json
import signal
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from confluent_kafka import Producer as StockProducer
from kazoo.client import KazooClient

from strandline.local.cluster import LocalCluster
from strandline.testing.history import Anomaly, Report, judge
from strandline.testing.verify.replicas import untidy
from strandline.testing.verify.znodes import Znodes
from strandline.testing.workload import VALUE_BYTES, Workload
from tests.integration.support import View, assert_no_traceback, create, revive, until, wait_alike

WARM = 150
RESUME_S = 45.0
LOSSES = (Anomaly.LOST_WRITE, Anomaly.UNSEEN, Anomaly.HW_LEAK)
STOCK_EVERY_S = 0.02


@dataclass
class Row:
    """A line of the table."""

    fault: str
    what: str
    passed: bool = False
    acknowledged: int = 0
    lost: int = 0
    duplicated: int = 0
    other: int = 0  # anomalies of any other name
    diverged: str = "?"
    gap_s: float = 0.0
    whole_s: float = 0.0  # from healing until every ISR was full
    remark: str = ""


@dataclass
class Table:
    """What the run has shown."""

    rows: list[Row] = field(default_factory=list)

    def text(self) -> str:
        head = (
            "fault",
            "what",
            "verdict",
            "acks",
            "lost",
            "dup",
            "other",
            "diverged",
            "gap s",
            "whole s",
            "",
        )
        lines = [
            (
                row.fault, row.what, "held" if row.passed else "BROKEN", str(row.acknowledged), str(row.lost),
                str(row.duplicated), str(row.other), row.diverged, f"{row.gap_s:.2f}", f"{row.whole_s:.2f}",
                row.remark,
            )
            for row in self.rows
        ]  # fmt: skip
        widths = [max(len(line[i]) for line in [head, *lines]) for i in range(len(head))]
        return "\n".join(
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
            for line in [head, *lines]
        )

    def save(self, path: Path) -> None:
        path.write_text(json.dumps([asdict(row) for row in self.rows], indent=2) + "\n")


class StockWorkload(Workload):
    """The same numbers, sent by librdkafka."""

    async def _send(self) -> None:
        producer = StockProducer(
            {
                "bootstrap.servers": self._bootstrap,
                "enable.idempotence": True,
                "linger.ms": 0,
                "reconnect.backoff.max.ms": 200,
                "topic.metadata.refresh.interval.ms": 1000,
                "log_level": 0,
            }
        )
        number = 0
        while not self._stop.is_set():
            partition = self.partitions[number % len(self.partitions)]
            value = number.to_bytes(8, "big").ljust(VALUE_BYTES, b".")
            self.history.sending(number, partition, time.monotonic())
            producer.produce(self._topic, value, partition=partition.partition, on_delivery=self._delivered)
            number += 1
            producer.poll(0)
            await asyncio.sleep(STOCK_EVERY_S)
        while await asyncio.to_thread(producer.flush, 1.0):
            pass

    def _delivered(self, error: Any, message: Any) -> None:
        number = int.from_bytes(message.value()[:8], "big")
        if error is not None:
            self.refused.append(f"{number}: {error}")
            return
        self.history.acknowledged(number, message.offset(), time.monotonic())
        self._count += 1


class Drill:
    """See the module."""

    def __init__(
        self, cluster: LocalCluster, table: Table, fault: str, what: str, leaders: Iterable[int], heal: Any
    ) -> None:
        self.cluster, self.row = cluster, Row(fault, what)
        self.topic = f"{fault}-{len(table.rows)}".lower()
        self._table, self._leaders, self._heal_links = table, list(leaders), heal
        self.replicas = sorted(cluster.brokers)  # who holds the topic in the end
        self._struck_s: float | None = None
        self.view: View
        self.load: Workload

    def __enter__(self) -> Self:
        self._table.rows.append(self.row)
        self.cluster.wait_ready()
        self.view = create(self.cluster, self.topic, self._leaders)
        create(self.cluster, f"{self.topic}-stock", self._leaders[:3]).admin.close()
        self.load = Workload(self.cluster.bootstrap, self.topic, len(self._leaders))
        self._stock = StockWorkload(self.cluster.bootstrap, f"{self.topic}-stock", len(self._leaders[:3]))
        self.load.__enter__()
        self._stock.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is not None:
                self.row.remark = f"{kind.__name__ if kind else ''}: {str(error)[:120]}"
            self._end(kind, error, trace)
        except BaseException as failure:
            self.row.remark = self.row.remark or str(failure)[:160].replace("\n", " ")
            raise
        finally:
            self.view.admin.close()

    def warm(self, more: int = WARM) -> None:
        """Some receipts before the fault; the clock of the longest gap starts."""
        self.load.wait_acknowledged(more)
        self._struck_s = time.monotonic()

    def resumed(self, within_s: float = RESUME_S) -> None:
        """Wait until every partition acknowledges what is sent now."""
        self.load.wait_acknowledged_everywhere(within_s)

    def gap_s(self) -> float:
        """The longest time a partition went without a receipt since the fault."""
        return self.load.history.longest_gap_s(since_s=self._struck_s or 0.0)

    def heal(self) -> None:
        """Everybody runs, every link carries, every ISR is full."""
        began = time.monotonic()
        self._heal_links()
        for broker in self.cluster.brokers.values():
            broker.signal(signal.SIGCONT)
        revive(self.cluster)
        self.view.wait_full_isr(60)
        self.row.whole_s = time.monotonic() - began

    def _end(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.load.__exit__(kind, error, trace)
            self._stock.__exit__(kind, error, trace)
            self._heal_links()
            return
        try:
            self.heal()
            self.resumed()
            self.load.wait_acknowledged(100)
            self.row.gap_s = self.gap_s()
        except BaseException as failure:
            self.load.__exit__(type(failure), failure, None)
            self._stock.__exit__(type(failure), failure, None)
            raise
        self._stock.__exit__(None, None, None)
        self.load.__exit__(None, None, None)
        self._judge()

    def _judge(self) -> None:
        reports = [judge(self.load.finish()), judge(self._stock.finish())]
        for report in reports:
            note(self.row, report)
        for load in (self.load, self._stock):
            assert not load.refused, load.refused[:3]
            assert not load.troubles, load.troubles[:3]
        self.row.diverged = "yes"
        wait_alike(self.cluster, self.topic, len(self._leaders), 30, self.replicas)
        wait_alike(self.cluster, f"{self.topic}-stock", len(self._leaders[:3]), 30)
        self.row.diverged = "no"
        assert_states_are_good(self.cluster)
        assert_no_traceback(self.cluster)
        for report in reports:
            assert report.good, report
        self.row.passed = True


def note(row: Row, report: Report) -> None:
    """Add what a checker has found."""
    row.acknowledged += report.acknowledged
    row.lost += sum(len(found) for kind, found in report.anomalies.items() if kind in LOSSES)
    row.duplicated += len(report.anomalies.get(Anomaly.DUPLICATE, []))
    row.other += sum(
        len(found)
        for kind, found in report.anomalies.items()
        if kind not in LOSSES and kind is not Anomaly.DUPLICATE
    )


def zookeeper(cluster: LocalCluster) -> KazooClient:
    """A session at the cluster's ZooKeeper; the caller ends it."""
    client = KazooClient(hosts=cluster.zookeeper, timeout=10)
    client.start(20)
    return client


def assert_states_are_good(cluster: LocalCluster) -> None:
    """Every state znode is one that may be (I12): an ISR, within the replicas, the leader in it or none."""
    with Znodes(cluster.zookeeper) as znodes:
        wrong = znodes.wrong_states()
    assert not wrong, "\n".join(wrong)


def wait_purged(cluster: LocalCluster) -> None:
    """What was deleted goes a moment later, while its broker runs."""
    running = [broker.directory / "data" for broker in cluster.brokers.values() if broker.alive]
    until(lambda: not any(list(data.glob("*-delete")) for data in running), 30, "what was deleted has gone")


def assert_tidy(cluster: LocalCluster) -> None:
    """After all have stopped: epochs begin where they do elsewhere, markers are clean, nothing is left
    over.
    """
    wrong = untidy({id: broker.directory / "data" for id, broker in cluster.brokers.items()})
    assert not wrong, "\n".join(wrong)
