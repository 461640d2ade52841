"""One fault of the matrix: load before, during and after it, then the verdict, a row of the table.

    with drill("F1", "kill -9 of a leader", [1, 2, 3] * 2) as it:
        it.warm()
        it.cluster.brokers[1].kill()
        it.resumed()

What is left broken at the end is healed; then all must be as the matrix demands: acks
resume, every ISR is full, nothing acknowledged is lost or doubled (by the bundled client or librdkafka),
all replicas are alike byte for byte and epoch for epoch, state znodes are well-formed, no broker has logged a
traceback or holds much more than before; and gap and recovery are within the limits of the matrix. Left to
others: which faults and limits there are (matrix.py), what is kept of the outcome (table.py).
"""

import asyncio
import logging
import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from confluent_kafka import Producer as StockProducer

from strandline.local.cluster import LocalCluster
from strandline.testing.history import judge
from strandline.testing.verify.replicas import untidy
from strandline.testing.verify.znodes import Znodes
from strandline.testing.workload import VALUE_BYTES, Workload
from tests.faults.audit import assert_logs_are_sound
from tests.faults.matrix import MATRIX
from tests.faults.table import Row, Table
from tests.integration.support import View, assert_no_traceback, create, revive, until, wait_alike

WARM = 150
WARM_S = 30.0
RESUME_S = 45.0
STOCK_EVERY_S = 0.02
GIVE_UP_MS, STOCK_GIVE_UP_MS = 120_000, 300_000  # as is their default
CALM_S = 60.0  # until descriptors and memory are as before
MORE_FILES = 25  # descriptors: two topics more, and their clients
MORE_BYTES = 48 << 20


class StockWorkload(Workload):
    """The same numbers, sent by librdkafka, which tells when it begins its sequences anew."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, lasts_s: float) -> None:
        super().__init__(bootstrap, topic, partitions)
        self._lasts_ms = int(1000 * lasts_s)
        self.bumps: list[str] = []
        self._told = logging.Logger("librdkafka")
        self._told.addFilter(self._hear)

    def _hear(self, said: logging.LogRecord) -> bool:
        """Keep why it took another epoch: then it may send twice what it had no answer for."""
        text = said.getMessage()
        if "epoch bump" in text.lower() or "epoch_bump" in text.lower():
            self.bumps.append(text)
        return False

    async def _send(self) -> None:
        producer = StockProducer(
            {
                "bootstrap.servers": self._bootstrap,
                "enable.idempotence": True,
                "linger.ms": 0,
                "message.timeout.ms": STOCK_GIVE_UP_MS + self._lasts_ms,
                "reconnect.backoff.max.ms": 200,
                "topic.metadata.refresh.interval.ms": 1000,
                "debug": "eos",
            },
            logger=self._told,
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
        at = message.offset()  # None if only that it is stored is known, and not where
        self.history.acknowledged(number, -1 if at is None else at, time.monotonic())
        self._count += 1


class Drill:
    """See the module."""

    def __init__(
        self, cluster: LocalCluster, table: Table, fault: str, what: str, leaders: Iterable[int], heal: Any,
        lasts_s: float = 0.0,
    ) -> None:  # fmt: skip
        """`lasts_s`: how long the fault itself may keep records from being acknowledged, if that is long."""
        self.cluster, self.row = cluster, Row(fault, what, gap_limit_s=MATRIX[fault].gap_s)
        self.topic = f"{fault}-{len(table.rows)}".lower()
        self._table, self._leaders, self._heal_links = table, list(leaders), heal
        self.replicas = sorted(cluster.brokers)  # who holds the topic in the end
        self.struck_s = 0.0  # when the fault began
        self._lasts_s = lasts_s
        self.resumes_s = RESUME_S  # how long acks may take to come back after all is healed
        self.more_files = MORE_FILES  # that brokers may hold in the end
        self.view: View
        self.load: Workload

    def __enter__(self) -> Self:
        self._table.rows.append(self.row)
        self.cluster.wait_ready()
        self.view = create(self.cluster, self.topic, self._leaders)
        create(self.cluster, f"{self.topic}-stock", self._leaders[:3]).admin.close()
        bootstrap, give_up_ms = self.cluster.bootstrap, GIVE_UP_MS + int(1000 * self._lasts_s)
        self.load = Workload(bootstrap, self.topic, len(self._leaders), delivery_timeout_ms=give_up_ms)
        self.stock = StockWorkload(bootstrap, f"{self.topic}-stock", len(self._leaders[:3]), self._lasts_s)
        self.load.__enter__()
        self.stock.__enter__()
        self._held = {id: holds(broker.pid) for id, broker in self.cluster.brokers.items()}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is not None:
                self.row.remark = f"{kind.__name__ if kind else ''}: {str(error)[:200]}; {self.row.remark}"
            self._end(kind, error, trace)
        except BaseException as failure:
            if failure is not error:
                self.row.remark = f"{str(failure)[:200]}; {self.row.remark}".replace("\n", " ")
            raise
        finally:
            self.view.admin.close()

    def warm(self, more: int = WARM) -> None:
        """Some receipts before the fault; the clock of the longest gap starts."""
        self.load.wait_acknowledged(more, WARM_S)
        self.struck_s = time.monotonic()

    def resumed(self, within_s: float = RESUME_S) -> None:
        """Wait until every partition acknowledges what is sent now."""
        self.load.wait_acknowledged_everywhere(within_s)

    def gap_s(self) -> float:
        """The longest time a partition went without a receipt since the fault."""
        return self.load.history.longest_gap_s(since_s=self.struck_s)

    def heal(self) -> None:
        """Everybody runs, every link carries, every ISR is full; what took longest is the row's."""
        began = time.monotonic()
        self._heal_links()
        for broker in self.cluster.brokers.values():
            broker.signal(signal.SIGCONT)
        revive(self.cluster)
        self.view.wait_full_isr(60)
        self.row.whole_s = max(self.row.whole_s, time.monotonic() - began)

    def _end(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.load.__exit__(kind, error, trace)
            self.stock.__exit__(kind, error, trace)
            self._heal_links()
            return
        try:
            self.heal()
            self.resumed(self.resumes_s)
            self.load.wait_acknowledged(100, WARM_S)
            self.row.gap_s = self.gap_s()
            self._wait_calm()
        except BaseException as failure:
            self.load.__exit__(type(failure), failure, None)
            self.stock.__exit__(type(failure), failure, None)
            raise
        self.stock.__exit__(None, None, None)
        self.load.__exit__(None, None, None)
        self._judge()

    def _judge(self) -> None:
        reports = [judge(self.load.finish()), judge(self.stock.finish())]
        for report in reports:
            self.row.note(report)
        for load in (self.load, self.stock):
            assert not load.refused, load.refused[:3]
            assert not load.troubles, load.troubles[:3]
        self.row.diverged = "yes"
        wait_alike(self.cluster, self.topic, len(self._leaders), 30, self.replicas)
        wait_alike(self.cluster, f"{self.topic}-stock", len(self._leaders[:3]), 30)
        self.row.diverged = "no"
        assert_states_are_good(self.cluster)
        assert_no_traceback(self.cluster)
        for report in reports:
            assert report.good, f"{report}; librdkafka: {self.stock.bumps[:3]}"
        self.row.assert_within_limits()
        self.row.passed = True

    def _wait_calm(self) -> None:
        """Descriptors and memory of each broker are what they were, its successor's too, or a little more."""
        last: list[str] = []

        def calm() -> bool:
            last.clear()
            for id, broker in self.cluster.brokers.items():
                (files, memory), (had_files, had_memory) = holds(broker.pid), self._held[id]
                if files > had_files + self.more_files:
                    last.append(f"broker {id} holds {files} descriptors, before {had_files}")
                if memory > 1.1 * had_memory + MORE_BYTES:
                    last.append(f"broker {id} holds {memory >> 20} MiB, before {had_memory >> 20}")
            return not last

        try:
            until(calm, CALM_S, "brokers hold what they held before", every_s=0.5)
        except AssertionError as failure:
            raise AssertionError(f"{failure}: {'; '.join(last)}") from None


def holds(pid: int | None) -> tuple[int, int]:
    """The descriptors and the resident bytes of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return len(os.listdir(f"/proc/{pid}/fd")), pages * os.sysconf("SC_PAGE_SIZE")


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
    for broker in cluster.brokers.values():
        assert_logs_are_sound(broker.directory / "data")
