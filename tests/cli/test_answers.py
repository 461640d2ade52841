"""The answers of `strandline why` from given evidence: which value decides, in which words."""

from typing import Any

import pytest

from strandline.broker.why_answers import Evidence, leader, left_isr, not_visible, offline, seconds

NOW = 100_000


def follower(broker: int, end: int, **other: Any) -> dict[str, Any]:
    return {
        "broker": broker, "end": end, "behind": 0, "caught_up_ago_s": 2.1, "fetched_ago_s": 0.4,
        "has_fetched": end >= 0, "incarnation": 1, "registered": True, "in_isr": True, "must_ack": True,
        "about_to_join": False, "holds": True, **other,
    }  # fmt: skip


def leading(*followers: dict[str, Any], **other: Any) -> dict[str, Any]:
    isr = [1, *(each["broker"] for each in followers if each["in_isr"])]
    return {
        "isr": isr, "must_ack": isr, "proposed": None, "replicas": [1, 2, 3], "version": 1, "end": 20,
        "safe_end": 20, "epoch_began_at": 3, "min_isr": 2, "under_min_isr": False, "strict_min_isr": False,
        "lag_max_s": 10.0, "followers": list(followers), **other,
    }  # fmt: skip


def document(replica_leads: dict[str, Any] | None = None, **other: Any) -> dict[str, Any]:
    replica = None
    if replica_leads is not None:
        replica = {
            "role": "leading", "leader": 1, "epoch": 4, "start": 2, "end": 20, "watermark": 15,
            "flushed": 20, "offline": None, "leading": replica_leads,
        }  # fmt: skip
    return {
        "now_ms": NOW, "replica": replica, "decisions": [], "controllers_view": None,
        "controllers_decisions": [], "controller_events": [], "broker_events": [],
        "registry_connected": True, **other,
    }  # fmt: skip


def decided(what: str, at_ms: int = NOW - 5000, **values: Any) -> dict[str, Any]:
    return {"at_ms": at_ms, "what": what, **values}


def evidence(*documents: dict[str, Any], silent: dict[int, str] | None = None) -> Evidence:
    return Evidence("t-0", dict(enumerate(documents, 1)), silent or {})


def test_the_follower_that_holds_the_watermark_is_named() -> None:
    answer = not_visible(evidence(document(leading(follower(2, 20), follower(3, 15)))), 17)
    assert answer.sentence == (
        "offset 17 is not visible: the high watermark is 15; it waits for broker 3, log end offset 15, "
        "last caught up 2.1 s ago, last fetched 0.4 s ago, still in the ISR (removed after 10.0 s of lag)"
    )
    assert [each["broker"] for each in answer.values["waits_for"]] == [3]


@pytest.mark.parametrize(
    ("offset", "words"),
    [
        (14, "offset 14 is visible: the high watermark is 15"),
        (1, "offset 1 is deleted: the log start offset is 2"),
        (20, "offset 20 is not written yet: the log end offset of the leader, broker 1, is 20"),
    ],
)
def test_offsets_that_nothing_holds(offset: int, words: str) -> None:
    assert not_visible(evidence(document(leading(follower(2, 20)))), offset).sentence == words


def test_other_values_that_decide() -> None:
    flush = not_visible(evidence(document(leading(safe_end=15))), 17).sentence
    assert "has not flushed it: its disk has the log up to 15" in flush
    strict = leading(strict_min_isr=True, under_min_isr=True)
    assert (
        "strict.min.isr holds it back until 2 replicas are in sync"
        in not_visible(evidence(document(strict)), 17).sentence
    )
    joining = follower(3, 15, in_isr=False, must_ack=False, about_to_join=True)
    assert "joining the ISR" in not_visible(evidence(document(leading(joining))), 17).sentence
    asked = leading(follower(2, 15, registered=False), proposed=[1])
    answer = not_visible(evidence(document(asked, registry_connected=False)), 17)
    assert "not registered" in answer.sentence
    assert "the leader has no connection to ZooKeeper" in answer.because[-1]


def test_a_departure_by_the_leader_has_its_numbers() -> None:
    gone = follower(3, 15, in_isr=False, must_ack=False, holds=False, registered=False)
    decisions = [
        decided(
            "isr_shrink_proposed", NOW - 9000, epoch=4, isr=[1, 2, 3], asked=[1, 2], leader_end=18,
            lag_max_s=10.0, leaving=[follower(3, 15, caught_up_ago_s=10.2)],
        ),
        decided("isr_changed", NOW - 8900, epoch=4, isr=[1, 2], joined=[], left=[3], version=2),
        decided("isr_refused", NOW - 500, epoch=4, asked=[1, 2, 3], condition="/brokers/ids/3", times=4),
    ]  # fmt: skip
    answer = left_isr(evidence(document(leading(follower(2, 20), gone), decisions=decisions)), None)
    assert answer.sentence == (
        "broker 3 left the ISR of t-0 8.9 s ago: its log end offset was 15, the leader's 18, and it had "
        "last caught up 10.2 s before; the limit is 10.0 s (replica.lag.time.max.ms); "
        "the leader was broker 1 in epoch 4"
    )
    assert "broker 3 is not registered" in answer.because[1]
    assert "refused to add it 0.5 s ago, 4 times: /brokers/ids/3" in answer.because[2]


def test_a_follower_that_cannot_keep_what_it_must_cut_says_so() -> None:
    gone = follower(2, 15, in_isr=False, must_ack=False, holds=False)
    waits = document(decisions=[decided("cut_waits", why="no space left on device")])
    answer = left_isr(evidence(document(leading(gone)), waits), 2)
    assert (
        "broker 2 must truncate its log first, and cannot keep a copy of the removed records: no space"
        in answer.because[-1]
    )


def test_a_departure_by_the_controller_has_its_cause() -> None:
    gone = follower(2, 15, in_isr=False, must_ack=False, holds=False)
    election = decided(
        "elected", leader=1, leader_before=2, epoch=4, isr=[1, 3], isr_before=[1, 2, 3], unclean=False,
        recovering=False, cause="broker 2 went",
        candidates={1: "electable", 2: "not registered", 3: "electable"},
    )  # fmt: skip
    seen = evidence(document(leading(gone, follower(3, 20)), controllers_decisions=[election]))
    assert left_isr(seen, 2).sentence == (
        "broker 2 left the ISR of t-0 5.0 s ago: to the controller it was not registered, "
        "because broker 2 went"
    )
    why = leader(seen)
    assert why.sentence == ("broker 1 leads t-0 in epoch 4: it was elected 5.0 s ago, because broker 2 went")
    assert "broker 2: then not registered" in why.because, "it may be back"
    assert left_isr(seen, 9).sentence == "broker 9 has no replica of t-0"


def test_a_departure_is_not_explained_by_itself() -> None:
    dead = "suspected: unreachable, and silent in ZooKeeper"
    reduced = decided(
        "isr_reduced", epoch=4, isr=[1], isr_before=[1, 2], cause=f"broker 2 is {dead}", candidates={2: dead}
    )
    gone = follower(2, 15, in_isr=False, must_ack=False, holds=False)
    seen = evidence(document(leading(gone), controllers_decisions=[reduced]))
    assert left_isr(seen, 2).sentence == f"broker 2 left the ISR of t-0 5.0 s ago, because broker 2 is {dead}"


def test_a_leader_without_proof_is_called_so() -> None:
    election = decided(
        "elected", leader=1, leader_before=-1, epoch=4, isr=[1], isr_before=[1], unclean=False,
        recovering=True, cause="broker 2 reported its log end offsets", candidates={1: "not intact"},
    )  # fmt: skip
    loss = decided("may_have_lost", leader=1, epoch=4, isr_before=[1], ends={1: [3, 20], 2: [3, 18]})
    answer = leader(evidence(document(leading(), controllers_decisions=[election, loss])))
    assert "elected without proof" in answer.sentence
    assert "broker 1: epoch 3, end 20, broker 2: epoch 3, end 18" in " ".join(answer.because)


def test_a_search_for_the_longest_log_is_told() -> None:
    view = {
        "controller_epoch": 3, "leader": -1, "leader_epoch": 5, "isr": [1], "replicas": [1, 2],
        "recovering": False, "unclean_allowed": False, "being_written": False, "candidates": {},
        "search": {"strategy": "balanced", "ends": {1: [3, 20]}, "no_answer_of": [2]},
    }  # fmt: skip
    (line,) = [b for b in offline(evidence(document(controllers_view=view))).because if "longest" in b]
    assert line.endswith("(balanced): broker 1: epoch 3, end 20; waiting for brokers 2")


def test_an_offline_partition_names_every_candidate() -> None:
    view = {
        "controller_epoch": 3, "leader": -1, "leader_epoch": 5, "isr": [1, 2], "replicas": [1, 2],
        "recovering": False, "unclean_allowed": False, "being_written": False,
        "candidates": {1: "not registered", 2: "not intact"},
    }  # fmt: skip
    ended = decided("went_offline", leader=-1, isr=[1, 2], isr_before=[1, 2], cause="broker 1 went",
                    candidates=view["candidates"], epoch=5)  # fmt: skip
    seen = evidence(
        document(controllers_view=view, controllers_decisions=[ended]), silent={2: "connection refused"}
    )
    answer = offline(seen)
    assert answer.sentence == (
        "t-0 is offline (for 5.0 s, because broker 1 went): no member of its ISR 1,2 may lead"
    )
    assert answer.because[:2] == ("broker 1: not registered", "broker 2: not intact")
    assert "unclean.leader.election.enable" in answer.because[2]
    assert answer.because[-1] == "broker 2 does not answer: connection refused"
    assert leader(seen).sentence == answer.sentence
    assert not_visible(seen, 3).sentence.startswith("offset 3 is not visible: t-0 is offline")


def test_a_leader_that_has_not_heard_of_its_successor_is_not_believed() -> None:
    view = {
        "controller_epoch": 3, "leader": 2, "leader_epoch": 5, "isr": [2], "replicas": [1, 2],
        "recovering": False, "unclean_allowed": False, "being_written": False, "candidates": {},
    }  # fmt: skip
    seen = evidence(document(leading(follower(2, 20)), controllers_view=view))
    assert seen.leader is None
    assert "broker 2 was elected leader" in offline(seen).sentence


def test_what_nobody_remembers_is_said_so() -> None:
    assert "nothing is known about t-0" in offline(evidence(document())).sentence
    assert "no broker that answers" in leader(evidence(document(leading(follower(2, 20))))).sentence


def test_what_the_controller_does_not_know_is_not_there() -> None:
    """Nor is it offline, though somebody remembers an election: the topic is deleted, or was never."""
    was = decided(
        "elected", leader=2, leader_before=1, epoch=4, isr=[2], isr_before=[1, 2], unclean=False,
        recovering=False, cause="broker 1 went", candidates={1: "not registered", 2: "electable"},
    )  # fmt: skip
    seen = evidence(document(controller=2, controllers_decisions=[was]), document(controller=2))
    said = "nothing is known about t-0: the controller, broker 2, has no such partition"
    assert [each.sentence for each in (offline(seen), leader(seen), left_isr(seen, None))] == [said] * 3
    assert not_visible(seen, 3).sentence == f"offset 3 is not visible: {said}"
    silent = evidence(document(controller=2, controllers_decisions=[was]), silent={2: "it refuses"})
    assert "the last leader that is known of is broker 2" in offline(silent).sentence
    assert offline(silent).because[:2] == ("broker 1: then not registered", "broker 2: then electable")


def test_times_are_for_people() -> None:
    assert [seconds(None), seconds(2.14), seconds(300), seconds(10_000)] == ["never", "2.1 s", "5 min", "3 h"]


def test_a_leader_that_answers_no_such_questions_is_not_called_offline() -> None:
    """One of Apache Kafka; a broker of ours that does not lead, though elected, is another matter."""
    view = {
        "controller_epoch": 3, "leader": 2, "leader_epoch": 4, "isr": [1, 2], "replicas": [1, 2],
        "recovering": False, "unclean_allowed": False, "being_written": False,
        "candidates": {1: "electable", 2: "electable"},
    }  # fmt: skip
    answer = leader(evidence(document(controllers_view=view), silent={2: "it closed the connection"}))
    assert "whether it leads is not known here" in answer.sentence and answer.values["offline"] is None
    answer = offline(evidence(document(controllers_view=view), document()))
    assert answer.sentence.endswith("does not report that it leads") and answer.values["offline"] is True
