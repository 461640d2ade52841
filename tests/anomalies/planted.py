"""Brokers with a bug, to see that a run finds it: `python -m tests.anomalies.run --plant NAME`.

A bug is a patch that this module applies in the broker's own process before it starts, so the broker has no
switch for it, and none can be left on. Left to others: finding it (testing/anomalies/,
testing/verify/replicas.py). Why: docs/decisions/0037-mutants-are-patches.md
"""

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from strandline.broker.groups.transactional_commits import TransactionalCommits
from strandline.broker.transactions.markers import MarkerSender
from strandline.broker.transactions.transaction import Transaction
from strandline.cli.main import main as strandline
from strandline.controller.planning import elections
from strandline.protocol.errors import ErrorCode
from strandline.simulation.patches import Patches
from strandline.storage.log.aborts import Aborts
from strandline.storage.log.log import Log
from strandline.storage.log.producer_state import Duplicate, ProducerStates, Stored

DROPPED_EVERY = 200  # batches


class Planted(NamedTuple):
    """A bug, and the faults that bring it to light."""

    what: str
    apply: Callable[[Patches], None]
    faults: tuple[str, ...]


def _outsider_wins(patches: Patches) -> None:
    chosen = elections.next_state

    def careless(state: Any, partition: Any, known: Any, bounced: Any = frozenset()) -> Any:
        outside = [r for r in state.replicas(partition) if r not in known.isr and state.is_live(r)]
        if not outside or elections.is_electable(state, known.leader, partition, known):
            return chosen(state, partition, known, bounced)
        joined = {**known.isr_epochs, outside[0]: state.brokers[outside[0]].incarnation}
        return elections._next(state, replace(known, isr_epochs=joined), outside[0], (outside[0],))

    patches.put(elections, "next_state", careless)


def _one_marker(patches: Patches) -> None:
    send = MarkerSender.send

    def forgetful(sender: MarkerSender, errand: Any) -> None:
        errand.marking.waiting.difference_update(sorted(errand.marking.waiting)[1:])
        send(sender, errand)

    patches.put(MarkerSender, "send", forgetful)


def _aborted_offsets(patches: Patches) -> None:
    end = TransactionalCommits._end

    def generous(commits: TransactionalCommits, shard: Any, producer_id: int, _: bool, marker: int) -> None:
        end(commits, shard, producer_id, True, marker)

    patches.put(TransactionalCommits, "_end", generous)


def _dropped_batch(patches: Patches) -> None:
    check = ProducerStates.check
    seen = [0]

    def forgetful(states: ProducerStates, header: Any) -> Duplicate | None:
        found, known = check(states, header), states.get(header.producer_id)
        seen[0] += 1
        if found is not None or known is None or not known.batches or seen[0] % DROPPED_EVERY:
            return found
        last = known.batches[-1]
        known.batches.append(Stored(header.base_sequence, header.last_sequence, *last[2:]))
        return Duplicate(*last[2:])

    patches.put(ProducerStates, "check", forgetful)


def _fenced_accepted(patches: Patches) -> None:
    check = ProducerStates.check

    def trusting(states: ProducerStates, header: Any) -> Duplicate | None:
        known = states.get(header.producer_id)
        return None if known is not None and header.producer_epoch < known.epoch else check(states, header)

    def anybody(transaction: Transaction, producer: Any) -> ErrorCode:
        now = transaction.standing
        known = now is not None and now.producer.id == producer.id
        return ErrorCode.NONE if known else ErrorCode.INVALID_PRODUCER_ID_MAPPING

    patches.put(ProducerStates, "check", trusting)
    patches.put(Transaction, "_asked_by", anybody)


def _reads_to_the_watermark(patches: Patches) -> None:
    patches.put(Log, "last_stable_offset", lambda log, high_watermark: high_watermark)


def _no_aborted(patches: Patches) -> None:
    patches.put(Aborts, "overlapping", lambda aborts, start, end: [])


PLANTED = {
    "outsider-wins": Planted(
        "a follower outside the ISR wins an election",
        _outsider_wins,
        ("kill-leader-ahead", "only-an-outsider"),
    ),
    "one-marker": Planted("the marker is written to one partition of a transaction", _one_marker, ()),
    "aborted-offsets": Planted("offsets of an aborted transaction count", _aborted_offsets, ()),
    "dropped-batch": Planted("a new batch is taken for one sent twice", _dropped_batch, ()),
    "fenced-accepted": Planted("a fenced producer goes on", _fenced_accepted, ("zombie-client",)),
    "reads-to-the-watermark": Planted(
        "read_committed reads past open transactions", _reads_to_the_watermark, ()
    ),
    "no-aborted": Planted("Fetch does not tell which transactions were aborted", _no_aborted, ()),
}


def main() -> None:
    """`python -m tests.anomalies.planted NAME COMMAND…`: the broker of the command, with the bug."""
    _, name, _, _, _, *arguments = sys.argv  # python -m strandline.cli.main
    PLANTED[name].apply(Patches())
    sys.argv = ["strandline", *arguments]
    strandline()


if __name__ == "__main__":
    main()
