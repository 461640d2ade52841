"""The table of profiles: every rule settles a point, and every point that is shown is shown by a file."""

from dataclasses import fields
from pathlib import Path

from strandline.replication.disagreements import POINTS
from strandline.replication.profiles import DEFAULT, PROFILES, TODAY, Semantics

ROOT = Path(__file__).parent.parent.parent
NO_RULES = {"name", "loses"}


def test_every_rule_settles_a_point_and_no_rule_is_the_same_everywhere() -> None:
    rules = {field.name for field in fields(Semantics)} - NO_RULES
    assert {point.varies for point in POINTS if point.varies} == rules
    for rule in rules:
        assert len({getattr(each, rule) for each in PROFILES.values()}) > 1, rule


def test_all_eighteen_disagreements_are_settled() -> None:
    numbers = [point.number for point in POINTS]
    assert numbers[:18] == [f"D{number}" for number in range(1, 19)]
    for point in POINTS:
        assert not point.shown or (ROOT / point.shown).exists(), point.shown


def test_the_default_loses_nothing_and_is_what_runs_unless_told() -> None:
    assert TODAY is PROFILES[DEFAULT] and TODAY.name == "strandline" and not TODAY.loses
    assert {name for name, each in PROFILES.items() if each.loses} == {"0.8", "0.10", "0.11"}
