"""The checker of transactional histories: golden transcripts, and histories on disk.

Each transcript under tests/scenarios/anomalies/ says with `expect:` exactly what is to be found in it.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from strandline.testing.anomalies import (
    DamagedHistory,
    HistoryWriter,
    Notes,
    Operation,
    judge_operations,
    parse,
    read_header,
    read_history,
    told,
)
from strandline.testing.anomalies.checker import NAMES
from strandline.testing.anomalies.following import Following
from strandline.testing.anomalies.operations import Action, Record, Type
from strandline.testing.verify.clients.stuck import blame, overdue_in
from strandline.testing.verify.enough import ACTS, behind, done, lacking, traceback_in, tracebacks
from strandline.testing.verify.kinds import KINDS
from strandline.testing.verify.scenario import load

GOLDEN = sorted((Path(__file__).parent.parent / "scenarios" / "anomalies").glob("*.txt"))


def golden(path: Path) -> tuple[set[str], list[Operation]]:
    """What is to be found, and where."""
    (expected,) = (line for line in path.read_text().splitlines() if line.startswith("expect: "))
    found = set(expected.removeprefix("expect: ").split()) - {"nothing"}
    return found, parse(path.read_text().replace(expected, ""))


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_a_golden_history_shows_just_what_it_says(path: Path) -> None:
    expected, operations = golden(path)
    verdict = judge_operations(operations)
    assert set(verdict.found) == expected, verdict
    for name in expected:
        evidence = verdict.found[name][0]
        assert len(verdict.explanation(evidence)) > 1, f"{name} names no operation"


def test_every_anomaly_has_a_golden_history() -> None:
    assert set().union(*(golden(path)[0] for path in GOLDEN)) == set(NAMES)


def test_a_history_comes_back_from_disk_as_it_was(tmp_path: Path) -> None:
    _, operations = golden(GOLDEN[0])
    for number, process in enumerate(sorted({each.process for each in operations})):
        with HistoryWriter(tmp_path / f"{number}.history", {"seed": 7}) as writer:
            for each in operations:
                if each.process == process:
                    writer.write(each)
    assert read_history(*tmp_path.iterdir()) == operations
    assert read_header(tmp_path / "0.history")["seed"] == 7


def test_histories_are_followed_while_they_are_written(tmp_path: Path) -> None:
    following = Following(tmp_path)
    assert list(following.fresh()) == []
    written: list[Operation] = []
    with HistoryWriter(tmp_path / "a.history") as one, HistoryWriter(tmp_path / "b.history") as other:
        for writer in (one, other, one):
            operation = Operation(len(written), "p", Type.OK, Action.SEND, (Record("t", 0, 1, 2),))
            writer.write(operation)
            written.append(operation)
            assert list(following.fresh()) == [operation]
    assert list(following.fresh()) == []
    whole = (tmp_path / "a.history").read_bytes()
    (tmp_path / "c.history").write_bytes(whole[:-3])  # torn in its last entry, for now
    assert list(following.fresh()) == [written[0]]
    (tmp_path / "c.history").write_bytes(whole)
    assert list(following.fresh()) == [written[2]]


def test_what_was_torn_at_the_end_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "torn.history"
    with HistoryWriter(path) as writer:
        notes = Notes(writer, "a", "a")
        for value in (1, 2):
            notes.note(Type.INVOKE, Action.SEND, [Record("t", 0, value=value)], transaction=1)
    whole = path.read_bytes()
    for kept in range(len(whole) - 1, len(whole) - 8, -1):
        path.write_bytes(whole[:kept])
        (first,) = read_history(path)
        assert first.records[0].value == 1


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda whole: b"", "is no history"),
        (lambda whole: b"hello", "is no history"),
        (lambda whole: whole + b"\xc1", "byte"),
        (lambda whole: whole + b"\x91\x01", "an operation is an array"),
        (lambda whole: whole.replace(b"\xa7version\x01", b"\xa7version\x63"), "version 99"),
    ],
)
def test_what_is_no_history_is_refused_with_its_place(tmp_path: Path, damage, message: str) -> None:
    path = tmp_path / "damaged.history"
    HistoryWriter(path).close()
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(DamagedHistory, match=message) as caught:
        read_history(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("line", ["a ok send t=1", "a ok jump t-0@1", "a done send t-0=1"])
def test_a_transcript_that_says_nothing_is_refused_with_its_line(line: str) -> None:
    with pytest.raises(ValueError, match="line 2"):
        parse(f"a invoke send t-0=1\n{line}")


def test_an_explanation_tells_the_operations_that_matter() -> None:
    _, operations = golden(next(path for path in GOLDEN if path.stem == "g1a"))
    verdict = judge_operations(operations)
    assert "invoke abort #1" in str(verdict) and "G1a, the shortest of 1" in str(verdict)
    assert told(operations[0]).split() == ["2.000", "a", "invoke", "send", "#1", "t-0=1"] or told(
        operations[0]
    )


def test_an_explanation_tells_the_faults_that_came_in_between() -> None:
    lost = """p invoke send t-0=1 t-0=2
    n info fault: before
    p ok send t-0@0=1 t-0@1=2
    n info fault: broker 2 killed
    final ok whole t-0@1=2
    n info fault: after"""
    verdict = judge_operations(parse(lost))
    (evidence,) = verdict.found["lost-write"]
    told = verdict.explanation(evidence)
    assert [line.split()[-1] for line in told[1:]] == ["t-0=1", "before", "t-0@0=1"]
    moved = lost.replace("final ok", "p ok poll t-0@0=1\nfinal ok")
    (evidence,) = judge_operations(parse(moved)).found["hw-leak"]
    told = judge_operations(parse(moved)).explanation(evidence)
    assert [line.split()[-1] for line in told[1:]] == ["t-0=1", "before", "t-0@0=1", "killed", "t-0@0=1"]


def test_nothing_acknowledged_is_not_good() -> None:
    assert not judge_operations([]).good


ACKNOWLEDGED = "p invoke send t-0=1 t-1=2\np ok send t-0@0=1 t-1@0=2\n"


def test_what_was_acknowledged_and_never_looked_for_is_not_good() -> None:
    half = judge_operations(parse(f"{ACKNOWLEDGED}final ok whole t-0@0=1"))
    assert not half.found and not half.good
    assert "not read in the end (`whole` or `empty`), so that much may be lost there: t-1\n" in str(half)
    whole = judge_operations(parse(f"{ACKNOWLEDGED}final ok whole t-0@0=1 t-1@0=2"))
    assert whole.good and "not read in the end" not in str(whole)


def test_who_deletes_says_before_which_offset() -> None:
    with pytest.raises(ValueError, match="before which offset, as in t-0@7"):
        judge_operations(parse("n ok deleted t-0"))


CLIENTS = load("anomalies").clients
READERS = {each.called: ("t",) for each in CLIENTS if KINDS[each.kind].reads_all}


def test_every_kind_of_client_must_have_done_what_it_is_there_for() -> None:
    """All but one thing is done by all clients; that one is missed, by name."""
    acts = {
        Action.SEND: "ok send t-0@0=1",
        Action.COMMIT: "ok commit #1",
        Action.ABORT: "ok abort #1",
        Action.POLL: "ok poll t-0@0=1",
    }
    lines = {
        (each.called, act): f"{each.called}-1/2 {acts[act]}"
        for each in CLIENTS
        for act in KINDS[each.kind].demands
    }
    assert lacking(done(parse("\n".join(lines.values())), CLIENTS), CLIENTS) == []
    for name, act in lines:
        rest = [line for key, line in lines.items() if key != (name, act)]
        told = lacking(done(parse("\n".join([*rest, f"{name}-1 ok poll"])), CLIENTS), CLIENTS)
        assert told == [f"{name}: no {ACTS[act]}; so the run proves nothing about it"]


def test_a_traceback_of_a_client_is_found_with_its_text() -> None:
    assert traceback_in("") == traceback_in("reader-1 ends: fenced\n") == ""
    text = "reader-1 ends: fenced\nTraceback (most recent call last):\n%7|1|SEND|x\n  …\nKeyError: 7\n"
    assert traceback_in(text) == text.replace("%7|1|SEND|x\n", "")


def test_a_traceback_of_a_broker_counts_if_it_came_in_the_run() -> None:
    before = "started\nTraceback (most recent call last):\nKeyError: 1\n"
    assert tracebacks({1: before, 2: "started"}, {1: len(before)}) == []
    (told,) = tracebacks({1: before + "Traceback …\nKeyError: 2\n", 2: "started"}, {1: len(before)})
    assert told.startswith("broker 1 has logged") and "KeyError: 2" in told and "KeyError: 1" not in told
    assert len(tracebacks({1: before}, {})) == 1


def test_a_client_whose_call_never_returns_ends_and_is_told() -> None:
    assert overdue_in("") == []
    stuck = (
        "import time; from strandline.testing.verify.clients import librdkafka as s; s.OVERDUE_S = 0.1; "
        "s.again(time.sleep, 60)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", stuck], stderr=subprocess.PIPE, text=True, timeout=30, check=False
    )
    assert ended.returncode == 1
    assert "sleep has not returned within 0.1 s" in overdue_in(ended.stderr)[0]


def said(at_s: float, broker: str, what: str) -> str:
    """A line of librdkafka's log."""
    return f"%7|{at_s:.3f}|SEND|copier-1#producer-1| [thrd:{broker}]: {broker}: {what}\n"


ONE, OTHER = "10.77.0.1:9092/1", "10.77.0.2:9092/2"
ASKED = said(100, ONE, "Sent TxnOffsetCommitRequest (v3, 120 bytes @ 0, CorrId 12)")
STUCK = "copier-1 2001 ends: send_offsets_to_transaction has not returned within 40 s\n"
LATER = said(139, OTHER, "Sent MetadataRequest (v12, 40 bytes @ 0, CorrId 3)") + said(
    139.5, OTHER, "Received MetadataResponse (v12, 400 bytes, CorrId 3, rtt 1.20ms)"
)


@pytest.mark.parametrize(
    "ended",
    [
        said(101, ONE, "Received TxnOffsetCommitResponse (v3, 60 bytes, CorrId 12, rtt 3.10ms)"),
        said(101, ONE, "Broker changed state UP -> DOWN"),
    ],
)
def test_a_client_that_was_answered_is_stuck_by_its_own_fault(ended: str) -> None:
    own, of_brokers = blame(ASKED + ended + LATER + STUCK)
    assert own == [f"{STUCK.strip()}; every request was answered"] and not of_brokers


@pytest.mark.parametrize(
    "beside",
    [
        said(101, ONE, "Received TxnOffsetCommitResponse (v3, 60 bytes, CorrId 11, rtt 3.10ms)"),
        said(101, OTHER, "Received TxnOffsetCommitResponse (v3, 60 bytes, CorrId 12, rtt 3.10ms)"),
        said(101, OTHER, "Broker changed state UP -> DOWN"),
        "",
    ],
)
def test_a_broker_that_has_not_answered_is_to_blame(beside: str) -> None:
    own, of_brokers = blame(ASKED + beside + LATER + STUCK)
    assert not own
    assert of_brokers == [f"{STUCK.strip()}; without an answer: TxnOffsetCommit to {ONE} at 100.000"]


def test_a_request_that_was_sent_just_now_may_be_answered_yet() -> None:
    own, of_brokers = blame(ASKED + said(101, OTHER, "Wake-up sent") + STUCK)
    assert own and not of_brokers
    assert blame(ASKED + LATER) == ([], []), "nobody is stuck"


def test_each_kind_of_reader_must_have_come_to_every_end() -> None:
    """All are handed the last record but one kind: it is told, with how far it came."""
    final = "final ok whole t-0@0=1 t-0@4=2"
    lines = {name: f"{name}-1 ok poll t-0@0=1\n{name}-2 ok poll t-0@4=2" for name in READERS}
    assert behind(parse("\n".join([final, *lines.values()])), READERS) == []
    for name in lines:
        short = {**lines, name: f"{name}-1 ok poll t-0@0=1"}
        told = f"{name} has come to 0 in t-0, whose last record is 4"
        assert behind(parse("\n".join([final, *short.values()])), READERS) == [told]
    beside = parse(f"final ok whole in-0@0=1\n{lines['reader-strandline']}")
    assert behind(beside, {"reader-strandline": ("in",)}) == [
        "reader-strandline has come to nothing in in-0, whose last record is 0"
    ]
