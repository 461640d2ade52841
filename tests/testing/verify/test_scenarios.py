"""Scenario files: what is read, what is refused and with which words, and the schedule that a seed gives."""

from pathlib import Path

import pytest

from strandline.testing.verify.faults import FAULTS
from strandline.testing.verify.scenario import Scenario, ScenarioError, changed, load, parsed, shipped
from strandline.testing.verify.schedule import planned, strikes

GOOD = """
load_s = 30
[topics.orders]
partitions = 3
[topics.copies]
partitions = 3
[[clients]]
kind = "transactions"
topics = ["orders"]
[[clients]]
kind = "copier"
topics = ["orders"]
to = "copies"
[faults]
at = [{ s = 9, fault = "kill-leader" }, { s = 3, fault = "restart", hold_s = 1 }]
drawn = ["kill-leader", "kill_controller", "pause-leader"]
"""


def scenario(text: str = GOOD) -> Scenario:
    return parsed(text, "story", "story.toml")


def test_what_is_not_said_has_a_default() -> None:
    small = scenario('[topics.t]\n[[clients]]\nkind = "writer"')
    assert small.seed == 1 and small.load_s == 60 and small.topics["t"].partitions == 6
    assert small.clients[0].called == "writer-strandline" and small.topics_of(small.clients[0]) == ("t",)
    assert planned(small, FAULTS) == []


def test_all_that_are_shipped_can_be_run_somewhere() -> None:
    assert {"smoke", "failover", "transactions", "kafka-last-isr", "anomalies"} <= shipped().keys()
    for name, about in shipped().items():
        assert about and planned(load(name), FAULTS), name


MISTAKES: dict[tuple[str, str], str] = {
    # in GOOD, what stands in its place -> what is told
    ("load_s = 30", "load_s ="): "story.toml is no TOML: Invalid value (at line 2",
    ("load_s = 30", "load_s = 0"): "load_s: input should be greater than 0, not 0",
    ("load_s = 30", "laod_s = 30"): "laod_s: there is no such option: did you mean 'load_s'?",
    ("partitions = 3", "partition = 3"): (
        "topics.orders.partition: there is no such option: did you mean 'partitions'?"
    ),
    ("partitions = 3", 'partitions = "a"'): "topics.orders.partitions: input should be a valid integer",
    ("[topics.copies]", '[topics."a/b"]'): "'a/b' is no name of a topic",
    ('"transactions"', '"transaction"'): (
        "clients[1]: there is no kind of client 'transaction': did you mean 'transactions'?"
    ),
    ('kind = "copier"', 'kind = "once"\nlibrary = "librdkafka"'): (
        "clients[2]: no once with librdkafka; there is one with strandline"
    ),
    ('kind = "copier"', 'kind = "copier"\nlibrary = "java"'): (
        "clients[2].library: input should be 'strandline' or 'librdkafka', not 'java'"
    ),
    ('to = "copies"', ""): "clients[2]: a copier needs one topic in `topics`, and another one in `to`",
    ('to = "copies"', 'to = "copy"'): (
        "client copier-strandline: there is no [topics.copy]: did you mean 'copies'?"
    ),
    ('to = "copies"', 'to = "orders"'): "it copies 'orders' to itself",
    ("[topics.copies]\npartitions = 3", "[topics.copies]\npartitions = 2"): (
        "copies needs as many partitions as orders"
    ),
    ('kind = "transactions"', 'kind = "reader"'): "nobody writes",
    ('kind = "transactions"', 'kind = "writer"\nto = "copies"'): "`to` is for a copier, not for a writer",
    ('kind = "transactions"', 'kind = "writer"\nprotocol = "consumer"'): (
        "`protocol` is for members of groups, not for a writer"
    ),
    ('kind = "copier"', 'kind = "copier"\nprotocol = "consumer"'): (
        'clients[2]: `protocol = "consumer"` needs library = "librdkafka"'
    ),
    ("s = 9", 's = "soon"'): "faults.at[1].s: input should be a valid number",
    ("s = 9", "s = -1"): "faults.at[1].s: input should be greater than or equal to 0, not -1",
    ('fault = "restart"', 'fault = "restrat"'): (
        "faults.at[2].fault: there is no fault 'restrat': did you mean 'restart'?"
    ),
    ("[faults]", "[faults]\nhold_s = [5, 1]"): (
        "faults.hold_s: expected two numbers of seconds, the least and the most, not [5.0, 1.0]"
    ),
    ("[faults]", "[fault]"): "fault: there is no such option: did you mean 'faults'?",
}


@pytest.mark.parametrize(("before", "after"), MISTAKES)
def test_a_mistake_is_told_with_its_place(before: str, after: str) -> None:
    assert before in GOOD
    with pytest.raises(ScenarioError) as caught:
        scenario(GOOD.replace(before, after, 1))
    assert "story.toml" in str(caught.value) and MISTAKES[before, after] in str(caught.value)


def test_every_mistake_of_a_file_is_told_at_once() -> None:
    wrong = GOOD.replace("load_s = 30", "load_s = -1").replace("s = 9", "s = -2")
    with pytest.raises(ScenarioError) as caught:
        scenario(wrong)
    assert len(str(caught.value).splitlines()) == 2


def test_two_entries_of_clients_have_two_names_and_copy_a_topic_once() -> None:
    again = '\n[[clients]]\nkind = "copier"\ntopics = ["orders"]\nto = "copies"\n'
    with pytest.raises(ScenarioError, match="are called 'copier-strandline': give one of them a `name`"):
        scenario(GOOD + again)
    with pytest.raises(ScenarioError, match="two entries of clients copy 'orders'"):
        scenario(f'{GOOD}{again}name = "b"\n')


def test_a_fault_needs_whom_it_hits() -> None:
    alone = '[topics.t]\n[[clients]]\nkind = "writer"\n[faults]\ndrawn = ["zombie-client"]\n'
    with pytest.raises(ScenarioError, match="there is no client with transactions"):
        scenario(alone)
    with pytest.raises(ScenarioError, match="kill-leader-ahead: it needs three brokers, not 2"):
        scenario(alone.replace("zombie-client", "kill-leader-ahead") + "[cluster]\nbrokers = 2")


def test_a_file_that_is_not_there_and_a_name_that_nobody_knows(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"gone.toml cannot be read: No such file"):
        load(tmp_path / "gone.toml")
    with pytest.raises(ScenarioError, match=r"there is no scenario 'smok': name a file .* or one of .*smoke"):
        load("smok")
    (tmp_path / "mine.toml").write_text(GOOD)
    assert load(tmp_path / "mine.toml").name == "mine"


def test_the_same_seed_gives_the_same_schedule() -> None:
    story = changed(scenario(), load_s=200.0)
    assert planned(story, FAULTS) == planned(story, FAULTS)
    others = [planned(changed(story, seed=seed), FAULTS) for seed in range(2, 12)]
    assert all(other != planned(story, FAULTS) for other in others)
    assert len({tuple(strike.fault for strike in other) for other in others}) > 1


def test_faults_come_at_their_times_then_those_that_are_drawn_each_once_before_one_comes_again() -> None:
    found = planned(changed(scenario(), load_s=300.0), FAULTS)
    assert [(each.fault, each.after_s) for each in found[:2]] == [("restart", 3), ("kill-leader", 9)]
    drawn = [each.fault for each in found[2:]]
    assert drawn[:3] == ["kill-leader", "kill-controller", "pause-leader"], (
        "a list comes in its order at first"
    )
    for at in range(0, len(drawn) - 2, 3):
        assert len(set(drawn[at : at + 3])) == 3


def test_a_short_load_has_all_of_a_list_and_of_everything_what_fits() -> None:
    assert len(planned(changed(scenario(), load_s=1.0), FAULTS)) == 5
    everything = changed(scenario(), faults={"drawn": "all"}, load_s=1.0)
    assert len(planned(everything, FAULTS)) == 1
    assert {each.fault for each in planned(changed(everything, load_s=900.0), ["restart"])} == {"restart"}


def test_the_pace_makes_faults_and_calms_shorter() -> None:
    whole = planned(changed(scenario(), faults={"drawn": "all"}, load_s=1000.0), FAULTS)
    fast = planned(changed(scenario(), faults={"drawn": "all"}, load_s=1000.0, pace=0.5), FAULTS)
    assert [each.hold_s / 2 for each in whole[:20]] == pytest.approx([each.hold_s for each in fast[:20]])
    assert len(fast) > len(whole)


def test_a_schedule_goes_on_as_long_as_it_is_asked() -> None:
    endless = strikes(scenario(), FAULTS)
    assert len([next(endless) for _ in range(100)]) == 100
