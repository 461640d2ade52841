"""The verdict on a run that is kept on disk, without a cluster: what held, what is told first, what is
damaged.
"""

import json
from pathlib import Path

import pytest

from strandline.testing.anomalies import HistoryWriter, parse
from strandline.testing.verify import ScenarioError, State, judged, load
from strandline.testing.verify.outcome import FILE, Record

SCENARIO = load("kafka-last-isr")  # a writer and a reader
GOOD = """
writer-strandline-1 invoke send orders-0=1
writer-strandline-1 ok send orders-0@0=1
writer-strandline-1 invoke send orders-0=2
writer-strandline-1 ok send orders-0@1=2
reader-strandline-1 ok poll orders-0@0=1 orders-0@1=2
nemesis info fault: kill -9 leader
final ok whole orders-0@0=1 orders-0@1=2
"""


def kept(folder: Path, transcript: str, **record: object) -> Path:
    """The folder of a run with this history."""
    folder.mkdir(exist_ok=True)
    with HistoryWriter(folder / "all.history") as writer:
        for operation in parse(transcript):
            writer.write(operation)
    Record(SCENARIO, "local", "Strandline", "", loaded_s=8, took_s=9, **record).save(folder)  # type: ignore[arg-type]
    return folder


def test_a_good_run_held(tmp_path: Path) -> None:
    outcome = judged(kept(tmp_path, GOOD))
    assert outcome.state is State.HELD and outcome.good and outcome.explanation() == []
    document = outcome.document()
    assert document["verdict"] == "HELD" and document["faults"] == {"kill -9 leader": 1}
    assert document["records"] == {"sent": 2, "acknowledged": 2, "read": 2}
    assert json.loads(json.dumps(document)) == document
    assert "8 s of load, 9 s in all" in str(outcome)


def test_an_anomaly_is_told_first_with_the_operations_that_show_it(tmp_path: Path) -> None:
    lost = GOOD.replace("final ok whole orders-0@0=1 orders-0@1=2", "final ok whole orders-0@1=2")
    outcome = judged(kept(tmp_path, lost, violations=["replicas differ"], unknowns=["and more"]))
    assert outcome.state is State.BROKEN and not outcome.good
    told = outcome.explanation()
    assert told[0].startswith(("lost-write", "hw-leak")) and "ok send orders-0@0=1" in "\n".join(told)
    assert told[-2:] == ["violated: replicas differ", "not known: and more"]
    assert outcome.anomalies()["hw-leak"] == 1


def test_the_shortest_explanation_stands_before_longer_ones(tmp_path: Path) -> None:
    both = GOOD.replace(
        "final ok whole orders-0@0=1 orders-0@1=2", "final ok whole orders-0@0=1 orders-0@1=1"
    )
    told = [line for line in judged(kept(tmp_path, both)).explanation() if "shortest of" in line]
    outcome = judged(tmp_path)
    sizes = [min(len(each.values) for each in outcome.verdict.found[line.partition(",")[0]]) for line in told]
    assert len(sizes) > 1 and sizes == sorted(sizes)


@pytest.mark.parametrize(
    ("removed", "told"),
    [
        ("reader-strandline-1 ok poll orders-0@0=1 orders-0@1=2", "reader-strandline: no polls with records"),
        ("final ok whole orders-0@0=1 orders-0@1=2",
         "not read in the end, so that much may be lost there: orders-0"),
        (GOOD.strip(), "nothing was acknowledged, so nothing was tested"),
    ],
)  # fmt: skip
def test_too_little_is_not_good_but_unknown(tmp_path: Path, removed: str, told: str) -> None:
    assert removed in GOOD
    outcome = judged(kept(tmp_path, GOOD.replace(removed, "")))
    assert outcome.state is State.UNKNOWN and told in "\n".join(outcome.explanation())


def test_what_the_audit_has_found_is_broken_too(tmp_path: Path) -> None:
    outcome = judged(kept(tmp_path, GOOD, violations=["t-0: brokers 1 and 2 differ"]))
    assert outcome.state is State.BROKEN and not outcome.verdict.found
    assert outcome.explanation() == ["violated: t-0: brokers 1 and 2 differ"]


def test_what_a_client_did_not_expect_is_told(tmp_path: Path) -> None:
    kept(tmp_path, GOOD)
    (tmp_path / "writer-strandline-1.1.log").write_text("Traceback (most recent call last):\nKeyError: 7\n")
    assert judged(tmp_path).state is State.UNKNOWN
    assert "KeyError: 7" in str(judged(tmp_path))


def test_what_is_no_run_is_refused_with_its_place(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"run.json cannot be read .* is not the folder of a run"):
        judged(tmp_path)
    for damage, told in (
        ("{", "is damaged"),
        ("[]", "is damaged: expected an object"),
        ('{"format": "strandline-verify", "version": 2}', "was not written by this version"),
        ('{"format": "strandline-verify", "version": 1, "scenario": {}}', "is damaged"),
    ):
        (tmp_path / FILE).write_text(damage)
        with pytest.raises(ScenarioError, match=told):
            judged(tmp_path)
    kept(tmp_path, GOOD)
    (tmp_path / "all.history").write_bytes(b"\xc1")
    with pytest.raises(ScenarioError, match="is no history"):
        judged(tmp_path)
