"""A thousand members' whims: whatever they do, each question has one answer and the group's books balance."""

from random import Random

import pytest

from strandline.broker.groups.group import Group, GroupLimits
from strandline.broker.groups.state import AnswerJoin, AnswerSync, GroupState, JoinAsked, Persist, SyncAsked
from strandline.protocol.errors import ErrorCode

STEPS = 400
PROTOCOLS = (("range",), ("range", "sticky"), ("sticky", "range"), ("sticky",))
FAILURES = (ErrorCode.NONE, ErrorCode.NONE, ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT)


class Crowd:
    """Members without manners, driven by a seed."""

    def __init__(self, seed: int) -> None:
        self.dice = Random(seed)
        self.now = 0.0
        self.born = 0
        self.questions: list[list[object]] = []
        self.ids = [""]
        self.tokens: list[int] = []
        limits = GroupLimits(members_max=6, initial_delay_seconds=self.dice.choice((0.0, 3.0)))
        self.group = Group("g", limits, self.new_id)

    def new_id(self, prefix: str) -> str:
        self.born += 1
        self.ids.append(f"{prefix}-{self.born}")
        return self.ids[-1]

    def question(self) -> list[object]:
        self.questions.append([])
        return self.questions[-1]

    def step(self) -> None:
        dice, group = self.dice, self.group
        member_id = dice.choice(self.ids[-8:])
        instance_id = dice.choice((None, None, "s1", "s2"))
        generation = group.generation - dice.choice((0, 0, 0, 0, 1))
        match dice.randrange(7):
            case 0 | 1:
                protocols = tuple((name, b"") for name in dice.choice(PROTOCOLS))
                asked = JoinAsked(
                    member_id=dice.choice((member_id, "")),
                    instance_id=instance_id,
                    client_id="c",
                    client_host="/h",
                    session_timeout_ms=dice.choice((5_000, 20_000)),
                    rebalance_timeout_ms=dice.choice((1, 10_000, 30_000)),
                    protocol_type="consumer",
                    protocols=protocols,
                    must_know_id=dice.random() < 0.5,
                    may_skip_assignment=dice.random() < 0.5,
                )
                effects = group.join(asked, self.question().append, self.now)
            case 2 | 3:
                sync = SyncAsked(member_id, instance_id, generation, None, None, ((member_id, b"work"),))
                effects = group.sync(sync, self.question().append, self.now)
            case 4:
                group.heartbeat(member_id, instance_id, generation, self.now)
                group.commit_error(member_id, instance_id, generation, self.now)
                effects = group.leave(member_id, instance_id, self.now)[1] if dice.random() < 0.2 else []
            case 5:
                token = self.tokens.pop(dice.randrange(len(self.tokens))) if self.tokens else 0
                effects = group.persisted(token, dice.choice(FAILURES), self.now)
            case _:
                self.now += dice.choice((0.1, 1.0, 6.0))
                effects = group.tick(self.now) if group.wake_at <= self.now else []
        self.perform(effects)

    def perform(self, effects: list[object]) -> None:
        for effect in effects:
            match effect:
                case AnswerJoin() | AnswerSync():
                    effect.reply(effect.answer)  # type: ignore[arg-type]
                case Persist():
                    assert effect.assignments.keys() == self.group.members.by_id.keys()
                    self.tokens.append(effect.token)

    def check(self) -> None:
        group, members = self.group, self.group.members
        assert all(len(answers) <= 1 for answers in self.questions), "a question is answered once"
        parked = sum((each.joining is not None) + (each.syncing is not None) for each in members)
        assert parked == sum(not answers for answers in self.questions), "who is not answered is parked"
        assert (members.leader in members) if len(members) else members.leader is None
        assert set(members.static_ids.values()) == {each.member_id for each in members if each.instance_id}
        assert not members.promised.keys() & members.by_id.keys()
        assert members.joined_count + len(members.promised) <= 2 * group.limits.members_max
        assert members.joined_count <= group.limits.members_max, "in a rebalance the joined ones are counted"
        assert (group.rebalance is not None) == (group.state is GroupState.PREPARING_REBALANCE)
        assert len(members) == 0 or members.common_protocols(), "they can always agree"
        assert (group.state is GroupState.STABLE) <= (len(members) > 0)
        deadlines = [each.deadline for each in members] + [*members.promised.values(), group.sync_until]
        assert group.wake_at <= min(deadlines), "nothing is due before the group is looked at"


@pytest.mark.parametrize("seed", range(60))
def test_whims(seed: int) -> None:
    crowd = Crowd(seed)
    for _ in range(STEPS):
        crowd.step()
        crowd.check()
    crowd.perform(crowd.group.end(ErrorCode.NOT_COORDINATOR, crowd.now))
    assert all(len(answers) == 1 for answers in crowd.questions)
