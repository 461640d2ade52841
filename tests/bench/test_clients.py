"""Each way of each client does on a real broker what it is measured at; the table compares like with like."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import client_drivers, clients
from bench.client_drivers import CONSUME, PRODUCE, Job
from bench.drivers import create_topic
from bench.system import System
from bench.systems import Strandline


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    with Strandline(tmp_path_factory.mktemp("clients"), 1) as running:
        create_topic(running.bootstrap, "topic", 2, 1)
        yield running


async def awaited(work: object) -> None:
    await work  # type: ignore[misc]


def done(system: System, way: str, most: int, seconds: float) -> dict[str, float]:
    job = Job(system.bootstrap, "topic", 2, 100, seconds)
    job.most = most
    work = {**PRODUCE, **CONSUME}[way](job)
    if work is not None:
        asyncio.run(awaited(work))
    return job.told()


def test_every_way_does_its_work_and_counts_it(system: System) -> None:
    for way in PRODUCE:
        told = done(system, way, 2000, 10)
        assert told["records"] >= 2000 and told["seconds"] > 0 and told["cpu"] > 0, way
    for way in CONSUME:
        told = done(system, way, 3000, 10)
        assert told["records"] >= 3000, way


def test_a_way_that_does_nothing_is_no_figure(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="nothing was done"):
        Job("nowhere:1", "topic", 1, 100, 1).told()
    assert all(way.split(":")[0].split(",")[0] in clients.CLIENTS for way in (*PRODUCE, *CONSUME))
    assert client_drivers.ROUND_RECORDS > 1


def test_the_bundled_client_is_compared_with_the_best_way_of_each_other() -> None:
    rates = {"bundled: poll": [300.0, 100, 200], "aiokafka: for": [20.0], "aiokafka: getmany": [40.0]}
    figures = {(way, "records/s"): values for way, values in rates.items()}
    figures |= {(way, "client CPU µs/record"): [1.0] for way in rates}
    told = clients.table(figures, list(rates))
    assert "| bundled: poll | 200 [100 … 300] | 1.00 | 5.00 |  |" in told
    assert "| aiokafka: getmany | 40.0 | 1.00 |  |  |" in told
