"""Whatever is answered, and in whatever order: recovery elects the longest log of those it had to ask."""

from dataclasses import replace
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from strandline.base.types import TopicPartition
from strandline.controller.planning import plans
from strandline.controller.planning.planner import plan
from strandline.controller.planning.state import Broker, ClusterState, LogEnd, PartitionState, Topic

PARTITION = TopicPartition("t", 0)
IDS = (1, 2, 3)
ends = st.builds(LogEnd, st.integers(0, 3), st.integers(0, 5))


def dark(isr: tuple[int, ...]) -> ClusterState:
    """Nobody leads, nobody is there, and whoever comes back has lost data."""
    known = PartitionState(-1, 5, isr, dict.fromkeys(isr, 1), 1)
    topic = Topic("t", UUID(int=1), {0: IDS})
    return ClusterState(1, topics={"t": topic}, partitions={PARTITION: known})


def arrive(state: ClusterState, broker: int, start: int) -> tuple[ClusterState, list[plans.Command]]:
    return plan(state, plans.BrokersRead({**state.brokers, broker: Broker(broker, start, start)}))


@given(
    st.lists(st.sampled_from(IDS), min_size=1, unique=True).map(tuple),
    st.fixed_dictionaries(dict.fromkeys(IDS, ends)),
    st.lists(st.tuples(st.sampled_from(IDS), st.booleans()), max_size=30),
)
def test_the_longest_log_leads_and_nobody_else(
    isr: tuple[int, ...], logs: dict[int, LogEnd], steps: list[tuple[int, bool]]
) -> None:
    state, asked = dark(isr), set[int]()
    starts = dict.fromkeys(IDS, 1)
    is_told = dict.fromkeys(IDS, False)
    for broker, restarts in [*steps, *((b, False) for b in IDS * 2)]:
        if broker not in state.brokers or restarts:
            starts[broker] += 1
            is_told[broker] = False
            asked.discard(broker)
            state, commands = arrive(state, broker, starts[broker])
        elif broker in asked:
            is_told[broker] = True
            answer = plans.EndsAnswered(
                broker, starts[broker], frozenset([PARTITION]), {PARTITION: (5, logs[broker])}
            )
            state, commands = plan(state, answer)
        else:
            continue
        asked |= {command.broker for command in commands if isinstance(command, plans.AskEnds)}
        if PARTITION in state.in_flight:
            chosen = state.in_flight[PARTITION]
            assert all(is_told.values()), "somebody was not waited for"
            assert logs[chosen.leader] == max(logs.values())
            assert chosen.isr == (chosen.leader,) and chosen.recovering
            return
    assert not all(is_told.values()), "all have answered, and nobody leads"


@given(ends, ends)
def test_an_answer_of_another_epoch_or_another_start_is_none(one: LogEnd, other: LogEnd) -> None:
    state = dark((1,))
    for broker in IDS:
        state, _ = arrive(state, broker, 2)
    asked = frozenset([PARTITION])
    stale, _ = plan(state, plans.EndsAnswered(1, 1, asked, {PARTITION: (5, one)}))
    assert stale.recoveries == state.recoveries
    early, commands = plan(state, plans.EndsAnswered(1, 2, asked, {PARTITION: (4, other)}))
    assert early.recoveries == state.recoveries, "it may still follow somebody"
    assert commands == [plans.AskAgainLater(1, 2, asked)]
    assert replace(early.recoveries[PARTITION], ends={}) == early.recoveries[PARTITION]
