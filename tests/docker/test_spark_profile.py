"""The profile `spark` as its users start it: a year of flights through Spark, every window judged."""

import io
import tarfile
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import docker
import pyarrow.parquet as parquet
import pytest
from compose_command import Compose
from waiting import BOOTSTRAP, all_healthy, wait

from examples.pipeline.drill.judge import Compared, compare, expected, read_topic
from examples.pipeline.drill.watch import ParquetSink, Window
from examples.pipeline.flights import YEAR, archive

pytestmark = [pytest.mark.docker, pytest.mark.long]

CLOSED = date(2013, 12, 28)  # windows before: the year's last flights moved the watermark past them
PROFILE = ("--profile", "spark")
WINDOWS_S = 600
PATIENCE_S = 60


@pytest.fixture
def spark_stack(spark_wheels: None, stack: Compose) -> Iterator[Compose]:
    """The stack with the profile's containers, and its image built."""
    stack.run(*PROFILE, "build", "flights")
    stack.run(*PROFILE, "up", "--detach")
    yield stack
    stack.run(*PROFILE, "rm", "--stop", "--force", "delays", "flights", "topics")


def test_every_window_of_a_year_is_in_the_topic_and_in_the_files(
    compose: docker.DockerClient, spark_stack: Compose, tmp_path: Path
) -> None:
    wait("all brokers are healthy", lambda: all_healthy(compose))
    flights, delays = (
        compose.containers.get(spark_stack.run(*PROFILE, "ps", "--quiet", "--all", name).strip())
        for name in ("flights", "delays")
    )
    sent = flights.wait(timeout=WINDOWS_S)
    assert sent["StatusCode"] == 0, flights.logs(tail=50).decode()
    wanted = {key: window for key, window in expected(archive(), YEAR).windows.items() if key[1] < CLOSED}

    def found() -> list[Compared]:
        outcomes = (read_topic(BOOTSTRAP, "delays", PATIENCE_S), files_of(delays, tmp_path))
        return [compare([row for row in rows if row.day < CLOSED], wanted) for rows in outcomes]

    def all_there() -> bool:
        delays.reload()
        assert delays.attrs["RestartCount"] == 0, delays.logs(tail=100).decode()
        return not any(outcome.missing for outcome in found())

    took_s = wait("every window is there", all_there, within_s=WINDOWS_S, look_every_s=3)
    print(f"every window was there {took_s:.0f} s after the last flight")
    for outcome in found():
        assert outcome.exact and not outcome.repeated, outcome


def files_of(delays: docker.models.containers.Container, into: Path) -> list[Window]:
    """The rows of the Parquet files in the volume that Spark lists."""
    parts, _ = delays.get_archive("/data/delays")
    with tarfile.open(fileobj=io.BytesIO(b"".join(parts))) as packed:
        packed.extractall(into, filter="data")
    listed = [into / "delays" / path.name for path in ParquetSink(into / "delays").listed()]
    read = (parquet.ParquetFile(path).read(list(Window._fields)).to_pylist() for path in listed)
    return [Window(**row) for rows in read for row in rows]
