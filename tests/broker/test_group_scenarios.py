"""The rules of a group, told as conversations in tests/scenarios/groups/*.txt.

`>` is an event, the `<` lines below it are what the rules answer, `#` explains. `# limits: …` at the top sets
bounds. `REWRITE=1 pytest tests/broker` writes today's answers into the files; the diff is then to be judged.

  a joins, v9, static s1, session 6, patience 30, speaks range roundrobin, as consumer, id a-1
  a syncs generation 1 [giving a-1=x b-2=y]      a beats generation 1          a leaves      s1 is sent away
  a commits [by a transaction] in generation 1   write 1 is committed          write 1 fails REQUEST_TIMED_OUT
  5 s pass                                       the coordinator moves away    … and a new one reads the log
"""

import os
import re
from pathlib import Path

import pytest

from strandline.broker.groups.group import Group, GroupLimits
from strandline.broker.groups.offset_loading import restore, snapshot
from strandline.broker.groups.offset_records import group_value, read_group
from strandline.broker.groups.state import (
    AnswerJoin,
    AnswerSync,
    Effects,
    JoinAsked,
    Joined,
    Persist,
    SyncAsked,
    Synced,
)
from strandline.protocol.errors import ErrorCode

FOLDER = Path(__file__).parent.parent / "scenarios" / "groups"
DEFAULTS = {"session": "10", "patience": "30", "speaks": "range", "as": "consumer"}


class Play:
    """One group, and the people around it: who was told which id, what was written."""

    def __init__(self, limits: dict[str, str]) -> None:
        delay, size = float(limits.get("delay", 0)), int(limits.get("members", 100))
        self.limits = GroupLimits(members_max=size, initial_delay_seconds=delay)
        self.now = 0.0
        self.ids: dict[str, str] = {}
        self.born = 0
        self.told: list[str] = []
        self.writes: dict[int, bytes] = {}
        self.committed = b""
        self.group = self.new_group()

    def new_group(self) -> Group:
        return Group("g", self.limits, self.new_id, self.now)

    def new_id(self, prefix: str) -> str:
        self.born += 1
        return f"{prefix}-{self.born}"

    def perform(self, line: str) -> list[str]:
        before, self.told = self.group.state, []
        for pattern, act in EVENTS:
            match = re.fullmatch(pattern, line)
            if match is not None:
                self.effects(getattr(self, act)(**match.groupdict()) or [])
                break
        else:
            raise AssertionError(f"nobody understands: {line}")
        if self.group.state is not before:
            self.told.append(f"the group is {self.group.state}")
        return self.told

    def effects(self, effects: Effects) -> None:
        for effect in effects:
            match effect:
                case AnswerJoin() | AnswerSync():
                    effect.reply(effect.answer)  # type: ignore[arg-type]
                case Persist():
                    value = snapshot(self.group, effect.assignments, int(self.now * 1000))
                    self.writes[effect.token] = group_value(value)
                    self.told.append(
                        f"write {effect.token}: generation {value.generation}, {_members(value)}"
                    )

    # Events

    def joins(self, who: str, rest: str) -> Effects:
        facts = dict(DEFAULTS)
        version, instance, member_id = 4, None, self.ids.get(who, "")
        for fact in filter(None, (part.strip() for part in rest.split(","))):
            word, _, value = fact.partition(" ")
            if word.startswith("v") and word[1:].isdigit():
                version = int(word[1:])
            elif word == "static":
                instance = value
            elif word == "anew":
                member_id = ""
            elif word == "id":
                member_id = value
            else:
                facts[word] = value
        asked = JoinAsked(
            member_id=member_id,
            instance_id=instance,
            client_id=who,
            client_host="/127.0.0.1",
            session_timeout_ms=int(float(facts["session"]) * 1000),
            rebalance_timeout_ms=int(float(facts["patience"]) * 1000),
            protocol_type=facts["as"],
            protocols=tuple((name, f"{who} {name}".encode()) for name in facts["speaks"].split()),
            must_know_id=version >= 4,
            may_skip_assignment=version >= 9,
        )
        return self.group.join(asked, lambda joined: self.joined(who, joined), self.now)

    def joined(self, who: str, joined: Joined) -> None:
        if joined.error is not ErrorCode.NONE:
            self.told.append(f"{who}: join {joined.error.name} {joined.member_id}".rstrip())
            if joined.error is ErrorCode.MEMBER_ID_REQUIRED:
                self.ids[who] = joined.member_id
            return
        self.ids[who] = joined.member_id
        listed = " ".join(f"{each.member_id}({each.metadata.decode()})" for each in joined.members)
        skip = ", assigns nothing" if joined.skip_assignment else ""
        self.told.append(
            f"{who}: is {joined.member_id} in generation {joined.generation}, {joined.protocol}, "
            f"led by {joined.leader}{': ' + listed if listed else ''}{skip}"
        )

    def syncs(self, who: str, generation: str, given: str | None) -> Effects:
        pairs = [pair.split("=") for pair in (given or "").split()]
        member_id, _, instance = self.ids[who].partition(" as ")
        asked = SyncAsked(
            member_id=member_id,
            instance_id=instance or None,
            generation=int(generation),
            protocol_type=None,
            protocol=None,
            assignments=tuple((name, work.encode()) for name, work in pairs),
        )
        return self.group.sync(asked, lambda synced: self.synced(who, synced), self.now)

    def synced(self, who: str, synced: Synced) -> None:
        fine = synced.error is ErrorCode.NONE
        self.told.append(
            f"{who}: " + (f"works on {synced.assignment.decode()}" if fine else f"sync {synced.error.name}")
        )

    def beats(self, who: str, generation: str, instance: str | None) -> None:
        error = self.group.heartbeat(self.ids[who], instance, int(generation), self.now)
        self.told.append(f"{who}: {error.name}")

    def commits(self, who: str, transaction: str | None, instance: str | None, generation: str) -> None:
        error = self.group.commit_error(
            self.ids.get(who, ""), instance, int(generation), self.now, transactional=transaction is not None
        )
        self.told.append(f"{who}: {error.name}")

    def leaves(self, who: str) -> Effects:
        return self._leave(who, *self.group.leave(self.ids[who], None, self.now))

    def sent_away(self, instance: str) -> Effects:
        return self._leave(instance, *self.group.leave("", instance, self.now))

    def _leave(self, who: str, error: ErrorCode, effects: Effects) -> Effects:
        self.told.append(f"{who}: {error.name}")
        return effects

    def written(self, token: str, failure: str | None) -> Effects:
        error = ErrorCode[failure] if failure else ErrorCode.NONE
        if not failure:
            self.committed = self.writes[int(token)]
        return self.group.persisted(int(token), error, self.now)

    def passes(self, seconds: str) -> None:
        until = self.now + float(seconds)
        while self.group.wake_at <= until:
            self.now = max(self.now, self.group.wake_at)
            self.effects(self.group.tick(self.now))
        self.now = until

    def moves(self) -> Effects:
        return self.group.end(ErrorCode.NOT_COORDINATOR, self.now)

    def loads(self) -> Effects:
        self.group = self.new_group()
        value = read_group(self.committed)
        effects = restore(self.group, value, self.now, int(self.now * 1000))
        self.told.append(f"generation {value.generation}, {_members(value)}")
        return effects


def _members(value: object) -> str:
    members = value.members  # type: ignore[attr-defined]
    return " ".join(f"{each.member_id}={each.assignment.decode() or '-'}" for each in members) or "nobody"


EVENTS = (
    (r"(?P<who>\w+) joins(?P<rest>.*)", "joins"),
    (r"(?P<who>\w+) syncs generation (?P<generation>\d+)( giving (?P<given>.*))?", "syncs"),
    (r"(?P<who>\w+) beats generation (?P<generation>\d+)( as (?P<instance>\w+))?", "beats"),
    (
        r"(?P<who>\w+) commits( (?P<transaction>by a transaction))?( as (?P<instance>\w+))? "
        r"in generation (?P<generation>-?\d+)",
        "commits",
    ),
    (r"(?P<who>\w+) leaves", "leaves"),
    (r"(?P<instance>\w+) is sent away", "sent_away"),
    (r"write (?P<token>\d+) (is committed|fails (?P<failure>\w+))", "written"),
    (r"(?P<seconds>[\d.]+) s pass", "passes"),
    (r"the coordinator moves away", "moves"),
    (r"the new coordinator reads the log", "loads"),
)


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.txt")), ids=lambda path: path.stem)
def test_conversation(path: Path) -> None:
    written = path.read_text().splitlines()
    limits = dict(re.findall(r"(\w+) ([\d.]+)", written[0])) if written[0].startswith("# limits:") else {}
    play, played = Play(limits), []
    for line in written:
        if line.startswith("<"):
            continue
        played.append(line)
        if line.startswith("> "):
            played.extend(f"< {told}" for told in play.perform(line[2:]) or ["nothing"])
    if os.environ.get("REWRITE"):
        path.write_text("\n".join(played) + "\n")
    assert played == written
