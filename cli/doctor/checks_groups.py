"""Checks of consumer groups that do not move, and why; and of transactions that hold readers back. Pure.

A group stands still if it lags and has committed nothing between two samples. The causes are told apart:
nobody is there, a rebalance does not end, an open transaction ends what may be read, no member has the
partition, or a member has it and commits nothing.
Left to others: when to sample (ask_groups.py), partitions without a leader (checks_topics.py).
"""

from collections.abc import Iterator, Mapping

from ...base.types import TopicPartition
from .checks_topics import TRANSACTIONS
from .facts import Facts, GroupFacts, Member, OpenTransaction, Sample
from .findings import Finding, Severity, named, plural

REBALANCING = ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling")
GONE = ("Dead",)
IDLE_MS_MIN = 10_000  # an open transaction without a record for less is no news
LONG_MS = 60_000  # Kafka's default transaction.timeout.ms
ENDING = ("PrepareCommit", "PrepareAbort", "PrepareEpochFence")

Still = tuple[str, TopicPartition | None]
Lags = dict[TopicPartition, int]


def standing_still(first: Sample, last: Sample, groups: Mapping[str, GroupFacts]) -> frozenset[Still]:
    """What has not moved from one sample to the other and should have: a group's partition; a group (without
    partition) that rebalances; a partition (without group) whose last stable offset is held back.
    """
    found: set[Still] = set()
    for name, group in groups.items():
        if _rebalances(first, name) and _rebalances(last, name):
            found.add((name, None))
        elif group.members:
            found |= {(name, tp) for tp in unmoved(first, last, name)}
    for tp in held_back(first, last):
        found.add(("", tp))
    return frozenset(found)


def unmoved(first: Sample, last: Sample, group: str) -> Lags:
    """The partitions where the group lags and has committed nothing, with the lag; not where its offset is no
    longer in the log, which has a finding of its own.
    """
    before, now = first.committed.get(group, {}), last.committed.get(group, {})
    return {
        tp: last.ends[tp].high_watermark - offset
        for tp, offset in now.items()
        if before.get(tp) == offset
        and tp in last.ends
        and tp in first.ends
        and last.ends[tp].start <= offset < last.ends[tp].high_watermark
        and first.ends[tp].high_watermark > offset
    }


def held_back(first: Sample, last: Sample) -> list[TopicPartition]:
    """The partitions whose last stable offset lies below the high watermark and has not moved."""
    return [
        tp
        for tp, ends in last.ends.items()
        if ends.last_stable < ends.high_watermark
        and tp in first.ends
        and first.ends[tp].last_stable == ends.last_stable
    ]


def _rebalances(sample: Sample, group: str) -> bool:
    return sample.states.get(group) in REBALANCING


def check_groups(facts: Facts) -> Iterator[Finding]:
    """All findings about groups and transactions."""
    yield from _transactions(facts)
    for group in facts.groups.values():
        if group.failed is not None:
            yield Finding(
                Severity.WARNING,
                "group_unknown",
                group.name,
                f"group {group.name} cannot be described by its coordinator, broker {group.coordinator}: "
                f"{group.failed}",
                f"ask again; if it stays, see the log of broker {group.coordinator} and the state of "
                "__consumer_offsets",
            )
        if facts.samples and facts.samples[-1].states.get(group.name) not in GONE:
            yield from _out_of_range(facts, group)
            yield from _still(facts, group)


def _still(facts: Facts, group: GroupFacts) -> Iterator[Finding]:
    first, last = facts.samples[0], facts.samples[-1]
    if (group.name, None) in standing_still(first, last, facts.groups):
        yield from _rebalance(facts, group)
        return
    lags = unmoved(first, last, group.name)
    if not lags or group.failed is not None:
        return
    if not group.members:
        yield Finding(
            Severity.WARNING,
            "group_without_members",
            group.name,
            f"group {group.name} has no members and lags by {plural(sum(lags.values()), 'record')} in "
            f"{named(lags)}",
            f"start its consumers; or, if it is not needed, strandline groups delete {group.name}",
            (),
            _values(group, lags),
        )
        return
    if first is last:
        return  # seen once only: it may be moving
    held = {
        tp: lag for tp, lag in lags.items() if last.committed[group.name][tp] >= last.ends[tp].last_stable
    }
    lags = {tp: lag for tp, lag in lags.items() if tp not in held}
    yield from _unread(group, lags)
    yield from _uncommitted(facts, group, lags)


def _rebalance(facts: Facts, group: GroupFacts) -> Iterator[Finding]:
    first, last = facts.samples[0], facts.samples[-1]
    if first is last:
        return
    yield Finding(
        Severity.WARNING,
        "group_rebalance_stuck",
        group.name,
        f"group {group.name} was in {last.states[group.name]} for all of {last.at_s - first.at_s:.0f} s: "
        "it waits for members that do not join again, and nobody reads",
        "find the member that is stuck in its processing (max.poll.interval.ms removes it at last); a static "
        f"member that is gone: strandline groups remove-member {group.name} --instance-id ID",
        tuple(_told(member) for member in group.members[:5]),
        {"group": group.name, "state": last.states[group.name], "members": len(group.members)},
    )


def _unread(group: GroupFacts, lags: Lags) -> Iterator[Finding]:
    """Partitions that no member has."""
    taken = {tp for member in group.members for tp in member.assignment}
    topics = {tp.topic for tp in taken}
    unread = {tp: lag for tp, lag in lags.items() if tp not in taken}
    if not unread:
        return
    other = {tp.topic for tp in unread} - topics
    why = (
        f"its members do not subscribe to {named(sorted(other))}" if other else "no member was assigned them"
    )
    yield Finding(
        Severity.WARNING,
        "group_partitions_unread",
        group.name,
        f"group {group.name} lags by {plural(sum(unread.values()), 'record')} in {named(unread)}: {why}",
        "start a consumer that subscribes to them; or, if that topic is read no more, "
        f"strandline groups delete-offsets {group.name} {next(iter(unread)).topic}",
        (),
        _values(group, unread),
    )


def _uncommitted(facts: Facts, group: GroupFacts, lags: Lags) -> Iterator[Finding]:
    """Partitions whose member holds its session and commits nothing; one finding for each member."""
    watched_s = facts.samples[-1].at_s - facts.samples[0].at_s
    for member in group.members:
        own = {tp: lag for tp, lag in lags.items() if tp in member.assignment}
        if own:
            yield Finding(
                Severity.WARNING,
                "group_no_progress",
                group.name,
                f"group {group.name} lags by {plural(sum(own.values()), 'record')} in {named(own)}, and "
                f"{_told(member)} has committed nothing for {watched_s:.0f} s",
                "see whether that consumer still polls, fails on one record (it is at the offset that "
                "`strandline groups describe` shows), or commits at all",
                ("its coordinator counts it as a member: it sends heartbeats, or its session has not ended",),
                {**_values(group, own), "member": member.id, "host": member.host},
            )


def _told(member: Member) -> str:
    static = f", static member {member.instance_id}" if member.instance_id else ""
    return f"its member {member.client_id or member.id} on {member.host}{static}"


def _values(group: GroupFacts, lags: Lags) -> dict[str, object]:
    return {"group": group.name, "lag": {str(tp): lag for tp, lag in lags.items()}}


def _out_of_range(facts: Facts, group: GroupFacts) -> Iterator[Finding]:
    """Committed offsets that are not in the log."""
    last = facts.samples[-1]
    committed = last.committed.get(group.name, {})
    early = {tp: at for tp, at in committed.items() if tp in last.ends and at < last.ends[tp].start}
    late = {tp: at for tp, at in committed.items() if tp in last.ends and at > last.ends[tp].high_watermark}
    for found, check, why, effect in (
        (
            early,
            "offset_deleted",
            "before the log start offset",
            "records were deleted before they were read",
        ),
        (
            late,
            "offset_beyond_end",
            "behind the end of the log",
            "the topic was created again, or lost records",
        ),
    ):
        if found:
            ends = {tp: last.ends[tp] for tp in found}
            yield Finding(
                Severity.WARNING,
                check,
                group.name,
                f"group {group.name} has committed offsets {why} of {named(found)}: {effect}",
                f"auto.offset.reset of its consumers decides where they go on; or choose it yourself: "
                f"strandline groups reset-offsets {group.name}",
                tuple(
                    f"{tp}: committed {at}, the log has {ends[tp].start} to {ends[tp].high_watermark}"
                    for tp, at in list(found.items())[:5]
                ),
                {"group": group.name, "committed": {str(tp): at for tp, at in found.items()}},
            )


# --- transactions ----------------------------------------------------------------------------------


def _transactions(facts: Facts) -> Iterator[Finding]:
    if not facts.samples:
        return
    held = set(held_back(facts.samples[0], facts.samples[-1]))
    state = facts.topics.get(TRANSACTIONS)
    all_known = state is None or not any(one.offline for one in state.partitions.values())
    for one in facts.transactions:
        if one.partition not in held or one.idle_ms < IDLE_MS_MIN:
            continue
        if one.transactional_id is None and all_known:
            yield _hanging(facts, one)
        elif one.transactional_id is not None and one.idle_ms >= LONG_MS:
            yield _long(facts, one, one.transactional_id)


def _hanging(facts: Facts, one: OpenTransaction) -> Finding:
    tp = one.partition
    return Finding(
        Severity.CRITICAL,
        "transaction_hanging",
        str(tp),
        f"a transaction of producer {one.producer_id} is open in {tp} since offset {one.start_offset}, and "
        "no coordinator will end it: consumers with read_committed get nothing behind it",
        f"strandline transactions abort {tp.topic} {tp.partition} --start-offset {one.start_offset}",
        _waiting(facts, one),
        _transaction_values(one),
    )


def _long(facts: Facts, one: OpenTransaction, transactional_id: str) -> Finding:
    ending = one.state in ENDING
    doing = "is being ended and its markers do not arrive" if ending else "has written nothing"
    return Finding(
        Severity.WARNING,
        "transaction_open_long",
        str(one.partition),
        f"the transaction of {transactional_id} in {one.partition} (state {one.state}) {doing} for "
        f"{one.idle_ms / 1000:.0f} s: consumers with read_committed wait at offset {one.start_offset}",
        "see that the leader of the partition answers its coordinator"
        if ending
        else "end that producer, or wait for transaction.timeout.ms: then its coordinator aborts it",
        _waiting(facts, one),
        _transaction_values(one),
    )


def _waiting(facts: Facts, one: OpenTransaction) -> tuple[str, ...]:
    """How much is held back, and which groups stand there."""
    last = facts.samples[-1]
    ends = last.ends[one.partition]
    groups = [
        name
        for name, committed in last.committed.items()
        if committed.get(one.partition, -1) >= ends.last_stable
    ]
    held = f"the last stable offset is {ends.last_stable}, the high watermark {ends.high_watermark}"
    return (held, *([f"groups that have read up to there: {named(groups)}"] if groups else []))


def _transaction_values(one: OpenTransaction) -> dict[str, object]:
    return {
        "partition": str(one.partition),
        "producer_id": one.producer_id,
        "start_offset": one.start_offset,
        "idle_ms": one.idle_ms,
        "transactional_id": one.transactional_id,
        "state": one.state,
    }
