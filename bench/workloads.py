"""Workloads of the suite (docs/benchmarks.md): each returns its figures for one system as a dict.

Names follow the suite: W1 produce, W3 one record per request and the cannon's ceilings, W6 consume, W10
failover, W13 start-up, W14 idle memory, W15 transactions.
"""

import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from strandline.local.owned import temporary_prefix

from .drivers import (
    Load,
    batch_of,
    cannon,
    consume,
    create_topic,
    leader_of,
    produce,
    produce_at_least,
    steady,
    transactions,
)
from .system import System

Figures = dict[str, float]
START_MAX_S = 60
FAILED_STARTS_MAX = 5
BIG = {"linger.ms": 5, "batch.size": 1_000_000, "batch.num.messages": 100_000}
SINGLE = {
    "linger.ms": 0,
    "batch.num.messages": 1,
    "max.in.flight.requests.per.connection": 5,
    "queue.buffering.max.messages": 1000,  # what waits in the client must not outlive the measurement
}
VALUE = b"v" * 100
CONSUMED = 2_000_000
KILL_AT_S = 3


@contextmanager
def running(kind: type[System], brokers: int) -> Iterator[System]:
    """A fresh system in a directory of its own, gone afterwards."""
    with tempfile.TemporaryDirectory(prefix=temporary_prefix()) as directory:
        warm_memory(Path(directory))
        with kind(Path(directory), brokers) as system:
            yield system


def warm_memory(directory: Path, size: int = 3 << 30, piece: int = 128 << 10) -> None:
    """Touch the page cache that the logs will use: untouched memory is ten times as dear to write."""
    path, data = directory / "warm", b"w" * piece
    with path.open("wb", buffering=0) as file:
        for _ in range(size // piece):
            file.write(data)
    path.unlink()


def measured(system: System, load: Callable[[], Load]) -> tuple[Load, float]:
    """A load and the CPU seconds that the brokers spent on it."""
    before = system.cpu_s()
    done = load()
    return done, system.cpu_s() - before


def produced(system: System, seconds: float, client: Mapping[str, int]) -> tuple[Load, float]:
    """A topic of six partitions with three replicas under this load, and what it cost, after a warm-up."""
    create_topic(system.bootstrap, "topic", 6, 3)
    produce(system.bootstrap, "topic", value=VALUE, seconds=system.warm_up_s, **client)
    return measured(
        system, lambda: produce(system.bootstrap, "topic", value=VALUE, seconds=seconds, **client)
    )


def w1(kind: type[System], seconds: float = 10) -> Figures:
    """100-byte records, three brokers, RF 3, acks=all, linger 5 ms, 1 MB batches, through librdkafka."""
    with running(kind, 3) as system:
        load, cpu_s = produced(system, seconds, BIG)
        return {
            "records/s": load.rate,
            "broker CPU-s/GB": cpu_s / (load.records * 100 / 1e9),
            "failed": float(load.failed),
            "loaded RssAnon MB": system.rss_anon_mb(),
        }


def w3(kind: type[System], seconds: float = 8) -> Figures:
    """One record per request, three brokers, RF 3, acks=all, through librdkafka."""
    with running(kind, 3) as system:
        load, cpu_s = produced(system, seconds, SINGLE)
        return {"requests/s": load.rate, "broker CPU µs/request": cpu_s / load.records * 1e6}


def w3_cannon(kind: type[System], seconds: float = 5) -> Figures:
    """The broker's own cost: one broker, one partition, acks=1, 64 small requests or 4 of 1 MB in flight."""
    small, large = batch_of(1, 100), batch_of(9000, 100)
    figures: Figures = {}
    with running(kind, 1) as system:
        address = ("127.0.0.1", system.ports[1][0])
        for name, batch, window in (("1-record", small, 64), ("1 MB", large, 4)):
            topic = name.replace(" ", "-")
            create_topic(system.bootstrap, topic, 1, 1)
            cannon(address, topic, batch=batch, acks=1, window=window, seconds=kind.warm_up_s / 2)
            load, cpu_s = measured(
                system,
                lambda t=topic, b=batch, w=window: cannon(  # type: ignore[misc]
                    address, t, batch=b, acks=1, window=w, seconds=seconds
                ),
            )
            if batch is small:
                figures["requests/s"] = load.rate
                figures["broker CPU µs/request"] = cpu_s / load.records * 1e6
            else:
                mib = load.records * len(batch) / (1 << 20)
                figures["MiB/s"] = mib / load.seconds
                figures["broker CPU ms/MiB"] = cpu_s / mib * 1e3
    return figures


def w6(kind: type[System]) -> Figures:
    """One consumer reads what there is from offset 0: 100-byte records, six partitions of three brokers."""
    with running(kind, 3) as system:
        create_topic(system.bootstrap, "w6", 6, 3)
        there = produce_at_least(system.bootstrap, "w6", value=VALUE, records=CONSUMED, **BIG)
        consume(system.bootstrap, "w6", partitions=6, records=there)
        load, cpu_s = measured(system, lambda: consume(system.bootstrap, "w6", partitions=6, records=there))
        return {"records/s": load.rate, "broker CPU-s/GB": cpu_s / (load.records * 100 / 1e9)}


def w10(kind: type[System]) -> Figures:
    """kill -9 of the leader of partition 0 at 1,000 records/s, acks=all; the longest gap between two acks."""
    with running(kind, 3) as system:
        create_topic(system.bootstrap, "w10", 10, 3)
        partition_leader = leader_of(system.bootstrap, "w10", 0)
        load = steady(
            system.bootstrap,
            "w10",
            rate=1000,
            seconds=KILL_AT_S + kind.failover_max_s,
            at_s=KILL_AT_S,
            event=lambda: system.signal(partition_leader, signal.SIGKILL),
        )
        return {"longest gap s": load.longest_gap_s, "failed": float(load.failed)}


def w13(kind: type[System], runs: int = 5) -> Figures:
    """From exec to the first acknowledged produce: one broker, its topic exists, ZooKeeper runs."""
    batch, took = batch_of(1, 100), list[float]()
    with running(kind, 1) as system:
        create_topic(system.bootstrap, "w13", 1, 1)
        for _ in range(runs + FAILED_STARTS_MAX):
            system.signal(1, signal.SIGTERM)
            system.wait_ended(1)
            if (start_s := _start_s(system, batch)) is not None:
                took.append(start_s)
            if len(took) == runs:
                return {"start s": sorted(took)[len(took) // 2]}
    raise TimeoutError(f"{kind.name} ended by itself in {FAILED_STARTS_MAX + 1} starts or more")


def _start_s(system: System, batch: bytes) -> float | None:
    """Start the only broker; seconds until it accepts a record. None if it ended by itself meanwhile.

    Kafka 3.9 does that now and then: its last session in ZooKeeper still stands.
    """
    began = time.perf_counter()
    system.start_broker(1)
    while not _accepts(system.ports[1][0], batch):
        if system.processes[1].wait(0):
            sys.stderr.write(f"{system.name} ended while it started; this start is not counted\n")
            return None
        if time.perf_counter() - began > START_MAX_S:
            raise TimeoutError(f"{system.name} did not accept a record in {START_MAX_S} s")
        time.sleep(0.002)
    return time.perf_counter() - began


def w14(kind: type[System], idle_s: float = 20) -> Figures:
    """Anonymous memory of a broker that has nothing to do."""
    with running(kind, 3) as system:
        create_topic(system.bootstrap, "w14", 6, 3)
        threading.Event().wait(idle_s)
        return {"idle RssAnon MB": system.rss_anon_mb()}


def w15(kind: type[System], seconds: float = 8) -> Figures:
    """Transactions of 1, 100 and 10,000 records of 100 bytes, three brokers, RF 3, through librdkafka."""
    figures: Figures = {}
    with running(kind, 3) as system:
        create_topic(system.bootstrap, "w15", 6, 3)
        for records in (1, 100, 10_000):
            done = transactions(
                system.bootstrap, "w15", name=f"w15-{records}", value=VALUE, records=records,
                warm_up_s=kind.warm_up_s / 2, seconds=seconds,
            )  # fmt: skip
            figures[f"transactions of {records}/s"] = done.rate
            figures[f"median of {records} ms"] = done.quantile_ms(0.5)
            figures[f"p99 of {records} ms"] = done.quantile_ms(0.99)
    return figures


def _accepts(port: int, batch: bytes) -> bool:
    try:
        cannon(("127.0.0.1", port), "w13", batch=batch, acks=1, window=1, seconds=0.000001)
    except (OSError, AssertionError, IndexError):
        return False
    return True


WORKLOADS: dict[str, Callable[[type[System]], Figures]] = {
    "W1": w1,
    "W3": w3,
    "W3 cannon": w3_cannon,
    "W6": w6,
    "W10": w10,
    "W13": w13,
    "W14": w14,
    "W15": w15,
}
