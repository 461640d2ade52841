"""`format("kafka")` and `format("strandline")` read the same: a job moves over by changing one word.

Where they differ on purpose the set says why. `make spark-matrix` runs all sets, `make test` the core.
"""

import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from strandline.client.spark.admission import HAS_ADMISSION_CONTROL
from strandline.local.cluster import LocalCluster
from tests.client.spark.parity.reading import Source, by_task, plain, refusal, whole
from tests.client.spark.parity.refusals import DIFFERING, REFUSED, Differing, Refused
from tests.client.spark.parity.sets import BATCHES, STREAMS, Read, Streamed

Sources = tuple[Source, Source]


def sets(listed: list[Any]) -> Any:
    """One test for each set; those outside of the core belong to the whole matrix."""
    return pytest.mark.parametrize(
        "given",
        [pytest.param(each, id=each.name, marks=() if each.core else pytest.mark.matrix) for each in listed],
    )


@pytest.fixture
def sources(both: SparkSession, brokers: LocalCluster) -> Sources:
    """Spark's own, and ours."""
    return Source(both, "kafka", brokers.bootstrap), Source(both, "strandline", brokers.bootstrap)


def test_the_matrix_is_large_enough_and_names_each_set_once() -> None:
    assert len([*BATCHES, *STREAMS]) >= 60
    for listed in (BATCHES, STREAMS, REFUSED, DIFFERING):
        assert len({each.name for each in listed}) == len(listed)
        assert any(each.core for each in listed)


@sets(BATCHES)
def test_a_batch_is_the_same(sources: Sources, given: Read) -> None:
    theirs, ours = (source.batch(given.options) for source in sources)
    assert plain(ours) == plain(theirs)
    assert len(ours) == given.rows or (given.rows < 0 < len(ours))
    if given.by_task:
        assert by_task(ours) == by_task(theirs)


@sets(STREAMS)
def test_a_stream_is_the_same(sources: Sources, tmp_path: Path, given: Streamed) -> None:
    theirs, ours = (source.stream(given.options, tmp_path / source.name) for source in sources)
    rows = whole(ours)
    assert rows == whole(theirs)
    assert len(rows) == given.rows or (given.rows < 0 < len(rows))
    if given.by_batch and HAS_ADMISSION_CONTROL:
        assert [plain(batch) for batch in ours] == [plain(batch) for batch in theirs]
        if given.by_task:
            assert [by_task(batch) for batch in ours] == [by_task(batch) for batch in theirs]


@sets(REFUSED)
def test_what_one_refuses_the_other_does(sources: Sources, tmp_path: Path, given: Refused) -> None:
    theirs, ours = (
        refusal(source.stream, given.options, tmp_path / source.name)
        if given.stream
        else refusal(source.batch, given.options)
        for source in sources
    )
    assert re.search(given.theirs, theirs), theirs[:1000]
    assert given.ours in ours.splitlines()[0], ours


@sets(DIFFERING)
def test_what_differs_on_purpose(sources: Sources, tmp_path: Path, given: Differing) -> None:
    for source, wanted in zip(sources, (given.theirs, given.ours), strict=True):
        checkpoint = tmp_path / source.name
        if isinstance(wanted, str):
            read = (
                (source.stream, given.options, checkpoint) if given.stream else (source.batch, given.options)
            )
            assert wanted in refusal(*read), f"{source.name}, {given.why}"
        elif given.stream:
            assert sum(map(len, source.stream(given.options, checkpoint))) == wanted, given.why
        else:
            assert len(source.batch(given.options, given.schema)) == wanted, given.why
