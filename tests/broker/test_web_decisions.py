"""Decisions of several brokers as sentences and as a timeline; brokers that do not answer; the window."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgpack
import pytest

from strandline.base.types import TopicPartition
from strandline.broker.metadata.cache import Address
from strandline.broker.overview import decisions
from strandline.broker.overview.answer import overview_asked
from strandline.broker.overview.decisions import of_partitions
from strandline.broker.web import api_peers
from strandline.broker.web.api_decisions import broker_points, isr_points, lanes, merged, spans, told_as
from strandline.broker.web.api_groups import counted, total, with_lag
from strandline.broker.web.api_partitions import MATCHES_KEPT, Place, Window, indexed
from strandline.broker.web.api_peers import Peers
from strandline.protocol.errors import InvalidRequest
from strandline.storage.decision_log import DecisionLog, Note


def decided(what: str, at_ms: int, by: int = 3, controller: bool = True, **values: Any) -> dict[str, Any]:
    return {"about": "t-0", "what": what, "at_ms": at_ms, "by": by, "controller": controller, **values}


def elected(at_ms: int, epoch: int, leader: int, before: int, isr: list[int], **more: Any) -> dict[str, Any]:
    values = {"leader": leader, "leader_before": before, "epoch": epoch, "isr": isr, "isr_before": [1, 2, 3]}
    return decided("elected", at_ms, **values, cause="broker 1 went", candidates={2: "electable"}, **more)


CREATED = decided("created", 1_000, leader=1, epoch=0, isr=[1, 2, 3])
FAILOVER = elected(5_000, 1, 2, 1, [2, 3])
BACK = elected(9_000, 3, 1, 2, [1, 2, 3])


def test_a_timeline_has_a_leadership_for_each_leader() -> None:
    reduced = decided("isr_reduced", 3_000, leader=1, epoch=0, isr=[1, 2], isr_before=[1, 2, 3])
    found = spans([BACK, FAILOVER, CREATED, reduced], {"leader": 1, "epoch": 3}, 10_000)
    assert [(each["leader"], each["from_ms"], each["to_ms"]) for each in found] == [
        (1, 1_000, 5_000),
        (2, 5_000, 9_000),
        (1, 9_000, None),
    ]
    assert found[1]["cause"] == "broker 1 went"


def test_an_epoch_without_a_controllers_decision_begins_when_its_leader_learned_of_it() -> None:
    learned = decided("became_leading", 5_100, by=2, controller=False, leader=2, epoch=1, isr=[2, 3])
    found = spans([CREATED, learned], {"leader": 2, "epoch": 1}, 10_000)
    assert [(each["leader"], each["from_ms"]) for each in found] == [(1, 1_000), (2, 5_100)]
    early = {**learned, "at_ms": 4_000}  # its clock is behind the controller's
    assert spans([CREATED, FAILOVER, early], None, 10_000)[1]["from_ms"] == 5_000


def test_what_nobody_has_kept_is_shown_as_it_is_now() -> None:
    assert spans([], {"leader": 2, "epoch": 7}, 10_000) == [
        {"cause": None, "epoch": 7, "leader": 2, "from_ms": None, "to_ms": None}
    ]
    assert spans([CREATED], {"leader": None, "epoch": 1}, 10_000)[-1]["leader"] is None
    assert spans([], None, 10_000) == []


def test_time_does_not_go_back_in_a_timeline() -> None:
    late = elected(4_000, 2, 3, 2, [3])  # another controller, whose clock is behind
    found = spans([CREATED, FAILOVER, late], None, 10_000)
    assert [(each["from_ms"], each["to_ms"]) for each in found] == [
        (1_000, 5_000),
        (5_000, 5_000),
        (5_000, None),
    ]


def test_a_lane_has_each_change_of_the_isr_once() -> None:
    left = decided(
        "isr_changed", 2_000, by=1, controller=False, epoch=0, isr=[1, 2], joined=[], left=[3], version=1
    )
    same = decided(
        "isr_changed", 2_001, by=1, controller=False, epoch=0, isr=[1, 2], joined=[], left=[3], version=1
    )
    assert [each["isr"] for each in isr_points([same, CREATED, left, FAILOVER])] == [
        [1, 2, 3],
        [1, 2],
        [2, 3],
    ]
    again = elected(6_000, 2, 3, 2, [2, 3])  # a new leader with the ISR that there was
    assert [each["isr"] for each in isr_points([CREATED, FAILOVER, again])] == [[1, 2, 3], [2, 3]]
    learned = decided("became_leading", 900, by=2, controller=False, leader=2, epoch=1, isr=[3, 2])
    assert [each["isr"] for each in isr_points([learned, FAILOVER])] == [[2, 3]]  # the controller has gone
    (lane,) = lanes([("t", 0)], [CREATED, left], {}, 10_000)
    assert (lane["topic"], lane["partition"], len(lane["isr"])) == ("t", 0, 2)


def test_events_of_brokers_are_those_the_controllers_saw() -> None:
    gone = {**decided("broker_gone", 4_000, broker=1, incarnation=1), "about": ""}
    took = {
        **decided("became_controller", 3_000, by=2, epoch=2, brokers=[1, 2, 3], suspected=[3]),
        "about": "",
    }
    assert [(each["broker"], each["kind"]) for each in broker_points([gone, took])] == [
        (2, "controller"),
        (3, "suspected"),
        (1, "gone"),
    ]


def test_decisions_are_sentences_with_reasons() -> None:
    told = merged({3: [CREATED, FAILOVER]}, 10)
    assert [each["sentence"] for each in told] == [
        "broker 2 leads after broker 1 in epoch 1; ISR 2, 3, was 1, 2, 3",
        "created: broker 1 leads; ISR 1, 2, 3",
    ]
    assert told[0]["because"] == ["because broker 1 went", "broker 2: electable"]
    assert "uncleanly" in told_as({**FAILOVER, "unclean": True})


def test_a_topic_that_was_created_is_one_decision() -> None:
    parts = [{**CREATED, "about": f"a-topic-{number}"} for number in range(3)]
    told = merged({3: [*parts, {**CREATED, "about": "b-0"}, FAILOVER]}, 10)
    assert [(each["about"], each["sentence"]) for each in told] == [
        ("t-0", "broker 2 leads after broker 1 in epoch 1; ISR 2, 3, was 1, 2, 3"),
        ("a-topic", "created with 3 partitions"),
        ("b-0", "created: broker 1 leads; ISR 1, 2, 3"),
    ]


def test_a_decision_of_another_version_is_told_by_its_values() -> None:
    assert told_as(decided("moved_on", 1, speed=5)) == "moved on: speed 5"
    assert told_as(decided("elected", 1, epoch=5)) == "elected: epoch 5"  # it lacks what we expect


def test_the_newest_decisions_of_many_rings() -> None:
    rings = DecisionLog(1 << 20, 1 << 20)
    for at in range(10):
        rings.add(Note(f"ring-{at % 3}", f"what-{at}", {}), at)
    found = rings.newest(4, lambda ring: ring != "ring-1")
    assert [each.what for each in found] == ["what-5", "what-6", "what-8", "what-9"]
    assert rings.newest(0, lambda ring: True) == []


PLACES = [
    Place(topic, number, 1, 0, (1,), (1, 2) if topic == "b" else (1,), topic == "c", topic == "b")
    for topic in ("__consumer_offsets", "a", "b", "c")
    for number in (0, 1)
]


@pytest.mark.parametrize(
    "window, names, matching",
    [
        (Window(), ["a-0", "a-1", "b-0", "b-1", "c-0", "c-1"], 6),
        (Window(internal=True, limit=1), ["__consumer_offsets-0"], 8),
        (Window(troubled=True), ["b-0", "b-1", "c-0", "c-1"], 4),
        (Window(search="-1", at=1, limit=1), ["b-1"], 3),
        (Window(at=100), [], 6),
    ],
)
def test_a_window_has_a_part_of_what_matches(window: Window, names: list[str], matching: int) -> None:
    rows, count = indexed(PLACES).choose(window)
    assert [f"{row.topic}-{row.partition}" for row in rows] == names
    assert count == matching


def test_a_page_that_asks_again_walks_no_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = 0

    def matches(self: Window, place: Place) -> bool:
        nonlocal looked
        looked += 1
        return True

    monkeypatch.setattr(Window, "matches", matches)
    index = indexed(PLACES)
    for _ in range(5):
        for at in (0, 2):
            assert index.choose(Window(at=at, limit=2)) == (PLACES[at : at + 2], len(PLACES))
    assert looked == len(PLACES)
    for number in range(100):
        index.choose(Window(search=str(number)))
    assert len(index._matching) == MATCHES_KEPT, "and does not keep what was searched for once"


def test_the_lag_is_unknown_while_a_leader_is_silent() -> None:
    rows = with_lag([["t", 0, 3], ["t", 1, 9]], {("t", 0): (0, 5)})
    assert [row["lag"] for row in rows] == [2, None] and total(rows, 2) is None
    assert total(with_lag([["t", 0, 7]], {("t", 0): (0, 5)}), 1) == 0


def test_the_lag_of_a_group_is_unknown_if_not_all_of_its_offsets_are_looked_at() -> None:
    """Offsets in one answer are bounded: a group whose turn comes after that has not caught up."""
    one = with_lag([["t", 0, 3]], {("t", 0): (0, 5)})
    assert total(one, 2) is None and total([], 1) is None and total([], 0) == 0
    assert counted({"offsets": [["t", 0, 3]]}) == 1, "as an older broker tells it"


# ------------------------------------------------------------ brokers that do not answer


@asynccontextmanager
async def mute() -> AsyncIterator[int]:
    """A port that accepts connections and never answers, as a broker that was stopped by SIGSTOP."""
    held: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(lambda _, writer: held.append(writer), "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        for writer in held:
            writer.close()
        server.close()


def asking(ports: dict[int, int]) -> Any:
    """A broker 1 that knows others by these ports."""
    addresses = {id: Address("127.0.0.1", port) for id, port in ports.items()}
    return SimpleNamespace(
        id=1,
        metadata=SimpleNamespace(brokers=addresses, address=lambda id, listener: addresses.get(id)),
        config=SimpleNamespace(inter_broker_listener="INTERNAL"),
    )


async def test_a_broker_that_is_silent_holds_a_page_up_only_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_peers, "ANSWER_S", 0.2)
    monkeypatch.setattr(api_peers, "SILENT_S", 60.0)
    loop, peers = asyncio.get_running_loop(), Peers()
    async with mute() as port:
        began = loop.time()
        heard = await peers.ask_all(asking({2: port}), {"broker": {}})
        assert heard[2].answers is None and heard[2].why == "it has not answered within 0.2 s"
        assert loop.time() - began >= 0.2
        for _ in range(50):  # each of them at once
            assert (await peers.ask_all(asking({2: port}), {"broker": {}}))[2].why == "it does not answer"
        assert loop.time() - began < 50 * 0.2
        await peers.stop()


async def test_a_broker_whose_port_is_closed_is_named_with_the_reason() -> None:
    async with mute() as port:
        pass
    peers = Peers()
    heard = await peers.ask(asking({2: port}), {2: {"broker": {}}, 3: {"broker": {}}})
    assert heard[2].answers is None and heard[2].why == f"connections to 127.0.0.1:{port} are refused"
    assert heard[3].why == "it is not registered"
    await peers.stop()


async def test_a_broker_that_is_gone_is_forgotten_though_its_connection_has_ended() -> None:
    peers = Peers()
    async with mute() as port:
        await peers.ask_all(asking({2: port}), {"broker": {}})
    assert peers.size == 1
    peers.forget({})
    assert peers.size == 0
    await peers.stop()


@pytest.mark.parametrize("packed", [b"", b"\xc1", b"\x05", b"\x81\xa4what\x80", b"\x81\xa6broker\x05"])
def test_questions_that_are_not_understood_are_refused(packed: bytes) -> None:
    with pytest.raises(InvalidRequest):
        overview_asked(cast(Any, SimpleNamespace()), packed)


@pytest.mark.parametrize(
    "questions",
    [
        {"newest": {"limit": float("inf")}},
        {"newest": {"limit": "many"}},
        {"led": {"partitions": [["t", float("inf")]]}},
        {"led": {"partitions": [["t"]]}},
        {"led": {"partitions": {"t": 0}}},
        {"bounds": {"partitions": [["t", 0]] * 5_001}},
    ],
)
def test_numbers_and_lists_that_are_none_are_refused(questions: Any) -> None:
    with pytest.raises(InvalidRequest):
        overview_asked(cast(Any, SimpleNamespace()), msgpack.packb(questions))


def test_a_refusal_does_not_repeat_all_that_was_asked() -> None:
    questions = {f"{number}{'x' * 1_000}": {} for number in range(1_000)}
    with pytest.raises(InvalidRequest) as refused:
        overview_asked(cast(Any, SimpleNamespace()), msgpack.packb(questions))
    assert len(str(refused.value)) < 500


def test_decisions_about_one_partition_leave_room_for_those_about_others() -> None:
    rings = DecisionLog(16 << 20, 16 << 20)
    for number in range(60):
        for at in range(300 if number == 0 else 3):
            rings.add(Note(f"t-{number}", "isr_changed", {"epoch": at}), at)
            rings.add(Note(f"controller/t-{number}", "elected", {"epoch": at}), at)
    broker: Any = SimpleNamespace(shared=SimpleNamespace(recorder=rings))
    told = of_partitions(broker, [TopicPartition("t", number) for number in range(60)])["partitions"]
    counts = Counter(one["about"] for one in told)
    assert set(counts) == {f"t-{number}" for number in range(60)} and counts["t-59"] == 6
    assert counts["t-0"] == 2 * (decisions.OF_ALL_MAX // 120)
    assert max(one["epoch"] for one in told if one["about"] == "t-0") == 299, "the newest of them"


def test_names_of_partitions_are_those_of_the_recorder(tmp_path: Path) -> None:
    assert str(TopicPartition("t", 0)) == "t-0" and json.dumps([TopicPartition("t", 0)]) == '[["t", 0]]'
