"""`strandline demo`: kills a leader while 336,776 flights are produced, and shows that nothing is lost.

ZooKeeper and three brokers start as processes; the bundled client produces, a consumer group reads, the
killed broker rejoins, Spark reads up to the high watermark, and the verdict (`verdict.py`) compares every
partition with the acknowledgements. Exit status 0 only if every check passes.
"""

import asyncio
import random
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ...base.extras import require
from ...client.admin.admin import Admin
from ...client.consumer.consumer import Consumer
from ...client.producer.producer import Producer
from ...client.results import Receipt
from ...local.cluster import LocalCluster
from ...local.processes import machine_is_slower
from ..console import Failure, clear_errors, out
from .failover import Accident
from .flights import FLIGHTS, archive, flights
from .screen import final_screen
from .spark import Delays, in_a_process
from .verdict import AckLog, compare_replicas, judge

TOPIC, PARTITIONS, REPLICAS = "flights", 12, 3
KILL_AT = 0.4
GAP_MAX_S = 1.0  # on a machine that runs nothing else
READERS = 2
GROUP = "delays"


def demo(
    records: Annotated[
        int, typer.Option(min=1000, max=FLIGHTS, help="number of flights to produce")
    ] = FLIGHTS,
    controller: Annotated[
        bool | None,
        typer.Option(
            help="kill the controller's broker, or a leader that is not the controller (default: random)"
        ),
    ] = None,
    dir: Annotated[
        Path | None,
        typer.Option("--dir", help="directory for data and logs, kept afterwards (default: temporary)"),
    ] = None,
    spark: Annotated[bool, typer.Option(help="also read the topic with Spark")] = True,
) -> None:
    """Produce real events with acks=all, kill the leader in the middle, and account for every record."""
    with clear_errors():
        archive()
        if spark:
            require("pyspark", "demo", "Spark in the demo (--no-spark leaves it out)")
            require("pyarrow", "demo", "Spark in the demo (--no-spark leaves it out)")
        controller_too = random.random() < 0.5 if controller is None else controller
        with tempfile.TemporaryDirectory(prefix="strandline-demo-") as temporary:
            held = _Demo(dir or Path(temporary), records, controller_too).run(spark)
        if not held:
            raise Failure("a check failed; see the verdict above")


class _Demo:
    """One run of the demo."""

    def __init__(self, directory: Path, records: int, controller_too: bool) -> None:
        self.directory, self.records = directory, records
        self.controller_too = controller_too
        self.cluster = LocalCluster(directory / "cluster", REPLICAS)
        self.acks_file = directory / "acknowledged.txt"
        self.progress = Progress(
            TextColumn("{task.description:46}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=out,
        )
        self.read = 0
        self.middle = asyncio.Event()
        self.failed: list[str] = []

    def run(self, with_spark: bool) -> bool:
        """Run all stages. Returns whether every check passed."""
        began = time.perf_counter()
        self.directory.mkdir(parents=True, exist_ok=True)
        with self.progress:
            task = self.progress.add_task("starting ZooKeeper and three brokers", total=1)
            self.cluster.start()
            self.progress.update(task, completed=1)
            try:
                accident, full = asyncio.run(self._story())
                frame = self._spark() if with_spark else None
                task = self.progress.add_task("comparing every partition with the acknowledgements", total=1)
                verdict = judge(self.cluster.bootstrap, TOPIC, PARTITIONS, self.acks_file)
                folders = [broker.directory / "data" for broker in self.cluster.brokers.values()]
                verdict.differing_replicas = compare_replicas(folders, TOPIC, PARTITIONS)
                self.progress.update(task, completed=1)
            finally:
                self.cluster.stop()
        limit_s = GAP_MAX_S * machine_is_slower()
        checks = {
            f"{verdict.acknowledged:,} of {self.records:,} flights acknowledged": verdict.acknowledged
            == self.records,
            f"{verdict.read:,} read back": verdict.read == self.records,
            f"{len(verdict.lost)} lost": not verdict.lost,
            f"{len(verdict.duplicated)} duplicated": not verdict.duplicated,
            "the three replicas are byte-for-byte identical": not verdict.differing_replicas,
            f"the consumer group read {self.read:,}": self.read == self.records,
            f"longest gap {accident.gaps.struck_s:.2f} s (limit {limit_s:.1f} s)": accident.gaps.struck_s
            < limit_s,
            "the killed broker rejoined every ISR": full,
        }
        if with_spark:
            rows = frame[0] if frame else 0
            checks[f"Spark read {rows:,} rows"] = rows == self.records
        final_screen(accident, checks, frame[1] if frame else [], time.perf_counter() - began)
        return all(checks.values()) and not self.failed

    async def _story(self) -> tuple[Accident, bool]:
        async with Admin(self.cluster.bootstrap) as admin:
            await admin.create_topic(TOPIC, PARTITIONS, REPLICAS, configs={"min.insync.replicas": "2"})
            acks = AckLog(self.acks_file)
            accident = Accident(TOPIC, self.cluster, self.controller_too, acks, time.perf_counter())
            await accident.choose(admin)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._produce(accident))
                group.create_task(self._kill_in_the_middle(accident, admin))
            acks.close()
            accident.note(f"{acks.count:,} flights acknowledged")
            async with asyncio.TaskGroup() as group:
                reading = group.create_task(self._consume())
                recovering = group.create_task(accident.recover(admin))
            self.read = reading.result()
            return accident, recovering.result()

    async def _produce(self, accident: Accident) -> None:
        task = self.progress.add_task("producing flights, acks=all", total=self.records)
        async with Producer(self.cluster.bootstrap, linger_ms=10, batch_size=65_536) as producer:
            for number, (key, value) in enumerate(flights()):
                if number == self.records:
                    break
                await producer.room()
                sent = producer.send(TOPIC, value, key=key)
                sent.add_done_callback(partial(self._acknowledged, accident, number))
                if number % 500 == 0:
                    self.progress.update(task, completed=accident.acks.count)
                    await asyncio.sleep(0)
            await producer.flush()
        self.progress.update(task, completed=accident.acks.count)

    def _acknowledged(self, accident: Accident, number: int, sent: "asyncio.Future[Receipt]") -> None:
        error = sent.exception()
        if error is not None:
            self.failed.append(f"flight {number}: {error}")
        else:
            receipt = sent.result()
            accident.acknowledged(number, receipt.partition, receipt.offset)
            if accident.acks.count >= self.records * KILL_AT:
                self.middle.set()

    async def _kill_in_the_middle(self, accident: Accident, admin: Admin) -> None:
        await self.middle.wait()
        await accident.strike(admin)

    async def _consume(self) -> int:
        """A consumer group reads until every record was seen."""
        task = self.progress.add_task(f"reading with a consumer group of {READERS}", total=self.records)
        seen: set[tuple[int, int]] = set()
        deadline = time.monotonic() + 60

        async def reader() -> None:
            async with Consumer(
                self.cluster.bootstrap, topics=[TOPIC], group=GROUP, auto_offset_reset="earliest"
            ) as consumer:
                while len(seen) < self.records and time.monotonic() < deadline:
                    records = await consumer.poll(200, max_records=5_000)
                    seen.update((record.partition, record.offset) for record in records)
                    self.progress.update(task, completed=len(seen))

        async with asyncio.TaskGroup() as group:
            for _ in range(READERS):
                group.create_task(reader())
        return len(seen)

    def _spark(self) -> tuple[int, Delays]:
        task = self.progress.add_task("reading with Spark, up to the high watermark", total=1)
        result = in_a_process(self.cluster.bootstrap, TOPIC, self.directory / "spark.log")
        self.progress.update(task, completed=1)
        return result
