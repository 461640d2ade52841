"""Tables of a sitting: medians, ranges and ratios."""

import itertools
import json
from pathlib import Path

import pytest

from bench import smoke
from bench.system import System
from bench.systems import MEASURED
from bench.tables import PAGES, ROOT, Results, first_page, full, note, number, with_figures


def sitting(systems: dict[str, list[float]]) -> Results:
    """A sitting in which every figure of a system has these values."""
    figures = {
        workload: {name: {figure: values} for name, values in systems.items()}
        for workload, figure in {"W1": "records/s", "W13": "start s"}.items()
    }
    return {
        "date": "2026-01-02",
        "cores": 2,
        "systems": list(systems),
        "rounds": 3,
        "others_cores": {"W1": {name: [0.5, 0.1, 0.25] for name in systems}},
        "seconds": 60.0,
        "figures": figures,
    }


def test_a_row_has_medians_ranges_and_a_ratio_to_each_peer() -> None:
    told = full(sitting({"strandline": [9, 8, 100], "kafka-3.9": [4.5, 4.5, 4.5], "kafka-4.3": [3, 18, 20]}))
    assert told.splitlines()[0] == (
        "| workload | Strandline | Kafka 3.9.1 | Kafka 4.3.1 | to kafka-3.9 | to kafka-4.3 |"
    )
    row = "9.00 [8.00 … 100] | 4.50 | 18.0 [3.00 … 20.0] | 2.00 | 0.50 |"
    assert f"| W1, records/s | {row}" in told and f"| W13, start s | {row}" in told


def test_without_peers_there_is_no_ratio() -> None:
    assert full(sitting({"strandline": [1.0]})).splitlines()[2] == "| W1, records/s | 1.00 |"
    assert full(sitting({"kafka-4.3": [1.0]})).splitlines()[2] == "| W1, records/s | 1.00 |"


def test_the_first_page_compares_with_the_better_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "bench.tables.FIRST_PAGE", (("rate", "W1", "records/s", True), ("start", "W13", "start s", False))
    )
    told = first_page(sitting({"strandline": [8.0], "kafka-3.9": [4.0], "kafka-4.3": [2.0]}))
    assert told.splitlines()[2:] == [
        "| rate | 8.00 | 4.00 | 2.00 | 2.00 × |",
        "| start | 8.00 | 4.00 | 2.00 | 4.00 × |",
    ]


def test_the_circumstances_are_told() -> None:
    said = " ".join(note(sitting({"strandline": [1.0], "kafka-4.3": [1.0]})).split())
    for words in ("3 rounds on 2026-01-02, on 2 cores", "other work used 0.25 cores", "at most 0.50"):
        assert words in said


@pytest.mark.parametrize("name", PAGES)
def test_a_page_takes_other_figures_in_the_place_of_the_old(name: str) -> None:
    page = (ROOT / name).read_text()
    once = with_figures(page, "| new |\n")
    assert "| new |" in once and len(once) < len(page)
    assert with_figures(once, "| new |\n") == once
    assert page.startswith(once[:100]) and page.endswith(once[-100:])


def test_numbers_have_three_digits() -> None:
    assert [number(value) for value in (730_412.0, 1267.0, 628.4, 31.64, 5.5, 0.4449, 0.0191, 0)] == [
        "730,000",
        "1,270",
        "628",
        "31.6",
        "5.50",
        "0.44",
        "0.019",
        "0",
    ]


def run_smoke(monkeypatch: pytest.MonkeyPatch, path: Path, *more: str) -> list[tuple[str, str]]:
    """The suite with workloads that cost nothing; who was measured with what, in order."""
    asked: list[tuple[str, str]] = []

    def workload(name: str) -> object:
        def measured(kind: type[System]) -> dict[str, float]:
            asked.append((name, kind.name))
            return {"figure": float(len(asked))}

        return measured

    monkeypatch.setattr(smoke, "ALL", {name: workload(name) for name in ("W1", "W2")})
    monkeypatch.setattr("sys.argv", ["smoke", "--only", "W1,W2", "--json", str(path), *more])
    assert smoke.main() == 0
    return asked


def test_every_round_begins_with_another_system(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, names = tmp_path / "figures.json", [kind.name for kind in MEASURED]
    asked = run_smoke(monkeypatch, path)
    assert len(asked) == 2 * 3 * 3
    for place in range(3):
        turned = names[place:] + names[:place]
        assert asked[6 * place : 6 * place + 6] == [(w, name) for w in ("W1", "W2") for name in turned]
    kept: Results = json.loads(path.read_text())
    assert kept["rounds"] == 3 and kept["figures"]["W1"]["strandline"]["figure"] == [1, 9, 14]
    assert capsys.readouterr().out == full(kept)


@pytest.mark.parametrize(("busy", "own", "others"), [(5, 2, True), (2, 5, False)])
def test_what_others_use_meanwhile_is_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, busy: int, own: int, others: bool
) -> None:
    clocks = {"_busy_s": itertools.count(step=busy), "_own_s": itertools.count(step=own)}
    for name, values in clocks.items():
        monkeypatch.setattr(smoke, name, lambda values=values: next(values))
    path = tmp_path / "figures.json"
    run_smoke(monkeypatch, path, "--rounds", "1", "--systems", "strandline")
    (used,) = json.loads(path.read_text())["others_cores"]["W1"]["strandline"]
    assert (used > 0) == others


def test_no_round_begins_when_the_time_is_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "figures.json"
    asked = run_smoke(monkeypatch, path, "--minutes", "0", "--systems", "strandline,kafka-4.3")
    assert asked == [(w, name) for w in ("W1", "W2") for name in ("strandline", "kafka-4.3")]
    assert json.loads(path.read_text())["rounds"] == 1
