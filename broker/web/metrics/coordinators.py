"""Consumer groups and transactions that this broker coordinates, in steps.

A group's lag is from what it has committed to the high watermark of the replica on this broker: a leader's is
exact, a follower's is late by a fetch. Without a replica here it is unknown, and left out.
Left to others: when to pause (exposition.py).
"""

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ....base.types import NO_LEADER, TopicPartition
from ...groups.group import Group
from ...groups.shards import HeldGroup
from ...transactions.state import PREPARED, TransactionState
from . import declared as m
from .page import Page, escaped

if TYPE_CHECKING:
    from ...context import BrokerContext

STEP = 50  # groups, or offsets, between two pauses
TRANSACTIONS_STEP = 500


def groups(broker: "BrokerContext", page: Page, each_max: int) -> Iterator[None]:
    """All groups."""
    states: Counter[str] = Counter()
    consumers = count = offsets = 0
    for count, held in enumerate(broker.groups.held_groups(), 1):
        offsets += len(held.offsets)
        if isinstance(held.group, Group):
            states[held.group.state] += 1
        else:
            consumers += 1
        if count % STEP == 0:
            yield
    singly = count + offsets <= each_max
    if singly:
        for held in broker.groups.held_groups():
            _put_group(page, held)
            yield from _put_offsets(broker, page, held)
            yield
    page.put(m.NUM_GROUPS, count)
    page.put(m.NUM_OFFSETS, offsets)
    for state, metric in m.GROUP_STATES.items():
        page.put(metric, states[state])
    page.put(m.CONSUMER_PROTOCOL, consumers)
    page.put(m.LEFT_OUT, int(not singly), scope=m.Scope.GROUP)
    _put_counts(broker, page)


def _put_counts(broker: "BrokerContext", page: Page) -> None:
    counts = broker.groups.counts
    page.put(m.OFFSETS_COMMITTED, counts.offsets_committed)
    page.put(m.OFFSETS_EXPIRED, counts.offsets_expired)
    page.put(m.OFFSETS_DELETED, counts.offsets_deleted)
    page.put(m.REBALANCES, counts.rebalances_completed, protocol="classic")
    page.put(m.REBALANCES, counts.consumer_rebalances, protocol="consumer")
    page.put(m.LOADING, broker.groups.loading_count, coordinator="groups")
    page.put(m.LOAD_MAX, counts.load_ms_max / 1000, coordinator="groups")


def _put_group(page: Page, held: HeldGroup) -> None:
    group = held.group
    is_classic = isinstance(group, Group)
    members = len(group.members) if isinstance(group, Group) else len(group.subscriptions)
    generation = group.generation if isinstance(group, Group) else group.epoch
    page.put(m.G_MEMBERS, members, consumergroup=group.name)
    page.put(m.G_GENERATION, generation, consumergroup=group.name)
    page.put(
        m.G_STATE,
        1,
        consumergroup=group.name,
        state=group.state.value,
        protocol="classic" if is_classic else "consumer",
    )


def _put_offsets(broker: "BrokerContext", page: Page, held: HeldGroup) -> Iterator[None]:
    """The committed offsets of one group, and its lag."""
    group = escaped(held.group.name)
    offset_lines, lag_lines = page.of(m.G_OFFSET), page.of(m.G_LAG)
    behind: dict[str, int] = {}
    for number, tp in enumerate(list(held.offsets)):
        if number % STEP == 0:
            yield
        committed = held.offsets.get(tp)
        if committed is None:
            continue
        labels = f'{{consumergroup="{group}",topic="{escaped(tp.topic)}",partition="{tp.partition}"}}'
        offset_lines.append(f"{m.G_OFFSET.name}{labels} {committed.offset}")
        end = _end_of(broker, tp)
        if end is not None:
            lag = max(end - committed.offset, 0)
            lag_lines.append(f"{m.G_LAG.name}{labels} {lag}")
            behind[tp.topic] = behind.get(tp.topic, 0) + lag
    for topic, lag in sorted(behind.items()):
        page.put(m.G_LAG_SUM, lag, consumergroup=held.group.name, topic=topic)


def _end_of(broker: "BrokerContext", tp: TopicPartition) -> int | None:
    """The high watermark that is known here; None if this broker has no replica that is kept up to date."""
    replica = broker.replicas.find(tp)
    if replica is None:
        return None
    follower = replica.following
    if replica.leading is None and (follower is None or follower.leader == NO_LEADER):
        return None
    return replica.high_watermark


def transactions(broker: "BrokerContext", page: Page) -> Iterator[None]:
    """All transactional ids."""
    coordinator = broker.transactions
    states: Counter[TransactionState] = Counter()
    ids = unmarked = 0
    oldest_ms = now_ms = coordinator.wall_ms()
    for transaction in coordinator.all_transactions():
        ids += 1
        standing = transaction.standing
        if standing is not None:
            states[standing.state] += 1
            if standing.state in PREPARED:
                unmarked += len(transaction.unmarked)
            elif standing.state is TransactionState.ONGOING:
                oldest_ms = min(oldest_ms, standing.started_ms)
        if ids % TRANSACTIONS_STEP == 0:
            yield
    page.put(m.TRANSACTIONAL_IDS, ids)
    page.put(m.TRANSACTIONS_OPEN, states[TransactionState.ONGOING])
    page.put(m.TRANSACTION_AGE, (now_ms - oldest_ms) / 1000)
    page.put(m.TRANSACTIONS_PREPARED, sum(states[state] for state in PREPARED))
    page.put(m.MARKERS, unmarked)
    page.put(m.HOMELESS, coordinator.homeless_markers)
    counts = coordinator.counts
    page.put(m.COMMITS, counts.committed)
    page.put(m.ABORTS, counts.aborted)
    page.put(m.TIMEOUTS, counts.timed_out)
    page.put(m.IDS_EXPIRED, counts.expired)
    page.put(m.LOADING, coordinator.loading_count, coordinator="transactions")
    page.put(m.LOAD_MAX, counts.load_ms_max / 1000, coordinator="transactions")
