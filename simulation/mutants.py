"""Mutants: each breaks one rule, to see whether the tests notice.

A mutant is a patch that a test applies and undoes. The code that it breaks has no switch for it, so none can
be left on. Left to others: transcripts and kept seeds that catch them (tests/simulation).
Why: docs/decisions/0037-mutants-are-patches.md
"""

from __future__ import annotations

import dataclasses
import statistics
import struct
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

from ..base.types import Offset
from ..broker.groups.consumer import heartbeats, reconciliation
from ..broker.groups.consumer.group import ConsumerGroup
from ..broker.replicas.isr_writer import IsrWriter
from ..broker.replicas.partition import Partition
from ..controller.planning import elections, planner, unclean_recovery
from ..protocol.batches import read_header
from ..protocol.errors import ErrorCode
from ..replication import isr
from ..replication.effects import Truncate
from ..replication.follower import AskRecords, Follower
from ..replication.leader import Leader
from ..replication.profiles import TODAY, Truncation
from ..storage.directories import incarnation, intact
from ..storage.log.flush import Flush
from ..storage.recovery import recover_log
from ..zookeeper import documents, znodes
from ..zookeeper.client import MultiFailed, SetData
from .many import spare_garbage
from .patches import Patches
from .world import run_seed


@dataclass(frozen=True, slots=True)
class Mutant:
    """One rule, and how to break it."""

    rule: str
    apply: Callable[[Patches], None]
    families: tuple[str, ...] = ("failover", "plain")  # whose worlds may catch it
    survives: bool = False  # cannot be caught: another rule covers for it


def _today(**rules: object) -> Callable[[Patches], None]:
    def apply(patches: Patches) -> None:
        for name, value in rules.items():
            patches.put(TODAY, name, value)

    return apply


def _trunc_hw(patches: Patches) -> None:
    def part(follower: Follower, *answer: int) -> tuple[Truncate, ...]:
        return (Truncate(follower.high_watermark, settled=True),)

    patches.put(Follower, "_part", part)


def _no_maximal(patches: Patches) -> None:
    patches.put(isr.Growing, "must_ack", property(lambda change: change.members))
    patches.put(isr.Shrinking, "must_ack", property(lambda change: change.members - change.leaving))


def _no_zkver(patches: Patches) -> None:
    attempt = IsrWriter._attempt

    async def careless(writer: IsrWriter, partition: Any, leader: Any, ask: Any) -> Any:
        _, version = await znodes.read_state(writer._zk, partition.tp)
        return await attempt(writer, partition, leader, dataclasses.replace(ask, expected_version=version))

    patches.put(IsrWriter, "_attempt", careless)


def _no_hold(patches: Patches) -> None:
    unknown = Leader.isr_unknown

    def forgotten(leader: Leader, now: float) -> Any:
        effects = unknown(leader, now)
        if not isinstance(leader.isr, isr.Settled):
            leader._settle(isr.Settled(leader.isr.members))
        return effects

    patches.put(Leader, "isr_unknown", forgotten)


def _no_isr_epoch(patches: Patches) -> None:
    def trusted(state: Any, broker: int, partition: Any, known: Any) -> bool:
        return broker in state.brokers and broker in known.isr

    patches.put(elections, "is_intact", trusted)


def _no_reset(patches: Patches) -> None:
    pause, lead = Partition.pause, Partition.lead
    before: dict[int, tuple[Partition, Any]] = {}  # by id; holds the object, so that its id is not reused

    def paused(partition: Partition) -> None:
        if partition.leading is not None:
            before[id(partition)] = partition, partition.leading._followers
        pause(partition)

    def led(partition: Partition, mandate: Any) -> None:
        lead(partition, mandate)
        leader = partition.leading
        known: dict[Any, Any] = before[id(partition)][1] if id(partition) in before else {}
        for broker, progress in leader._followers.items() if leader is not None else ():
            if broker in known:
                progress.end_offset = min(known[broker].end_offset, partition.log.end_offset)

    patches.put(Partition, "pause", paused)
    patches.put(Partition, "lead", led)


def _no_inc(patches: Patches) -> None:
    checks = znodes.member_checks

    def without(joining: int, joined_as: int, *rest: Any, **more: Any) -> Any:
        path = documents.incarnation_path(joining)
        return [check for check in checks(joining, joined_as, *rest, **more) if check.path != path]

    patches.put(znodes, "member_checks", without)


def _late_expand(patches: Patches) -> None:
    async def brokers_first(zk: Any, partition: Any, document: Any, version: int, checks: Any = ()) -> int:
        write = SetData(documents.state_path(partition), document.data(), version)
        try:
            results = await zk.multi([*checks, write])
        except MultiFailed as failed:
            if failed.culprit < len(checks):
                raise znodes.CheckFailed(checks[failed.culprit].path) from failed
            raise znodes.StateMoved(str(partition)) from failed
        return int(results[-1].version)

    patches.put(znodes, "write_state", brokers_first)


def _prune_leaderless(patches: Patches) -> None:
    leaderless = elections._leaderless

    def pruned(state: Any, known: Any) -> Any:
        after = leaderless(state, known) or known
        live = tuple(member for member in known.isr if state.is_live(member)) or known.isr[-1:]
        if after is known and live == known.isr:
            return None
        epochs = {member: k for member, k in known.isr_epochs.items() if member in live}
        return dataclasses.replace(after, isr=live, isr_epochs=epochs)

    patches.put(elections, "_leaderless", pruned)


def _news_forgotten(patches: Patches) -> None:
    held_back = planner._held_back

    def forgotten(state: Any, news: Any) -> Any:
        after, told = held_back(state, news)
        return dataclasses.replace(after, unshown=state.unshown), told

    patches.put(planner, "_held_back", forgotten)


def _balanced_isr_only(patches: Patches) -> None:
    def longest(state: Any, partition: Any, known: Any) -> int | None:
        search = state.recoveries.get(partition)
        if (
            search is None
            or search.epoch != known.leader_epoch
            or not unclean_recovery._is_due(state, partition, known)
        ):
            return None
        ends = {member: search.ends.get(state.start_of(member)) for member in known.isr}
        return None if None in ends.values() else max(ends, key=lambda member: ends[member])

    patches.put(unclean_recovery, "longest", longest)


def _dup_ack_early(patches: Patches) -> None:
    append = Partition.append

    def hasty(partition: Partition, records: memoryview, *more: Any) -> tuple[int, int, int]:
        before = partition.log.end_offset
        base, end, at = append(partition, records, *more)
        return base, 0 if read_header(records).producer_id >= 0 and end <= before else end, at

    patches.put(Partition, "append", hasty)


def _fetch_before_write(patches: Patches) -> None:
    question = Follower.question
    asked: dict[int, tuple[Follower, AskRecords]] = {}

    def hopeful(follower: Follower) -> Any:
        now = question(follower)
        if not isinstance(now, AskRecords):
            return now
        known = asked.get(id(follower))
        asked[id(follower)] = follower, now
        if known is None or known[0] is not follower or known[1] != now:
            return now
        return dataclasses.replace(now, offset=Offset(now.offset + 1))

    patches.put(Follower, "question", hopeful)


def _flush_fetch_leo(patches: Patches) -> None:
    patches.put(Follower, "must_flush", property(lambda follower: False))


def _flush_own_leo(patches: Patches) -> None:
    patches.put(Partition, "safe_end", property(lambda partition: partition.log.end_offset))


def _flush_believed(patches: Patches) -> None:
    patches.put(Flush, "run", lambda flush: None)


def _note_after_cut(patches: Patches) -> None:
    run = recover_log.LogRecovery.run
    around = dataclasses.replace

    def cut_first(recovered: Any, *more: Any) -> Any:
        noted: list[tuple[Any, ...]] = []
        whole = recovered.around
        recovered.around = around(whole, before_loss=lambda *doubt: noted.append(doubt))
        result = run(recovered, *more)
        for doubt in noted:
            whole.before_loss(*doubt)
        return result

    patches.put(recover_log.LogRecovery, "run", cut_first)


def _flush_cfg_now(patches: Patches) -> None:
    judge = intact.judge

    def by_today(before: Any, **more: Any) -> Any:
        return judge(dataclasses.replace(before, flush_mode=True), **more)

    patches.put(incarnation, "judge", by_today)


def _stale_leader(patches: Patches) -> None:
    patches.put(IsrWriter, "_stands", lambda writer, partition, leader: True)


def _given_at_once(patches: Patches) -> None:
    step = reconciliation.next_step

    def without_owners(now: Any, target: Any, epoch: int, held: Any, owned: Any) -> Any:
        return step(now, target, epoch, (), owned)

    patches.put(heartbeats, "next_step", without_owners)


def _stale_commit(patches: Patches) -> None:
    patches.put(ConsumerGroup, "epoch_error", lambda group, member_id, epoch: ErrorCode.NONE)


MUTANTS = {
    "trunc_hw": Mutant(
        "a follower truncates to where its leader says, not to its high watermark (KIP-101)", _trunc_hw
    ),
    "trunc_101": Mutant(
        "a follower asks again until both logs have the epoch (KIP-279)",
        _today(truncation=Truncation.ONE_QUESTION),
    ),
    "no_fence": Mutant("a request with another leader epoch is refused (KIP-320)", _today(fences=False)),
    "no_maximal": Mutant(
        "while an ISR change is pending, both ISRs must have a record to commit it", _no_maximal
    ),
    "no_zkver": Mutant("a leader writes the partition state only over the version it knows", _no_zkver),
    "no_hold": Mutant("an ISR change without an answer stays pending", _no_hold),
    "no_isr_epoch": Mutant(
        "a replica that has lost data since it joined the ISR does not lead", _no_isr_epoch
    ),
    "no_leso": Mutant(
        "a replica joins the ISR only at or past the start of the leader epoch",
        _today(joins_past_epoch_start=False),
    ),
    "no_reset": Mutant("fetches of an earlier epoch do not count", _no_reset),
    "no_epoch_on_become": Mutant(
        "a leader writes its epoch before its first record", _today(begins_when_elected=False)
    ),
    "no_inc": Mutant("the incarnation that joins the ISR is the one that fetched", _no_inc, survives=True),
    "late_expand": Mutant("a write puts the partition state before its checks", _late_expand),
    "prune_leaderless": Mutant("the ISR of a partition without a leader does not change", _prune_leaderless),
    "news_forgotten": Mutant(
        "what is read of a partition while it is being written is told in the end",
        _news_forgotten,
        ("rolling",),
    ),
    "balanced_isr_only": Mutant(
        "unclean recovery asks every assigned replica", _balanced_isr_only, families=()
    ),
    "dup_ack_early": Mutant("a duplicate batch waits for its acknowledgement like the first", _dup_ack_early),
    "fetch_before_write": Mutant(
        "a follower fetches from what it has written, not from what it has received", _fetch_before_write
    ),
    "flush_fetch_leo": Mutant("a fetch states what the follower has flushed", _flush_fetch_leo, ("flushed",)),
    "flush_own_leo": Mutant("a leader counts only what it has flushed", _flush_own_leo, ("flushed",)),
    "flush_believed": Mutant("a flush counts only when it has completed", _flush_believed, ("flushed",)),
    "stale_leader": Mutant(
        "a leader that has stepped down neither writes partition states nor takes answers", _stale_leader
    ),
    "given_at_once": Mutant(
        "a partition is given to a member when its last owner has given it up (KIP-848)",
        _given_at_once,
        ("assigned",),
    ),
    "stale_commit": Mutant(
        "a member commits in its present epoch only (KIP-848)", _stale_commit, ("assigned",)
    ),
    "note_after_cut": Mutant("a loss is recorded before it is made", _note_after_cut, families=()),
    "flush_cfg_now": Mutant("the flush mode of the previous run counts", _flush_cfg_now, families=()),
}


@contextmanager
def broken(name: str) -> Iterator[None]:
    """Run the body with one rule broken."""
    patches = Patches()
    MUTANTS[name].apply(patches)
    try:
        yield
    finally:
        patches.undo()


def shows(name: str, family: str, seed: int) -> str | None:
    """The violation that this seed finds with the rule broken; None if it does not notice."""
    with broken(name):
        return run_seed(seed, family).violation


@dataclass
class Search:
    """What a search for one mutant found."""

    mutant: str
    tried: int
    seeds: list[tuple[str, int]]
    until_found: list[int]

    @property
    def median(self) -> float | None:
        """How many seeds it takes; None if no search found it."""
        return statistics.median(self.until_found) if self.until_found else None


def search(job: tuple[str, int, int]) -> Search:
    """Try seeds of all its families in turn, and count how many it takes to catch the mutant."""
    name, first, count = job
    families = MUTANTS[name].families
    found: list[tuple[str, int]] = []
    until: list[int] = []
    since = 0
    for number in range(first, first + count):
        family = families[number % len(families)]
        since += 1
        try:
            violation = shows(name, family, number)
        except (KeyError, IndexError, struct.error) as error:
            violation = repr(error)
        if violation is not None:
            found.append((family, number))
            until.append(since)
            since = 0
    return Search(name, count, found, until)


def search_many(jobs: Iterable[tuple[str, int, int]], processes: int | None) -> Iterator[Search]:
    """Several mutants at once, each in one process."""
    with ProcessPoolExecutor(processes, get_context("spawn"), spare_garbage) as pool:
        yield from pool.map(search, jobs, chunksize=1)
