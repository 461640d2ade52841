"""The rules of consumer groups, told as conversations in tests/scenarios/consumer_groups/*.txt.

`>` is an event, the `<` lines below it are the answer and what is written to the log, `#` explains.
`REWRITE=1 pytest tests/broker` writes today's answers into the files; the diff is then to be judged.

  t has 3 partitions                 t is gone                     5 s pass
  a joins reading t [as s1] [by range] [matching ^t.*]             a beats [owning t0 t1 | owning nothing]
  a beats at epoch 2                 a asks for everything owning t0
  a leaves                           a leaves for a while          a commits at epoch 2
  c joins classic reading t [owning t0] [as s1]     c syncs     c beats classic     c leaves classic
"""

import os
import re
from pathlib import Path
from uuid import UUID

import pytest

from strandline.base.types import TopicPartition
from strandline.broker.groups.consumer import classic_members, heartbeats
from strandline.broker.groups.consumer.group import ConsumerGroup
from strandline.broker.groups.consumer.state import (
    Beat,
    Beaten,
    ConsumerLimits,
    Fact,
    Partitions,
    Progress,
    Subscription,
    TopicFacts,
    Topics,
)
from strandline.broker.groups.state import JoinAsked, SyncAsked
from strandline.client.consumer.group_protocol import decode_assignment, encode_subscription
from strandline.protocol.errors import ApiError, ErrorCode

FOLDER = Path(__file__).parent.parent / "scenarios" / "consumer_groups"


class Play:
    """One group, its members, and the topics."""

    def __init__(self, limits: dict[str, str]) -> None:
        self.group = ConsumerGroup(
            "g",
            ConsumerLimits(
                session_ms=45_000,
                interval_ms=5_000,
                members_max=int(limits.get("members", 100)),
                assignors=("uniform", "range"),
                may_upgrade=True,
                may_downgrade=True,
            ),
            since=0.0,
        )
        self.now = 0.0
        self.facts: dict[str, TopicFacts] = {}
        self.ids = 0
        self.known: dict[str, UUID] = {}
        self.epochs: dict[str, int] = {}
        self.instances: dict[str, str] = {}
        self.renew_topics()

    def perform(self, line: str) -> list[str]:
        for pattern, act in EVENTS:
            match = re.fullmatch(pattern, line)
            if match is not None:
                try:
                    told = getattr(self, act)(**match.groupdict()) or []
                except ApiError as error:
                    told = [error.code.name]
                    self.group.undo(self.group.take_noted()[1])
                return [*told, *map(self.written, self.group.take_noted()[0])]
        raise AssertionError(f"nobody understands: {line}")

    def written(self, fact: Fact) -> str:
        who = f" of {fact.member_id}" if fact.member_id else ""
        return f"log: {fact.subject.name.lower().replace('_', ' ')}{who}: {self.shown(fact.value)}"

    def shown(self, value: object) -> str:
        match value:
            case None:
                return "none"
            case Subscription():
                by = f" by {value.assignor}" if value.assignor else ""
                static = f" as {value.instance_id}" if value.instance_id else ""
                classic = " (classic)" if value.classic else ""
                regex = f" matching {value.regex}" if value.regex else ""
                return f"reads {' '.join(sorted(value.topics)) or 'nothing'}{regex}{static}{by}{classic}"
            case Progress():
                revoking = f", gives up {self.places(value.revoking)}" if value.revoking else ""
                return f"epoch {value.epoch}, {value.state.name}, has {self.places(value.assigned)}{revoking}"
            case dict():
                return " ".join(f"{name}*{each.partitions}" for name, each in value.items()) or "none"
            case frozenset():
                return self.places(value)
        return str(value)

    def places(self, partitions: Partitions) -> str:
        names = {each.id: name for name, each in self.facts.items()}
        found = sorted(f"{names.get(topic, 'old-')}{number}" for topic, number in partitions)
        return " ".join(found) or "nothing"

    def partitions(self, text: str | None) -> Partitions | None:
        if text is None:
            return None
        words = [re.fullmatch(r"([a-z]+)(\d+)", word) for word in text.split() if word != "nothing"]
        return frozenset((self.known[word[1]], int(word[2])) for word in words if word is not None)

    # Topics and time

    def has(self, topic: str, count: str) -> None:
        if topic not in self.facts:
            self.ids += 1
            self.known[topic] = UUID(int=self.ids)
        self.facts[topic] = TopicFacts(self.known[topic], int(count))
        self.renew_topics()

    def is_gone(self, topic: str) -> None:
        del self.facts[topic]
        self.renew_topics()

    def renew_topics(self) -> None:
        facts = dict(self.facts)
        self.topics = Topics(facts.get, facts)

    def passes(self, seconds: str) -> list[str]:
        told = []
        until = self.now + float(seconds)
        while self.group.wake_at <= until:
            self.now = max(self.now, self.group.wake_at)
            for member_id, what in self.group.expired(self.now).items():
                told.append(f"{member_id}: removed for its {what}")
                heartbeats.remove(self.group, [member_id], self.topics, self.now)
        self.now = until
        return told

    # The new protocol

    def joins(self, who: str, topics: str, **rest: str | None) -> list[str]:
        if rest["instance"]:
            self.instances[who] = rest["instance"]
        beat = Beat(
            member_id=who,
            epoch=0,
            instance_id=self.instances.get(who),
            rebalance_timeout_ms=30_000,
            topics=frozenset(topics.split()) - {"nothing"},
            assignor=rest["assignor"],
            regex=rest["regex"],
            owned=frozenset(),
        )
        heartbeats.check(beat, 1, self.group.limits.assignors)
        return self.heard(who, heartbeats.heartbeat(self.group, beat, self.topics, self.now))

    def beats(self, who: str, epoch: str | None, owning: str | None) -> list[str]:
        beat = Beat(who, int(epoch) if epoch else self.epochs[who], owned=self.partitions(owning))
        return self.heard(who, heartbeats.heartbeat(self.group, beat, self.topics, self.now))

    def asks_all(self, who: str, owning: str) -> list[str]:
        said = self.group.subscriptions[who]
        beat = Beat(
            member_id=who,
            epoch=self.epochs[who],
            rebalance_timeout_ms=30_000,
            topics=said.topics,
            owned=self.partitions(owning),
        )
        return self.heard(who, heartbeats.heartbeat(self.group, beat, self.topics, self.now))

    def heard(self, who: str, answer: Beaten) -> list[str]:
        self.epochs[who] = answer.epoch
        has = "as before" if answer.assignment is None else self.places(answer.assignment)
        return [f"{who}: epoch {answer.epoch}, {has}"]

    def leaves(self, who: str, for_a_while: str | None) -> None:
        if for_a_while:
            heartbeats.leave_for_a_while(self.group, who)
        else:
            heartbeats.remove(self.group, [who], self.topics, self.now)

    def commits(self, who: str, epoch: str) -> list[str]:
        return [self.group.commit_error(who, None, int(epoch), self.now).name]

    # The classic protocol

    def joins_classic(self, who: str, topics: str, owning: str | None, instance: str | None) -> list[str]:
        names = {each.id: name for name, each in self.facts.items()}
        owned = [TopicPartition(names[topic], number) for topic, number in self.partitions(owning) or ()]
        asked = JoinAsked(
            member_id=who if who in self.group.subscriptions or not instance else "",
            instance_id=instance,
            client_id=who,
            client_host="/h",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=30_000,
            protocol_type="consumer",
            protocols=(("cooperative-sticky", encode_subscription(topics.split(), owned, 1)),),
            must_know_id=True,
            may_skip_assignment=True,
        )
        joined = classic_members.join(self.group, asked, self.topics, lambda prefix: who, self.now)
        self.epochs[who] = joined.generation
        return [
            f"{who}: generation {joined.generation} of {joined.protocol}, led by {joined.leader or 'nobody'}"
        ]

    def syncs(self, who: str) -> list[str]:
        asked = SyncAsked(who, None, self.epochs[who], None, None, ())
        synced = classic_members.sync(self.group, asked, self.now)
        found = sorted(f"{tp.topic}{tp.partition}" for tp in decode_assignment(synced.assignment))
        return [f"{who}: works on {' '.join(found) or 'nothing'}"]

    def beats_classic(self, who: str) -> list[str]:
        return [classic_members.heartbeat(self.group, who, None, self.epochs[who], self.now).name]

    def leaves_classic(self, who: str) -> list[str]:
        answers = classic_members.leave(self.group, [(who, None)], self.topics, self.now)
        assert answers == [ErrorCode.NONE]
        return []


WHO = r"(?P<who>[a-z]\w*)"
TOPICS = r"(?P<topics>\w+( [tu])*)"
STATIC = r"( as (?P<instance>\w+))?"
EVENTS = (
    (r"(?P<topic>\w+) has (?P<count>\d+) partitions?", "has"),
    (r"(?P<topic>\w+) is gone", "is_gone"),
    (r"(?P<seconds>[\d.]+) s pass", "passes"),
    (f"{WHO} joins classic reading {TOPICS}( owning (?P<owning>.*?))?{STATIC}", "joins_classic"),
    (f"{WHO} joins reading {TOPICS}{STATIC}( by (?P<assignor>\\w+))?( matching (?P<regex>.*))?", "joins"),
    (WHO + r" beats classic", "beats_classic"),
    (WHO + r" beats( at epoch (?P<epoch>\d+))?( owning (?P<owning>.*))?", "beats"),
    (WHO + r" asks for everything owning (?P<owning>.*)", "asks_all"),
    (WHO + r" leaves classic", "leaves_classic"),
    (WHO + r" leaves(?P<for_a_while> for a while)?", "leaves"),
    (WHO + r" commits at epoch (?P<epoch>-?\d+)", "commits"),
    (WHO + r" syncs", "syncs"),
)


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.txt")), ids=lambda path: path.stem)
def test_conversation(path: Path) -> None:
    written = path.read_text().splitlines()
    limits = dict(re.findall(r"(\w+) ([\d.]+)", written[0])) if written[0].startswith("# limits:") else {}
    play, played = Play(limits), list[str]()
    for line in written:
        if line.startswith("<"):
            continue
        played.append(line)
        if line.startswith("> "):
            played.extend(f"< {told}" for told in play.perform(line[2:]) or ["nothing"])
    if os.environ.get("REWRITE"):
        path.write_text("\n".join(played) + "\n")
    assert played == written
