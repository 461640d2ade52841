"""The drill: three brokers, Spark with two workers, the job; each is hurt in turn while flights come.

What happens when is decided by what is there, never by a clock: the next one is killed when enough flights
were sent, and what was killed comes back when the job has got over it, which is when flights that were sent
after the kill have been processed. Flights wait for the next kill, so each is met by a stream that moves.
"""

import asyncio
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from strandline.cli.console import Failure, out
from strandline.client import Admin, Consumer, Producer
from strandline.client.results import TopicPartition
from strandline.local.cluster import LocalCluster, last_words
from strandline.local.processes import machine_is_slower
from strandline.local.standalone_spark import StandaloneSpark

from ..flights import BEGIN_S, DAY_S, Flight, archive, flights, message, produce, ticks
from . import judge
from .driver import Driver
from .plot import BACK, KILLED, Event
from .timeline import Outcome, Recovery, Sample
from .watch import Checkpoint, ParquetSink

FLIGHTS, DELAYS = "flights", "delays"
PARTITIONS, REPLICAS, WORKERS = 4, 3, 2
WATERMARK_S = 8  # of the fast clock's run: how far partitions may be apart in what a batch reads of them
STRAGGLERS = 50
KILL_AT, HOLD_AT = (0.2, 0.45, 0.7), (0.3, 0.55, 0.8)  # of the flights
LIMIT_S = 120.0  # for each thing that is waited for, on a machine with nothing else to do
SLOW_STARTS_MAX = 5
GONE_S = 10.0  # for processes whose parent has been killed
LOOK_EVERY_S = 0.25


class Drill:
    """One run."""

    def __init__(self, directory: Path, days: int, days_per_second: float, outputs: list[str]) -> None:
        self.directory, self.days, self.days_per_second = directory, days, days_per_second
        self.outputs = outputs
        self.cluster = LocalCluster(directory / "brokers", REPLICAS)
        self.spark = StandaloneSpark(directory / "spark", WORKERS)
        self.watermark_days = max(2, round(WATERMARK_S * days_per_second))
        self.checkpoints = {
            name: Checkpoint(directory / "checkpoints" / name, FLIGHTS) for name in self.outputs
        }
        self.parquet = ParquetSink(directory / DELAYS)
        self.driver = Driver(directory, self.spark.url, self._arguments())
        self.sent = 0
        self.tick_max = 0  # the most flights that are sent and not yet counted
        self.kills = 0
        self.windows_in_topic = 0
        self.outcome = Outcome(days, self.outputs)
        self.began = time.monotonic()
        self.patience = machine_is_slower()
        self._expects_driver = False
        self.progress = Progress(
            TextColumn("{task.description:46}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=out,
        )

    def run(self) -> Outcome:
        """Run all of it, and leave nothing running."""
        self.directory.mkdir(parents=True, exist_ok=True)
        os.environ[MARK] = str(self.directory)
        with self.progress:
            task = self.progress.add_task("adding up what must come out", total=1)
            self.outcome.expected = judge.expected(archive(), self.days)
            self.progress.update(task, completed=1)
            try:
                task = self.progress.add_task("starting three brokers, a Spark master, two workers", total=2)
                self.cluster.start()
                self.progress.update(task, completed=1)
                self.spark.start()
                self.progress.update(task, completed=2)
                self.began = time.monotonic()
                asyncio.run(self._story())
                self._judge()
            finally:
                self.driver.kill()
                self.spark.kill()
                self.cluster.kill()
        deadline = time.monotonic() + GONE_S * self.patience
        while (left := left_running()) and time.monotonic() < deadline:
            time.sleep(LOOK_EVERY_S)  # Spark's Python processes end when they see that their JVM is gone
        self.outcome.left_running = left
        return self.outcome

    def _arguments(self) -> list[str]:
        return [
            *("--servers", self.cluster.bootstrap, "--directory", str(self.directory)),
            *("--watermark", f"{self.watermark_days} days", "--outputs", ",".join(self.outputs)),
        ]

    # ------------------------------------------------------------ what happens

    async def _story(self) -> None:
        servers = self.cluster.bootstrap
        async with Admin(servers) as admin, Consumer(servers, isolation_level="read_committed") as reader:
            for topic in (FLIGHTS, DELAYS):
                await admin.create_topic(topic, PARTITIONS, REPLICAS, configs={"min.insync.replicas": "2"})
            # The topics of transactions and of offsets are made at first use, while three brokers are alive.
            async with Producer(servers, transactional_id="first") as first, first.transaction():
                await first.send_offsets({TopicPartition(FLIGHTS, 0): 0}, "first")
            partitions = [TopicPartition(DELAYS, number) for number in range(PARTITIONS)]
            reader.assign(partitions)
            reader.seek_to_beginning(*partitions)
            self._start_driver()
            self._note("driver started")
            coming = await asyncio.to_thread(flights, self.days)
            self.outcome.flights = len(coming)
            self.tick_max = max(map(len, ticks(coming)))
            async with asyncio.TaskGroup() as group:
                watching = group.create_task(self._watch(reader, len(coming)))
                await self._until(lambda: self._processed() is not None, "the first batch")
                async with asyncio.TaskGroup() as inner:
                    inner.create_task(self._produce(coming))
                    inner.create_task(self._hurt(admin, len(coming)))
                await self._end()
                watching.cancel()
            await self._look(reader)
            self._expects_driver = False
            await asyncio.to_thread(self.driver.stop)

    async def _produce(self, coming: list[Flight]) -> None:
        async def on_tick(sent: int) -> None:
            self.sent = sent
            while self.kills < len(HOLD_AT) and sent >= HOLD_AT[self.kills] * len(coming):
                await asyncio.sleep(LOOK_EVERY_S)

        await produce(self.cluster.bootstrap, FLIGHTS, coming, self.days_per_second, on_tick)
        self._note("all flights sent")

    async def _hurt(self, admin: Admin, total: int) -> None:
        for hurt in (self._hurt_broker, self._hurt_worker, self._hurt_driver):
            enough = KILL_AT[self.kills] * total
            await self._until(partial(self._has_sent, enough), "flights")
            await hurt(admin)

    def _has_sent(self, enough: float) -> bool:
        return self.sent >= enough

    async def _hurt_broker(self, admin: Admin) -> None:
        """The leader of a partition that is read; back when others lead and the stream goes on."""
        (described,) = await admin.describe_topics([FLIGHTS])
        victim = described.partitions[0].leader
        broker = self.cluster.brokers[victim]
        await self._killed(f"broker {victim}", broker.kill)
        await asyncio.to_thread(broker.start)
        self._note(f"broker {victim} started", BACK)
        deadline = time.monotonic() + LIMIT_S * self.patience
        while not self.outcome.is_isr_full:
            if time.monotonic() > deadline:
                raise Failure("the killed broker did not rejoin every ISR")
            described_now = await admin.describe_topics([FLIGHTS, DELAYS])
            self.outcome.is_isr_full = all(
                len(each.isr) == REPLICAS for topic in described_now for each in topic.partitions
            )
            await asyncio.sleep(LOOK_EVERY_S)
        self._note("every ISR is full", BACK)

    async def _hurt_worker(self, admin: Admin) -> None:
        """With its executor, as if the machine had gone; back when the other one alone has gone on."""
        worker = self.spark.workers[1]
        await self._killed("worker 1", worker.kill)
        await asyncio.to_thread(worker.start)
        await asyncio.to_thread(self.spark.wait_ready)
        self._note("worker 1 is back", BACK)

    async def _hurt_driver(self, admin: Admin) -> None:
        """Started again at once, as a supervisor would."""

        def kill_and_start() -> None:
            self._expects_driver = False
            self.driver.kill()
            self._start_driver()

        await self._killed("the driver", kill_and_start)

    async def _killed(self, name: str, kill: Callable[[], None]) -> None:
        """Kill, and wait until flights that were sent later are processed."""
        await asyncio.to_thread(kill)
        killed_s, before = self._now(), self.sent + self.tick_max
        self.kills += 1
        self._note(f"{name} killed", KILLED)
        await self._until(lambda: (self._processed() or 0) > before, f"the stream after {name} was killed")
        self.outcome.recoveries.append(Recovery(name, self._now() - killed_s))
        self._note(f"the stream has got over {name}")

    async def _end(self) -> None:
        """Wait until nothing waits; then what comes far too late, and what closes the last windows."""
        await self._until_all_processed()
        async with Producer(self.cluster.bootstrap, acks="all") as producer:
            forgotten = message("UA", BEGIN_S + DAY_S // 2, 9_999)
            await producer.send_many(FLIGHTS, [forgotten] * STRAGGLERS)
            self.sent += STRAGGLERS
            await self._until_all_processed()
            end_s = BEGIN_S + self.days * DAY_S
            closing = message("--", end_s + (self.watermark_days + 2) * DAY_S, 0)
            await producer.send(FLIGHTS, closing)
            self.sent += 1
        await self._until(
            lambda: all(each.watermark_s() >= end_s for each in self.checkpoints.values()),
            "the last windows",
        )
        await self._until_all_processed()
        self._note("every window is written")

    def _judge(self) -> None:
        task = self.progress.add_task("comparing every window with the flights", total=len(self.outputs))
        wanted = self.outcome.expected.windows
        for name in self.outputs:
            rows = (
                self.parquet.windows()
                if name == "parquet"
                else judge.read_topic(self.cluster.bootstrap, DELAYS, LIMIT_S * self.patience)
            )
            self.outcome.compared[name] = judge.compare(rows, wanted)
            self.progress.advance(task)
        self.outcome.unlisted_files = self.parquet.unlisted()
        self.outcome.took_s = self._now()

    # ------------------------------------------------------------ what is seen

    async def _watch(self, reader: Consumer, total: int) -> None:
        """Take samples, and show them."""
        bars = {"sent": self.progress.add_task("flights as they come", total=total)}
        for name in self.outputs:
            windows = len(self.outcome.expected.windows)
            bars[name] = self.progress.add_task(f"windows by carrier and day: {name}", total=windows)
        while True:
            self._show(bars, await self._look(reader), total)
            await asyncio.sleep(LOOK_EVERY_S)

    async def _look(self, reader: Consumer) -> Sample:
        while "topic" in self.outputs and (came := await reader.poll(LOOK_EVERY_S * 100)):
            self.windows_in_topic += len(came)
        sample = await asyncio.to_thread(self._sample)
        self.outcome.samples.append(sample)
        return sample

    def _sample(self) -> Sample:
        processed = {name: sum(each.processed().values()) for name, each in self.checkpoints.items()}
        windows = {"parquet": self.parquet.count(), "topic": self.windows_in_topic}
        lag = {name: max(0, self.sent - done) for name, done in processed.items()}
        return Sample(self._now(), self.sent, lag, {name: windows[name] for name in self.outputs})

    def _show(self, bars: dict[str, TaskID], sample: Sample, total: int) -> None:
        self.progress.update(bars["sent"], completed=min(total, sample.sent))
        for name in self.outputs:
            told = f"windows by carrier and day: {name}, lag {sample.lag[name]:,}"
            self.progress.update(bars[name], completed=sample.windows[name], description=told)

    def _processed(self) -> int | None:
        """How many records both queries are through with; None before each has done a batch."""
        if any(each.last() < 0 for each in self.checkpoints.values()):
            return None
        return min(sum(each.processed().values()) for each in self.checkpoints.values())

    async def _until_all_processed(self) -> None:
        await self._until(lambda: self._processed() == self.sent, "the lag to be gone")

    async def _until(self, holds: Callable[[], bool], what: str) -> None:
        """Look until it holds; a driver that has ended by itself, or too long a wait, ends the drill."""
        deadline = time.monotonic() + LIMIT_S * self.patience
        while not await asyncio.to_thread(holds):
            self._supervise()
            if time.monotonic() > deadline:
                raise Failure(f"{what}: waited for more than {LIMIT_S * self.patience:.0f} s")
            await asyncio.sleep(LOOK_EVERY_S)

    def _supervise(self) -> None:
        """Start a driver again for which this machine was too slow; any other end of it is a failure."""
        if not self._expects_driver or self.driver.alive:
            return
        if not self.driver.is_too_slow or self.outcome.slow_starts == SLOW_STARTS_MAX:
            raise Failure(f"the driver has ended: {last_words(self.driver.log)}")
        self.outcome.slow_starts += 1
        self.driver.kill()
        self._start_driver()
        self._note("driver started again: Spark waits ten seconds for its Python, and no more")

    def _start_driver(self) -> None:
        self.driver.start()
        self._expects_driver = True

    def _note(self, what: str, color: str | None = None) -> None:
        self.outcome.events.append(Event(self._now(), what, *([color] if color else [])))

    def _now(self) -> float:
        return time.monotonic() - self.began


MARK = "PIPELINE_DRILL"
"""Every process that the drill starts has it in its environment."""


def left_running() -> list[int]:
    """The processes of this drill that have not ended."""
    wanted = f"{MARK}={os.environ[MARK]}".encode()
    found = []
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and wanted in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
        except OSError:
            continue  # it has ended, or is somebody else's
    return sorted(set(found) - {os.getpid()})
