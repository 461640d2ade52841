"""Whatever the state of the world, an election keeps to these rules; and a world at rest stays at rest."""

from dataclasses import replace
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from strandline.base.types import TopicPartition
from strandline.controller.planning import plans
from strandline.controller.planning.elections import is_electable, is_intact, next_state
from strandline.controller.planning.planner import plan
from strandline.controller.planning.state import Broker, ClusterState, PartitionState, Topic

PARTITION = TopicPartition("t", 0)
IDS = (1, 2, 3)

brokers = st.dictionaries(
    st.sampled_from(IDS),
    st.tuples(st.integers(1, 3), st.integers(1, 3)).map(lambda pair: (max(pair), min(pair))),
)
members = st.lists(st.sampled_from(IDS), min_size=1, unique=True)


@st.composite
def worlds(draw: st.DrawFn) -> ClusterState:
    there = {b: Broker(b, k, since) for b, (k, since) in draw(brokers).items()}
    isr = tuple(draw(members))
    state = PartitionState(
        leader=draw(st.sampled_from((-1, *isr))),
        leader_epoch=draw(st.integers(0, 5)),
        isr=isr,
        isr_epochs=draw(st.fixed_dictionaries({}, optional={m: st.integers(0, 3) for m in isr})),
        controller_epoch=1,
    )
    starts = [(b, broker.incarnation) for b, broker in there.items()]
    some = st.frozensets(st.sampled_from(starts)) if starts else st.just(frozenset())
    configs = {"unclean.leader.election.enable": draw(st.sampled_from(("true", "false")))}
    return ClusterState(
        controller_epoch=1,
        brokers=there,
        suspected=draw(some),
        unreached=draw(some),
        leaving=draw(some),
        topics={"t": Topic("t", UUID(int=1), {0: IDS}, configs)},
        partitions={PARTITION: state},
    )


@given(worlds())
def test_an_election_keeps_to_the_rules(world: ClusterState) -> None:
    known = world.partitions[PARTITION]
    wanted = next_state(world, PARTITION, known)
    if wanted is None:
        return
    assert wanted.leader_epoch == known.leader_epoch + 1
    assert wanted.version == known.version
    assert wanted.isr and wanted.isr_epochs.keys() <= set(wanted.isr)
    if wanted.leader == -1:
        assert wanted.isr == known.isr, "an ISR without a leader is not touched"
        assert not any(is_electable(world, r, PARTITION, known) for r in known.isr)
    elif wanted.recovering:
        assert world.allows_unclean("t")
        assert not any(is_intact(world, r, PARTITION, known) for r in known.isr), (
            "nobody whole is passed over"
        )
    else:
        assert is_electable(world, wanted.leader, PARTITION, known)
        assert set(wanted.isr) <= set(known.isr)


@given(worlds())
def test_suspicion_alone_takes_no_partition_offline(world: ClusterState) -> None:
    known = world.partitions[PARTITION]
    if known.leader == -1 or not is_intact(world, known.leader, PARTITION, known):
        return
    wanted = next_state(world, PARTITION, known)
    assert wanted is None or (wanted.leader != -1 and not wanted.recovering)


@given(worlds())
def test_one_write_is_enough(world: ClusterState) -> None:
    wanted = next_state(world, PARTITION, world.partitions[PARTITION])
    if wanted is not None:
        settled = replace(world, partitions={PARTITION: wanted})
        assert next_state(settled, PARTITION, wanted) is None


@given(worlds(), st.permutations([1, 2, 3]))
def test_decisions_do_not_depend_on_the_order_of_a_dict(world: ClusterState, order: list[int]) -> None:
    shuffled = {b: world.brokers[b] for b in order if b in world.brokers}
    other = replace(world, brokers=shuffled)
    event = plans.BrokersRead({})
    assert plan(world, event)[1] == plan(other, event)[1]
    known = world.partitions[PARTITION]
    assert next_state(world, PARTITION, known) == next_state(other, PARTITION, known)


def test_who_would_not_hear_of_it_is_not_made_leader_while_there_are_others() -> None:
    """It lives, but the controller does not reach it: the partition would have no leader for as long."""
    there = {b: Broker(b, 1, 1) for b in IDS}
    known = PartitionState(3, 4, IDS, dict.fromkeys(IDS, 1), 1)
    topics = {"t": Topic("t", UUID(int=1), {0: IDS})}
    world = ClusterState(1, there, topics=topics, partitions={PARTITION: known})

    def leader(world: ClusterState) -> int:
        wanted = next_state(world, PARTITION, world.partitions[PARTITION])
        return known.leader if wanted is None else wanted.leader

    cut, _ = plan(world, plans.ReachChanged(1, 1, False))
    for wished in (world, cut):
        asked = replace(wished, preferring=frozenset({PARTITION}))
        assert leader(asked) == (1 if wished is world else 3), "the preferred one, if it can be told"
    without = {b: there[b] for b in (1, 2)}
    assert leader(replace(world, brokers=without)) == 1
    assert leader(replace(cut, brokers=without)) == 2
    assert leader(replace(cut, brokers={1: there[1]})) == 1, "better than none"
    leads, _ = plan(world, plans.ReachChanged(3, 1, False))
    assert leader(leads) == 3, "it leads on"
    again, _ = plan(cut, plans.ReachChanged(1, 1, True))
    assert leader(replace(again, brokers=without)) == 1
    untold = replace(world, untold={PARTITION: known.leader_epoch})
    assert leader(plan(untold, plans.ReachChanged(3, 1, False))[0]) == 1, "it does not know that it leads"
    written, _ = plan(untold, plans.StatesRead({PARTITION: replace(known, isr=(2, 3), version=7)}))
    assert leader(plan(written, plans.ReachChanged(3, 1, False))[0]) == 3, "who writes its ISR knows it"
    doubts, _ = plan(untold, plans.ReachDoubted(True))
    silent, _ = plan(doubts, plans.ReachChanged(3, 1, False))
    assert leader(silent) == 3, "a controller in doubt moves nobody whom it does not reach"
    assert leader(replace(silent, brokers=without)) == 1, "who has gone is replaced all the same"
    assert leader(plan(silent, plans.ReachDoubted(False))[0]) == 1, "it is not isolated: so the other is"
    restarted = {**there, 1: Broker(1, 2, 1)}
    assert not plan(cut, plans.BrokersRead(restarted))[0].unreached


def test_a_state_without_an_isr_as_a_tool_may_write_it_ends_no_term() -> None:
    """Nobody can prove what it holds: its leader goes, and the longest log is looked for."""
    known = PartitionState(1, 4, (), {}, 1)
    there = {b: Broker(b, 1, 1) for b in (2, 3)}
    topic = Topic("t", UUID(int=1), {0: IDS})
    world = ClusterState(1, brokers=there, topics={"t": topic}, partitions={PARTITION: known})
    wanted = next_state(world, PARTITION, known)
    assert wanted is not None and (wanted.leader, wanted.leader_epoch, wanted.isr) == (-1, 5, ())
