"""Whatever happens in the planner's transcripts, partitions and replicas move as the tables allow."""

from pathlib import Path

import pytest

from strandline.base.types import TopicPartition
from strandline.controller.planning import state_machines
from strandline.controller.planning.plans import CreateStates, Refuse, WriteStates
from strandline.controller.planning.state import ClusterState, PartitionState
from strandline.controller.planning.state_machines import PARTITION, REPLICA, partition_stage, replica_stage
from tests.controller.test_planner_scenarios import SCENARIOS, Stage, topic


class Watched(Stage):
    """A stage that looks at every change of the state."""

    def __setattr__(self, name: str, value: object) -> None:
        before = self.__dict__.get("state")
        super().__setattr__(name, value)
        if name == "state" and isinstance(before, ClusterState) and isinstance(value, ClusterState):
            watch(before, value)


def watch(before: ClusterState, after: ClusterState) -> None:
    for q in sorted({*before.all_partitions(), *after.all_partitions()}):
        was, now = partition_stage(before, q), partition_stage(after, q)
        assert PARTITION.allows(was, now), f"{q}: {was} -> {now}"
        for broker in {*before.replicas(q), *after.replicas(q)}:
            was, now = replica_stage(before, broker, q), replica_stage(after, broker, q)
            assert REPLICA.allows(was, now), f"{q} on {broker}: {was} -> {now}"


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_every_move_of_the_transcripts_is_in_the_tables(path: Path) -> None:
    assert list(Watched().play(path.read_text()))


def test_an_illegal_write_is_said_and_not_done() -> None:
    q = TopicPartition("t", 0)
    born = PartitionState(1, 0, (1,), {1: 1}, 5)
    state = ClusterState(5, topics={"t": topic("t", "1")}, in_flight={q: born})
    after, commands = state_machines.keep_legal(state, [WriteStates({q: born})])
    assert commands == [WriteStates({}), Refuse(q, "New -> Online")]
    assert after.in_flight == {}
    assert state_machines.keep_legal(state, [CreateStates({q: born})]) == (state, [CreateStates({q: born})])


def test_what_the_tables_do_not_have_is_refused() -> None:
    assert not PARTITION.allows("NonExistent", "Online")
    assert not REPLICA.allows("DeletionSuccessful", "DeletionStarted")
    assert {m.name for m in state_machines.MACHINES} == {PARTITION.name, REPLICA.name}
