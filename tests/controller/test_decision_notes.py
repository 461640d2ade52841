"""What the controller decided is told with what it knew: each candidate, and why it may lead or may not."""

from collections.abc import Iterator
from dataclasses import replace
from uuid import UUID

from hypothesis import given

from strandline.base.types import TopicPartition
from strandline.controller.planning import plans
from strandline.controller.planning.decision_notes import (
    ELECTABLE,
    DecisionNotes,
    candidates,
    gauges,
    view_of,
)
from strandline.controller.planning.elections import is_electable
from strandline.controller.planning.planner import plan
from strandline.controller.planning.state import Broker, ClusterState, PartitionState, Topic
from strandline.storage.decision_log import CONTROLLER, Note, controllers_ring
from tests.controller.test_elections import worlds

TP = TopicPartition("t", 0)
RING = controllers_ring("t-0")


def cluster(isr: tuple[int, ...] = (1, 2, 3), leader: int = 1, **configs: str) -> ClusterState:
    known = PartitionState(leader, 4, isr, dict.fromkeys(isr, 7), controller_epoch=1)
    return ClusterState(
        controller_epoch=2,
        brokers={b: Broker(b, 7, 7) for b in (1, 2, 3)},
        topics={"t": Topic("t", UUID(int=1), {0: (1, 2, 3)}, configs)},
        partitions={TP: known},
    )


def told(state: ClusterState, event: plans.Event) -> tuple[ClusterState, list[Note], DecisionNotes]:
    notes: list[Note] = []
    decision_notes = DecisionNotes(lambda some: notes.extend(some))
    after, commands = plan(state, event)
    decision_notes.told(state, after, event, commands)
    return after, notes, decision_notes


def without(state: ClusterState, *gone: int) -> plans.BrokersRead:
    return plans.BrokersRead({b: broker for b, broker in state.brokers.items() if b not in gone})


def one(notes: list[Note], ring: str, what: str) -> Note:
    (found,) = [note for note in notes if note.ring == ring and note.what == what]
    return found


def test_an_election_names_its_cause_and_every_candidate() -> None:
    state = cluster()
    _, notes, _ = told(state, plans.BrokerSuspected(1, 7))
    election = one(notes, RING, "elected").values
    assert election["leader"] == 2 and election["leader_before"] == 1
    assert election["epoch"] == 5 and election["isr"] == [2, 3] and not election["unclean"]
    assert "broker 1 is suspected" in election["cause"]
    assert election["candidates"][1].startswith("suspected")
    assert election["candidates"][2] == election["candidates"][3] == ELECTABLE
    assert one(notes, CONTROLLER, "broker_suspected").values["broker"] == 1


def test_offline_says_why_nobody_may_lead() -> None:
    state = cluster(isr=(1, 2))
    state = replace(state, brokers={**state.brokers, 2: Broker(2, 9, 9)})
    _, notes, _ = told(state, without(state, 1))
    ended = one(notes, RING, "went_offline").values
    assert ended["leader"] == -1 and ended["isr"] == [1, 2]
    assert ended["candidates"] == {
        1: "not registered",
        2: "not intact: it joined the ISR in incarnation 7, but its data is complete only "
        "since incarnation 9",
        3: "not in the ISR",
    }
    assert ended["cause"] == "broker 1 went"


def test_an_unclean_election_is_called_so_and_counted() -> None:
    state = cluster(isr=(1,), **{"unclean.leader.election.enable": "true"})
    after, notes, _ = told(state, without(state, 1))
    election = one(notes, RING, "elected").values
    assert election["unclean"] and election["leader"] == 2
    _, _, decision_notes = told(after, plans.StatesWritten({TP: replace(after.in_flight[TP], version=1)}))
    assert (decision_notes.elections, decision_notes.unclean_elections) == (1, 1)


def test_a_write_that_was_overtaken_is_told_one_that_stands_is_not() -> None:
    state, _, _ = told(cluster(), plans.BrokerSuspected(1, 7))
    _, overtaken, _ = told(state, plans.StatesWritten({}, frozenset({TP})))
    assert one(overtaken, RING, "write_overtaken")
    _, stands, decision_notes = told(
        state, plans.StatesWritten({TP: replace(state.in_flight[TP], version=1)})
    )
    assert not [note for note in stands if note.ring == RING]
    assert (decision_notes.elections, decision_notes.unclean_elections) == (1, 0)


def test_the_telling_waits_until_somebody_listens() -> None:
    kept: list[Iterator[Note]] = []
    state = cluster()
    event = plans.BrokerSuspected(1, 7)
    after, commands = plan(state, event)
    DecisionNotes(kept.append).told(state, after, event, commands)
    (series,) = kept
    assert not isinstance(series, list) and next(series).what == "broker_suspected"


def test_the_view_is_how_it_is_now() -> None:
    view = view_of(cluster(isr=(1, 2)), TP)
    assert view is not None
    assert view["candidates"] == {1: ELECTABLE, 2: ELECTABLE, 3: "not in the ISR"}
    assert view_of(cluster(), TopicPartition("t", 9)) is None


def test_the_gauges_count_offline_and_imbalanced_partitions() -> None:
    assert gauges(cluster())["OfflinePartitionsCount"] == 0
    assert gauges(cluster(leader=2))["PreferredReplicaImbalanceCount"] == 1
    assert gauges(cluster(leader=-1))["OfflinePartitionsCount"] == 1


@given(worlds())
def test_who_is_called_electable_is(world: ClusterState) -> None:
    known = world.partitions[TP]
    for broker, standing in candidates(world, TP, known).items():
        assert standing.startswith(ELECTABLE) == is_electable(world, broker, TP, known), standing
