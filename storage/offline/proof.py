"""How much of a partition its replicas' closed directories prove committed. Pure.

A replica r has left three things: its log; its high watermark HW(r), as last written to
`replication-offset-checkpoint`; and its history, `leader-epoch-checkpoint`: where each leader epoch begins in
its log. Nobody can be asked for more. The rule:

1. The newest history is that of the replica with the latest epoch, even if it has no record of it.
2. A replica agrees with the newest history up to where the latest epoch that both know ends, in whichever of
   them it ends first. Without such an epoch it agrees nowhere.
3. Committed is what lies below the largest min(HW(r), where r stops agreeing).
4. Every replica may serve that as far as it agrees.

Proof that a record which is read was committed, and is cut by no election that these directories know of:

- What r's log has below HW(r) was committed. As a leader r counted what every member of the ISR holds; as a
  follower it took the least of its leader's high watermark and its own log end, from an answer that found
  both logs equal so far. A broker lowers the entry before it cuts the log, so the records below it today are
  those of then (storage/directories/offset_checkpoints.py). Kafka cuts first: see `doubt` in directories.py.
- Two logs that know an epoch are equal up to where it ends first. Only its leader gave offsets in it, and a
  log took records of it only where it was equal to the leader's so far (KIP-101, KIP-279, KIP-320).
- So up to min(HW(r), where r stops agreeing) the newest history has the records that r proves committed.
- Only an election outside of the ISR can cut what was committed, and it begins an epoch, which its leader
  writes down before its first record. No directory here knows a later one than the newest history.

All replicas must be of one topic: epochs begin anew with each, so those of a topic that had the name before
would agree (client/spark/offline/members.py sees to that, by topic ids).

It reads less than was acknowledged: high watermarks are written every
`replica.high.watermark.checkpoint.interval.ms` (5 s) and when a broker stops. After a kill up to so much is
in the logs and not proven. What is beyond is only read as one replica has it (`upto=leo`).
It cannot see an election that only absent replicas know of: then what they have cut is read.
Left to others: what the files say (directories.py), reading by these bounds (reading.py).
"""

from collections.abc import Sequence
from typing import NamedTuple

from ..log.leader_epochs import NONE, Entry

FAR = (1 << 63) - 1  # beyond all offsets


class Replica(NamedTuple):
    """What a replica has left, besides its records."""

    broker: int
    epochs: tuple[Entry, ...]
    high_watermark: int  # -1: none that can be believed
    start: int


class Proven(NamedTuple):
    """What the replicas of a partition prove together."""

    start: int  # every replica has deleted what is before, or may have
    end: int  # below it all was committed
    epoch: int  # the latest one
    agreed: tuple[int, ...]  # of each replica: where its log stops being the newest one


def prove(replicas: Sequence[Replica]) -> Proven:
    """The rule above. The start is the largest: what one of them has deleted does not come back.

    Only what is committed is deleted, so what comes before the start was.
    """
    assert replicas, "nothing proves nothing"
    newest = max((each.epochs for each in replicas), key=latest)
    agreed = tuple(agreement(each.epochs, newest) for each in replicas)
    known = [(each, until) for each, until in zip(replicas, agreed, strict=True) if until > each.start]
    start = max((each.start for each, _ in known), default=max(each.start for each in replicas))
    end = max((min(each.high_watermark, until) for each, until in known), default=start)
    return Proven(start, max(start, end), latest(newest), agreed)


def agreement(epochs: Sequence[Entry], newest: Sequence[Entry]) -> int:
    """Up to where a log with these epochs is the same as one with the newest."""
    common = {epoch for epoch, _ in epochs} & {epoch for epoch, _ in newest}
    if not common:
        return 0
    return min(_end(epochs, max(common)), _end(newest, max(common)))


def latest(epochs: Sequence[Entry]) -> int:
    """The latest epoch; -1 of a log that has none."""
    return epochs[-1][0] if epochs else NONE


def _end(epochs: Sequence[Entry], epoch: int) -> int:
    return min((start for later, start in epochs if later > epoch), default=FAR)
