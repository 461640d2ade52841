"""`strandline replay`: moments in their order, what each broker knew, clocks that disagree, text and page."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from strandline.cli.console import Failure, WrongUsage
from strandline.cli.replay.clocks import corrections
from strandline.cli.replay.command import number_of, page_of
from strandline.cli.replay.film import Film, film_of, knowledge
from strandline.cli.replay.moments import Moment, in_order
from strandline.cli.replay.sources import found_in
from strandline.cli.replay.text import frame_lines, lines
from strandline.storage.decision_log import DecisionLog, Note, RingFile
from strandline.storage.disk import RealDisk
from tests.cli.conftest import Shell

BEGAN = 1_767_225_600_000  # 2026-01-01
ROLE = {"replicas": [1, 2, 3], "unclean": False, "controller_epoch": 7}
ELECTED = {"cause": "broker 1 is suspected", "candidates": {}, "unclean": False, "recovering": False}

Notes = dict[int, list[tuple[int, Note]]]


def note(at_ms: int, ring: str, what: str, **values: Any) -> tuple[int, Note]:
    return BEGAN + at_ms, Note(ring, what, values)


def failover() -> Notes:
    """Broker 2 is the controller. Broker 1, which leads, is killed; broker 3 hears of it late."""
    role = {"epoch": 4, "leader": 1, "isr": [1, 2, 3], "end": 0, "watermark": 0, **ROLE}
    after = {"epoch": 5, "leader": 2, "isr": [2, 3], "end": 20, "watermark": 18, **ROLE}
    election = {
        "leader": 2, "leader_before": 1, "epoch": 5, "isr": [2, 3], "isr_before": [1, 2, 3],
        "controller_epoch": 7, **ELECTED,
    }  # fmt: skip
    return {
        1: [
            note(0, "broker", "started", incarnation=3, broker=1),
            note(30, "t-0", "became_leading", **role),
        ],
        2: [
            note(1, "broker", "started", incarnation=1, broker=2),
            note(10, "controller", "became_controller", epoch=7, brokers=[1, 2, 3], suspected=[]),
            note(31, "t-0", "became_following", **role),
            note(900, "controller", "broker_suspected", epoch=7, broker=1, incarnation=3),
            note(900, "controller/t-0", "elected", **election),
            note(910, "t-0", "became_leading", **after),
        ],
        3: [
            note(2, "broker", "started", incarnation=1, broker=3),
            note(32, "t-0", "became_following", **role),
            note(1500, "t-0", "became_following", **after),
        ],
    }


def recorded(notes: Notes) -> dict[int, dict[str, list[dict[str, Any]]]]:
    """By broker and ring, as brokers tell them."""
    logs = {broker: log_of(some) for broker, some in notes.items()}
    return {b: {name: [d.as_dict() for d in log.of(name)] for name in log.names()} for b, log in logs.items()}


def log_of(notes: Iterable[tuple[int, Note]]) -> DecisionLog:
    log = DecisionLog(1 << 20, 1 << 20)
    for at_ms, each in notes:
        log.add(each, at_ms)
    return log


def film(notes: Notes | None = None) -> Film:
    rings = recorded(notes or failover())
    return film_of(in_order(rings, corrections(rings)))


def what(shown: Film, number: int) -> tuple[int, str]:
    return shown.moments[number].by, shown.moments[number].what


class TestOrder:
    def test_of_equal_times_the_decision_comes_first(self) -> None:
        shown = film()
        assert [what(shown, n) for n in (7, 8, 9, 10)] == [
            (2, "broker_suspected"), (2, "elected"), (2, "became_leading"), (3, "became_following"),
        ]  # fmt: skip

    def test_a_clock_that_is_behind_is_moved_as_far_as_it_must_be(self) -> None:
        notes = failover()
        notes[3] = [(at_ms - 10_000, each) for at_ms, each in notes[3]]
        later = corrections(recorded(notes))
        assert later == {3: 10_000 - 600}, "it heard of epoch 5 when that was decided, at the earliest"
        assert {what(film(notes), n) for n in (9, 10)} == {(2, "became_leading"), (3, "became_following")}

    def test_clocks_that_were_set_meanwhile_are_left(self) -> None:
        notes = failover()
        back = {"leader": 3, "leader_before": 2, "epoch": 6, "isr": [3], "isr_before": [2, 3], **ELECTED}
        notes[3].append(note(100, "controller/t-0", "elected", controller_epoch=8, **back))
        role = {"leader": 3, "isr": [3], "end": 20, "watermark": 20, **ROLE}
        notes[2].append(note(50, "t-0", "became_following", epoch=6, **role))
        notes[3][2] = note(700, "t-0", "became_following", epoch=5, **role)
        assert corrections(recorded(notes)) == {}


class TestFrames:
    def test_who_knew_what(self) -> None:
        shown = film()
        before, decided, led = shown.frame(6), shown.frame(8), shown.frame(9)
        assert {knowledge(before, "t-0", broker) for broker in (1, 2, 3)} == {None}
        state = decided["partitions"]["t-0"]
        assert (state["leader"], state["epoch"], state["isr"]) == (2, 5, [2, 3])
        assert decided["brokers"][1]["state"] == "suspected"
        told = knowledge(decided, "t-0", 1)
        assert (
            told == "has not heard of epoch 5, of broker 2, if it still runs, and takes itself for the leader"
        )
        assert knowledge(led, "t-0", 2) is None
        assert knowledge(led, "t-0", 3) == "has not heard of epoch 5, of broker 2"
        assert knowledge(shown.frame(10), "t-0", 3) is None
        assert shown.frame(10)["partitions"]["t-0"]["replicas"][3]["watermark"] == 18

    def test_a_frame_follows_from_the_changes_alone(self) -> None:
        shown = film()
        first, again = shown.frame(5), shown.frame(5)
        shown.frame(10)
        assert first == again and shown.frame(-1) == {"brokers": {}, "controller": None, "partitions": {}}

    def test_what_a_broker_was_before_its_start_is_over(self) -> None:
        notes = failover()
        notes[1].append(note(2000, "broker", "started", incarnation=4, broker=1))
        shown = film(notes)
        last = shown.frame(len(shown.moments) - 1)
        assert last["partitions"]["t-0"]["replicas"][1]["role"] == "unknown"
        assert last["brokers"][1] | {"at_ms": 0} == {
            "state": "up", "incarnation": 4, "session": "connected", "at_ms": 0,
        }  # fmt: skip

    def test_the_isr_on_its_way(self) -> None:
        notes = failover()
        late = {"broker": 3, "end": 7, "caught_up_ago_s": 30.2}
        asked = {"epoch": 5, "isr": [2, 3], "asked": [2], "leader_end": 25, "watermark": 18, "version": 3}
        notes[2].append(note(2000, "t-0", "isr_shrink_proposed", **asked, leaving=[late], lag_max_s=30))
        changed = {"epoch": 5, "isr": [2], "joined": [], "left": [3], "version": 4}
        notes[2].append(note(2010, "t-0", "isr_changed", **changed))
        shown = film(notes)
        asks, has = (shown.frame(n)["partitions"]["t-0"] for n in (11, 12))
        assert asks["isr"] == [2, 3] and asks["replicas"][2]["proposed"] == [2]
        assert asks["replicas"][2]["end"] == 25
        assert has["isr"] == [2] and has["replicas"][2]["proposed"] is None
        assert "broker 3 is at 7 of 25, last caught up 30.2 s before" in shown.moments[11].sentence

    def test_what_another_version_has_noted_is_shown_as_it_is(self) -> None:
        strange = Moment(BEGAN, 1, False, "t-0", "elected_by_dice", {"eyes": 6})
        halved = Moment(BEGAN, 1, True, "t-0", "elected", {"leader": 6})
        assert (strange.sentence, halved.sentence) == ("elected by dice: eyes 6", "elected: leader 6")
        frame = film_of(
            [strange, halved, Moment(BEGAN, 1, False, "t-0", "became_leading", {"end": "?"})]
        ).frame(2)
        assert frame["partitions"]["t-0"]["leader"] is None, "what cannot be read changes nothing"


class TestText:
    def test_the_list(self) -> None:
        told = list(lines(film(), 8, 10))
        assert told[0] == "2026-01-01 UTC"
        assert told[1].startswith(
            " 8  00:00:00.900             broker 2 (controller)  t-0: broker 2 leads after broker 1 in epoch"
        )
        assert "00:00:00.910     +0.010  broker 2               t-0: leads in epoch 5: end 20" in told[2]
        assert "+0.590  broker 3" in told[3]

    def test_a_frame(self) -> None:
        told = "\n".join(frame_lines(film(), 9, "t-0"))
        for line in (
            "controller  broker 2, epoch 7",
            "broker 1    counted as dead, incarnation 3",
            "t-0  leader 2, epoch 5, ISR 2,3, as of 0.010 s before",
            "  broker 2  leading in epoch 5, end 20, high watermark 18, as of 0.000 s before",
            "  broker 3  following of broker 1 in epoch 4",
            "            has not heard of epoch 5, of broker 2",
        ):
            assert line in told, told
        assert "t-0" not in "\n".join(frame_lines(film(), 5, "u-0"))[200:]

    @pytest.mark.parametrize(
        ("text", "number"),
        [
            ("4", 4),
            ("00:00:00.900", 8),
            ("00:00:00.905", 8),
            ("2026-01-01T00:00:00.031", 5),
            ("2026-01-01T01:00:00.031+01:00", 5),
        ],
    )
    def test_a_moment_is_a_number_or_a_time(self, text: str, number: int) -> None:
        assert number_of(film(), text, "--at") == number

    @pytest.mark.parametrize(
        ("text", "why"),
        [
            ("11", "there are moments 0 to 10"),
            ("9" * 5_000, "there are moments 0 to 10"),
            ("²", "expected the number of a moment"),
            ("24:00:61", "expected the number of a moment"),
            ("soon", "^--at soon: expected the number of a moment, or a time such as"),
            ("2025-12-31", "the recorders hold 2026-01-01 00:00:00.000 to 2026-01-01 00:00:01.500"),
        ],
    )
    def test_another_one_is_refused(self, text: str, why: str) -> None:
        with pytest.raises(WrongUsage, match=why):
            number_of(film(), text, "--at")

    def test_moments_that_end_before_they_begin_are_none(self, alone: Shell, tmp_path: Path) -> None:
        for broker, notes in failover().items():
            kept(tmp_path / f"broker-{broker}" / "data", log_of(notes))
        said = alone("replay", "--dir", tmp_path, "--since", 5, "--until", 3, expect=2).err
        assert "--since 5, --until 3: no moment lies between them" in said.replace("\n", " ")
        assert len(alone("replay", "--dir", tmp_path, "--since", 3, "--until", 3).lines) == 2

    def test_a_partition_of_which_nothing_is_recorded_is_told(self, alone: Shell, tmp_path: Path) -> None:
        for broker, notes in failover().items():
            kept(tmp_path / f"broker-{broker}" / "data", log_of(notes))
        assert "nothing is recorded about u-0" in alone("replay", "u-0", "--dir", tmp_path).err
        assert alone("replay", "t-0", "--dir", tmp_path).err == ""

    def test_since_begins_with_the_first_one_from_then_on(self) -> None:
        assert number_of(film(), "00:00:00.032", "--since", is_start=True) == 6


def test_the_page_holds_the_film_and_no_markup_of_others() -> None:
    notes = failover()
    notes[2].append(note(3000, "t-0", "went_offline", why="</script><script>alert(1)</script>"))
    page = page_of(film(notes), 3, 11, "t-0")
    assert "</script><script>alert" not in page and "http" not in page.replace("http-equiv", "")
    inside = page.split('type="application/json" id="film">')[1].split("</script>")[0]
    document = json.loads(inside)
    assert len(document["moments"]) == len(document["changes"]) == 9 and document["first"] == 3
    assert document["before"] == json.loads(json.dumps(film(notes).frame(2)))
    assert document["moments"][-1]["sentence"].endswith("alert(1)</script>")


def kept(folder: Path, log: DecisionLog) -> Path:
    """A log directory with this recorder."""
    folder.mkdir(parents=True)
    file = RingFile(RealDisk(), str(folder))
    file.begin(list(log.frames()))
    file.close()
    return folder


class TestDirectories:
    def test_of_dead_brokers(self, tmp_path: Path) -> None:
        """Of an `up` that is down, too: nothing but its brokers' directories is left."""
        for broker, notes in failover().items():
            kept(tmp_path / f"broker-{broker}" / "data", log_of(notes))
        found = found_in([tmp_path], "t-0")
        assert set(found.rings) == {1, 2, 3}
        assert film_of(in_order(found.rings, {})).frame(10) == film().frame(10)
        assert set(found_in([tmp_path], "u-0").rings[2]) == {"broker", "controller"}

    def test_without_a_recorder(self, tmp_path: Path) -> None:
        with pytest.raises(Failure, match=r"no file flight-recorder in .*expected the first log directory"):
            found_in([tmp_path], None)

    def test_two_of_one_broker(self, tmp_path: Path) -> None:
        places = [kept(tmp_path / name, log_of(failover()[1])) for name in "ab"]
        with pytest.raises(Failure, match="broker 1 has another recorder"):
            found_in(places, None)
