"""The rules of a transactional id, told as conversations in tests/scenarios/transactions/*.txt.

`>` is an event, the `<` lines below it are what the rules answer, `#` explains. `REWRITE=1 pytest
tests/broker` writes today's answers into the files; the diff is then to be judged. Partitions are letters.

  a begins [having 7/0] [, new id 7] [, timeout 5]     a (7/0) adds x y    a (7/0) commits    a (7/0) aborts
  x and y are verified for 7/0     write 1 is committed     write 1 is refused NOT_ENOUGH_REPLICAS
  write 1 takes long     x has its marker [of sending 1]     a partition refuses the marker
  it is tried again     5 s pass     the pass for time-outs     the pass for expiry after 9 s
  the coordinator moves away     the coordinator leads in a new epoch
  a new coordinator reads the log [with write 3]
"""

import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from strandline.base.types import TopicPartition
from strandline.broker.transactions.records import read_value, transaction_value
from strandline.broker.transactions.state import (
    Answer,
    Effects,
    Forget,
    InitAsked,
    Marking,
    Persist,
    ProducerIdentity,
    Reply,
    Respond,
    SendMarkers,
    Standing,
    TryAgain,
)
from strandline.broker.transactions.transaction import Transaction
from strandline.protocol.errors import ErrorCode

FOLDER = Path(__file__).parent.parent / "scenarios" / "transactions"


class Play:
    """One transactional id, those who use it, and its log."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.told: list[str] = []
        self.writes: dict[int, Standing | None] = {}
        self.log: bytes | None = None
        self.sendings: list[Marking] = []
        self.transaction = Transaction("t")

    def perform(self, line: str) -> list[str]:
        before, self.told = self.state, []
        for pattern, act in EVENTS:
            match = re.fullmatch(pattern, line)
            if match is not None:
                self.effects(getattr(self, act)(**match.groupdict()) or [])
                break
        else:
            raise AssertionError(f"nobody understands: {line}")
        if self.state != before:
            self.told.append(f"it is {self.state}")
        return self.told

    @property
    def state(self) -> str:
        now = self.transaction.standing
        return "unknown" if now is None else f"{now.state} of {_name(now.producer)}"

    def effects(self, effects: Effects) -> None:
        for effect in effects:
            match effect:
                case Respond():
                    effect.reply(effect.answer)
                case Persist():
                    self.writes[effect.token] = effect.standing
                    self.told.append(f"write {effect.token}: {_said(effect.standing)}")
                case SendMarkers():
                    self.sendings.append(effect.marking)
                    how = "commit" if effect.marking.committed else "abort"
                    self.told.append(
                        f"sending {len(self.sendings)}: {how} {_name(effect.marking.producer)} "
                        f"to {_letters(effect.marking.waiting)}"
                    )
                case TryAgain():
                    self.told.append("will be tried again")
                case Forget():
                    self.transaction = Transaction("t")
                    self.told.append("forgotten")

    def reply_to(self, who: str) -> Reply:
        def reply(answer: Answer) -> None:
            given = f" {_name(answer.producer)}" if answer.producer.id >= 0 else ""
            self.told.append(f"{who}: {answer.error.name}{given}")

        return reply

    # Events

    def begins(self, who: str, has: str | None, fresh: str | None, timeout: str | None) -> Effects:
        asked = InitAsked(int(float(timeout or 60) * 1000), _identity(has) if has else None)
        wanted = self.transaction.wants_producer_id(asked)
        assert wanted == (fresh is not None), "a new id is given when it is wanted"
        return self.transaction.init(asked, self.reply_to(who), self.now_ms, int(fresh) if fresh else None)

    def begins_without(self, who: str) -> Effects:
        return self.transaction.init(InitAsked(60_000), self.reply_to(who), self.now_ms, None)

    def adds(self, who: str, has: str, partitions: str) -> Effects:
        return self.transaction.add(_identity(has), _partitions(partitions), self.reply_to(who), self.now_ms)

    def ends(self, who: str, has: str, how: str) -> Effects:
        return self.transaction.end(_identity(has), how == "commits", self.reply_to(who), self.now_ms)

    def verified(self, partitions: str, has: str) -> None:
        found = self.transaction.verify(_identity(has), sorted(_partitions(partitions)))
        self.told += [f"{tp.topic}: {code.name}" for tp, code in found.items()]

    def written(self, token: str) -> Effects:
        standing = self.writes[int(token)]
        self.log = transaction_value(standing) if standing is not None else None
        return self.transaction.committed(int(token), self.now_ms)

    def refused(self, token: str, failure: str) -> Effects:
        return self.transaction.refused(int(token), ErrorCode[failure])

    def late(self, token: str) -> Effects:
        return self.transaction.late(int(token))

    def marked(self, partition: str, sending: str | None) -> Effects:
        (tp,) = _partitions(partition)
        return self.transaction.marked(self.sendings[int(sending or 0) - 1], tp, self.now_ms)

    def marker_refused(self) -> None:
        self.transaction.stop_marking()

    def tried_again(self) -> Effects:
        return self.transaction.retry(self.now_ms)

    def passes(self, seconds: str) -> None:
        self.now_ms += int(float(seconds) * 1000)

    def time_outs(self) -> Effects:
        return self.transaction.time_out(self.now_ms)

    def expiry(self, seconds: str) -> Effects:
        return self.transaction.expire(self.now_ms, int(float(seconds) * 1000))

    def moves(self) -> Effects:
        return self.transaction.leave()

    def loads(self, token: str | None) -> Effects:
        if token is not None:
            standing = self.writes[int(token)]
            self.log = transaction_value(standing) if standing is not None else None
        self.transaction = Transaction("t", read_value(self.log) if self.log is not None else None)
        return self.leads_again()

    def leads_again(self) -> Effects:
        return self.transaction.resume(self.now_ms)

    def worn(self, has: str) -> None:
        assert self.transaction.standing is not None
        self.transaction.standing = replace(self.transaction.standing, producer=_identity(has))


def _identity(text: str) -> ProducerIdentity:
    id, _, epoch = text.partition("/")
    return ProducerIdentity(int(id), int(epoch))


def _name(producer: ProducerIdentity) -> str:
    return f"{producer.id}/{producer.epoch}"


def _partitions(letters: str) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(letter, 0) for letter in letters.replace(" and ", " ").split())


def _letters(partitions: object) -> str:
    return " ".join(sorted(tp.topic for tp in partitions)) or "nobody"  # type: ignore[attr-defined]


def _said(standing: Standing | None) -> str:
    if standing is None:
        return "tombstone"
    among = f" with {_letters(standing.partitions)}" if standing.partitions else ""
    return f"{standing.state} of {_name(standing.producer)}{among}"


HAS = r"\((?P<has>\d+/\d+)\)"
EVENTS = (
    (r"(?P<who>\w+) begins, though no id was wanted", "begins_without"),
    (
        r"(?P<who>\w+) begins( having (?P<has>\d+/\d+))?(, new id (?P<fresh>\d+))?"
        r"(, timeout (?P<timeout>[\d.]+))?",
        "begins",
    ),
    (rf"(?P<who>\w+) {HAS} adds (?P<partitions>[a-z ]+)", "adds"),
    (rf"(?P<who>\w+) {HAS} (?P<how>commits|aborts)", "ends"),
    (r"(?P<partitions>[a-z ]+?) (is|are) verified for (?P<has>\d+/\d+)", "verified"),
    (r"write (?P<token>\d+) is committed", "written"),
    (r"write (?P<token>\d+) is refused (?P<failure>\w+)", "refused"),
    (r"write (?P<token>\d+) takes long", "late"),
    (r"(?P<partition>[a-z]) has its marker( of sending (?P<sending>\d+))?", "marked"),
    (r"a partition refuses the marker", "marker_refused"),
    (r"it is tried again", "tried_again"),
    (r"(?P<seconds>[\d.]+) s pass", "passes"),
    (r"the pass for time-outs", "time_outs"),
    (r"the pass for expiry after (?P<seconds>[\d.]+) s", "expiry"),
    (r"the coordinator moves away", "moves"),
    (r"a new coordinator reads the log( with write (?P<token>\d+))?", "loads"),
    (r"the coordinator leads in a new epoch", "leads_again"),
    (r"many epochs later it is (?P<has>\d+/\d+)", "worn"),
)


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.txt")), ids=lambda path: path.stem)
def test_conversation(path: Path) -> None:
    written = path.read_text().splitlines()
    play, played = Play(), []
    for line in written:
        if line.startswith("<"):
            continue
        played.append(line)
        if line.startswith("> "):
            played.extend(f"< {told}" for told in play.perform(line[2:]) or ["nothing"])
    if os.environ.get("REWRITE"):
        path.write_text("\n".join(played) + "\n")
    assert played == written
