"""The matrix of clients, features and events: a cheap part of it in every run, all of it with `-m long`; and
what docs/compatibility.md tells is what came of it.
"""

import dataclasses
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from probing import Absent

from strandline.testing import LocalCluster
from strandline.testing.nursery import forked
from tests.conformance.matrix import page, results
from tests.conformance.matrix import walk as walking
from tests.conformance.matrix.declared import (
    BY_NAME,
    CLIENTS,
    EVENTS,
    FAULTS,
    FEATURES,
    LIMITS,
    STEADY,
    Cell,
    cells,
)
from tests.conformance.matrix.drivers import DRIVERS
from tests.conformance.matrix.features import TRIED
from tests.conformance.matrix.results import FAULT, NOT_OFFERED, PASSES, Outcome
from tests.conformance.matrix.scene import SETTINGS, Scene
from tests.conformance.matrix.walk import again, walk

SHORT = ("transactions", "configs", "headers, timestamps")  # tried nowhere else with each client
PYTHON = ("strandline", "strandline-async", "confluent-kafka", "kcat", "aiokafka", "kafka-python")


def test_what_is_declared_is_tried() -> None:
    names = [client.name for client in CLIENTS]
    assert names == list(DRIVERS)
    assert list(TRIED) == [feature.name for feature in FEATURES] == list(BY_NAME)
    assert all(set(feature.events) <= set(EVENTS) for feature in FEATURES)
    assert all(client in names and feature in BY_NAME for client, feature in LIMITS)


def test_no_cell_is_missing() -> None:
    walks = results.load()
    assert list(walks) == [client.name for client in CLIENTS], "run `make compatibility`"
    for client, walked in walks.items():
        found = [Cell(one.client, one.feature, one.event) for one in walked.outcomes]
        assert sorted(found) == sorted(cells(client)), f"run the walk with --client {client}"
        for one in walked.outcomes:
            limit, fault = LIMITS.get((client, one.feature)), FAULTS.get((client, one.feature, one.event))
            assert (one.outcome == NOT_OFFERED) == (limit is not None), one
            assert (one.outcome == FAULT) == (fault is not None), one
            assert one.reason == (limit or fault or "") or one.outcome == results.FAILS, one


def test_the_page_tells_what_came_of_it() -> None:
    assert page.PAGE.read_text() == page.render(), "run `python -m tests.conformance.matrix.page`"


def test_the_page_tells_what_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """A failure cannot hide: it has its mark in the table, and its reason below."""
    walks = results.load()
    walked = walks["kcat"]
    lost = Outcome("kcat", "produce, acks=all", "leader killed", results.FAILS, "acknowledged and lost: 17")
    outcomes = [
        lost if (one.feature, one.event) == (lost.feature, lost.event) else one for one in walked.outcomes
    ]
    damaged = walks | {"kcat": dataclasses.replace(walked, outcomes=outcomes)}
    monkeypatch.setattr(results, "load", lambda: damaged)
    told = page.render()
    assert told.count("✗") == page.PAGE.read_text().count("✗") + 1
    assert "kcat: produce, acks=all (leader killed): acknowledged and lost: 17" in told


def test_the_page_tells_of_how_many_walks_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    walks = {
        client: dataclasses.replace(one, walk="2026-01-02 03:04") for client, one in results.load().items()
    }
    monkeypatch.setattr(results, "load", lambda: walks)
    assert "of one walk, begun on 2026-01-02 03:04" in page.render()
    walks["kcat"] = dataclasses.replace(walks["kcat"], walk="2026-01-02 04:05")
    assert "of 2 walks" in page.render()


def test_what_was_run_again_is_told_with_why_it_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = Outcome("kcat", "produce, acks=all", "leader killed", results.FAILS, "acknowledged and lost: 17")
    passed = dataclasses.replace(failed, outcome=PASSES, reason="", gap_s=0.5)
    walks = results.load()
    first = dataclasses.replace(walks["kcat"], outcomes=[failed])
    walks["kcat"] = again(again(first, [dataclasses.replace(failed, reason="lost: 3")]), [passed])
    monkeypatch.setattr(results, "load", lambda: walks)
    told = page.render()
    assert (
        "kcat: produce, acks=all (leader killed): acknowledged and lost: 17" in told.split("## Run again")[1]
    )
    assert walks["kcat"].outcomes == [dataclasses.replace(passed, again="acknowledged and lost: 17")]
    declared = dataclasses.replace(failed, outcome=FAULT, reason="it loses")
    assert again(first, [declared]).outcomes == [declared], "what is declared is not tried"


def test_after_a_failure_comes_a_new_program(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[object] = []
    used: list[int] = []

    @contextmanager
    def program(client: str, bootstrap: str) -> Iterator[object]:
        opened.append(object())
        yield opened[-1]

    def tried(scene: Scene) -> None:
        used.append(opened.index(scene.driver))
        assert len(used) != 2, "the second cell fails"

    monkeypatch.setattr(walking, "driving", program)
    monkeypatch.setitem(TRIED, "topics", tried)
    cluster: Any = SimpleNamespace(bootstrap="127.0.0.1:1")
    monkeypatch.delitem(LIMITS, ("kcat", "topics"))
    walk(cluster, "kcat", [Cell("kcat", "topics", STEADY)] * 4, lambda outcome: None)
    assert used == [0, 0, 1, 1]


def test_results_are_read_as_they_were_written() -> None:
    assert results.text(results.load()) == results.FILE.read_text()


@pytest.fixture
def told() -> Any:
    """Lines for who watches the run."""
    return lambda outcome: print(outcome)


@pytest.mark.parametrize("client", PYTHON)
def test_what_no_other_test_tries(client: str, running: LocalCluster, told: Any) -> None:
    if client == "kcat" and shutil.which("kcat") is None:
        pytest.skip("kcat is missing: apt-get install kcat")
    _passes(
        walk(
            running,
            client,
            [one for one in cells(client) if one.feature in SHORT and one.event == STEADY],
            told,
        )
    )


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A cluster on which brokers are killed one after the other."""
    local = forked(LocalCluster(tmp_path_factory.mktemp("matrix"), 3, settings=SETTINGS))
    local.start()
    yield local
    local.kill()


@pytest.mark.long
@pytest.mark.parametrize("client", DRIVERS)
def test_every_cell(client: str, stage: LocalCluster, told: Any) -> None:
    try:
        _passes(walk(stage, client, list(cells(client)), told))
    except Absent as absent:
        pytest.skip(str(absent))


def _passes(outcomes: list[Outcome]) -> None:
    assert outcomes
    failed = [one for one in outcomes if one.outcome not in (PASSES, NOT_OFFERED, FAULT)]
    assert not failed, "\n".join(
        f"{Cell(one.client, one.feature, one.event)}: {one.reason}" for one in failed
    )
