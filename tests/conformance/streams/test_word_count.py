"""A Kafka Streams application, unmodified, on three brokers: each count comes once, in order, whoever dies.

Two instances of a word count with their stores in RocksDB, `exactly_once_v2`, and a standby for each task.
"""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from strandline.testing import LocalCluster
from tests.conformance.probing import Absent
from tests.conformance.streams import jvm
from tests.conformance.streams.brokers import ours
from tests.conformance.streams.scenario import many_die, verify, whoever_dies
from tests.conformance.streams.wordcount import WordCount


@pytest.fixture(scope="session")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        return jvm.compiled(tmp_path_factory.mktemp("classes"))
    except Absent as absent:
        pytest.skip(str(absent))


@pytest.fixture
def counting(running: LocalCluster, classes: Path, tmp_path: Path) -> Iterator[WordCount]:
    application = WordCount(ours(running), tmp_path, classes, f"words-{uuid.uuid4().hex[:8]}")
    yield application
    application.end()


def test_every_count_comes_once_and_in_order_whoever_dies(counting: WordCount) -> None:
    whoever_dies(counting, 100)
    verify(counting)


@pytest.mark.long
def test_every_count_comes_once_and_in_order_while_many_die(counting: WordCount) -> None:
    many_die(counting, 400, 12)
    verify(counting)
