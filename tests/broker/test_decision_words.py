"""Decisions in words: each that is recorded has its own, with reasons; those of other versions as noted."""

import ast
from pathlib import Path
from typing import Any

import pytest

import strandline
from strandline.broker.decision_words import OF_BROKER, OF_CONTROLLER, at_length, reasons, sentence

ELECTION = {
    "leader": 2, "leader_before": 1, "epoch": 5, "isr": [2, 3], "isr_before": [1, 2, 3], "unclean": False,
    "recovering": False, "cause": "broker 1 went", "candidates": {2: "electable", 3: "electable"},
}  # fmt: skip
LATE = {"broker": 3, "end": 7, "caught_up_ago_s": 30.24}
SHRINK = {"isr": [2, 3], "asked": [2], "leader_end": 25, "leaving": [LATE]}


@pytest.mark.parametrize(
    ("what", "by_controller", "values", "told"),
    [
        (
            "elected", True, ELECTION,
            "broker 2 leads after broker 1 in epoch 5; ISR 2, 3, was 1, 2, 3, because broker 1 went; "
            "broker 2: electable; broker 3: electable",
        ),
        (
            "isr_shrink_proposed", False, SHRINK,
            "asks to remove 3 from the ISR 2, 3; broker 3 is at 7 of 25, last caught up 30.2 s before",
        ),
        ("went_offline", True, {"isr": []}, "offline: no member of the ISR none may lead"),
        ("went_offline", False, {"why": "EIO"}, "the replica is offline: EIO"),
        (
            "may_have_lost", True, {"leader": 2, "ends": {2: [4, 17]}},
            "broker 2 may lack acknowledged records; the log of broker 2 ends at 17, epoch 4",
        ),
        ("session", False, {"state": "EXPIRED"}, "ZooKeeper session: EXPIRED"),
    ],
)  # fmt: skip
def test_a_decision_at_length(what: str, by_controller: bool, values: dict[str, Any], told: str) -> None:
    assert at_length(what, values, by_controller) == told


@pytest.mark.parametrize(
    ("what", "values", "told"),
    [
        ("thrown_out", {"dice": 6, "at_ms": 1}, "thrown out: dice 6"),
        ("elected", {"leader": 6}, "elected: leader 6"),
        ("elected", {**ELECTION, "isr": None}, "elected: leader 2, leader_before 1, epoch 5, isr None"),
        ("elected", {**ELECTION, "candidates": "many"}, "candidates: many"),
        ("isr_shrink_proposed", {**SHRINK, "leaving": [{**LATE, "caught_up_ago_s": "long"}]}, "leaving: ["),
        ("may_have_lost", {"leader": 2, "ends": {2: 17}}, "ends: {2: 17}"),
    ],
)
def test_what_another_version_has_noted_is_told_and_no_error(
    what: str, values: dict[str, Any], told: str
) -> None:
    assert told in at_length(what, values, True)


def noted_in(path: Path) -> set[str]:
    """The names of decisions that this file notes; those of roles are made of the role."""
    calls = (each for each in ast.walk(ast.parse(path.read_text())) if isinstance(each, ast.Call))
    named = (each for each in calls if ast.unparse(each.func).split(".")[-1] in ("note", "Note"))
    return {
        part.value
        for call in named
        for part in (ast.walk(call.args[1]) if len(call.args) > 1 else ())
        if isinstance(part, ast.Constant) and isinstance(part.value, str) and not part.value.endswith("_")
    }


def test_every_decision_that_is_recorded_has_its_words() -> None:
    root = Path(strandline.__file__).parent
    files = [root / "broker/node.py", root / "controller/planning/decision_notes.py"]
    files += [*(root / "broker/replicas").glob("*.py"), *(root / "broker/roles").glob("*.py")]
    noted = set().union(*map(noted_in, files))
    assert {"created", "isr_changed", "session", "started", "cut_waits", "became_controller"} <= noted
    assert noted <= OF_BROKER.keys() | OF_CONTROLLER.keys()


def test_the_cause_comes_first() -> None:
    assert reasons(ELECTION)[0] == "because broker 1 went"
    assert reasons({"epoch": 3}) == [] and sentence("write_overtaken", {}, True).endswith("another write")
