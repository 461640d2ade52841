"""Plays the transcripts `tests/scenarios/planner*.txt`: what happens to a controller, and what it asks for.

A transcript is its own expectation: it is played, written out again with the commands that the planner
gave, and must come out as it is. `given` says how things stand, `>` what happens; indented lines
follow from it.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from strandline.base.types import TopicPartition
from strandline.controller.planning import plans
from strandline.controller.planning.assignment import Assignment
from strandline.controller.planning.planner import plan
from strandline.controller.planning.reassignment import wanted
from strandline.controller.planning.state import (
    Broker,
    ClusterState,
    LogEnd,
    PartitionState,
    Strategy,
    Topic,
)

SCENARIOS = sorted((Path(__file__).parent.parent / "scenarios").glob("planner*.txt"))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_the_planner_keeps_to_its_transcript(path: Path) -> None:
    text = path.read_text()
    assert "\n".join(Stage().play(text)) + "\n" == text


class Stage:
    def __init__(self) -> None:
        self.epoch = 5
        self.brokers: dict[int, Broker] = {}
        self.topics: dict[str, Topic] = {}
        self.partitions: dict[TopicPartition, PartitionState] = {}
        self.isr_order = False
        self.state: ClusterState | None = None

    def play(self, text: str) -> Iterator[str]:
        for line in text.splitlines():
            if line.startswith("given "):
                self.given(line.removeprefix("given "))
            elif line.startswith("scene"):
                self.__init__()  # type: ignore[misc]
            elif line.startswith(">"):
                yield line
                state = self.state or ClusterState(
                    self.epoch,
                    self.brokers,
                    topics=self.topics,
                    partitions=self.partitions,
                    isr_order=self.isr_order,
                )
                self.state, commands = plan(state, self.event(line[1:].strip(), state))
                lines = [rendered for command in commands for rendered in render(command)]
                yield from lines or ["  nothing"]
                continue
            elif line.startswith("  "):
                continue
            yield line

    def given(self, line: str) -> None:
        if line == "elections by the order of the ISR":
            self.isr_order = True
        elif found := re.fullmatch(r"brokers ([\d ]+)", line):
            self.brokers |= {b: Broker(b, 1, 1) for b in numbers(found[1])}
        elif found := re.fullmatch(r"broker (\d+) at its (\d+)\S+ start, its data whole", line):
            self.brokers[int(found[1])] = Broker(int(found[1]), int(found[2]), 1)
        elif found := re.fullmatch(r"broker (\d+) has reported failed log directories", line):
            known = self.brokers[int(found[1])]
            self.brokers[known.id] = replace(known, has_failed_dirs=True)
        elif found := re.fullmatch(r"topic (\S+)( unclean)?: (.+)", line):
            self.topics[found[1]] = topic(found[1], found[3], bool(found[2]))
        elif found := re.fullmatch(r"broker (\d+) at its (\d+)\S+ start, in doubt about (\S+)", line):
            doubts = {found[3]: int(found[2])}
            self.brokers[int(found[1])] = Broker(int(found[1]), int(found[2]), 1, doubts)
        elif found := re.fullmatch(r"every partition led by its first replica", line):
            for each in self.topics.values():
                for q in each.partitions:
                    isr = each.replicas[q.partition]
                    self.partitions[q] = PartitionState(isr[0], 0, isr, dict.fromkeys(isr, 1), self.epoch)
        elif found := re.fullmatch(r"(\S+)-(\d+) is moving to ([\d ]+)", line):
            known = self.topics[found[1]]
            self.topics[found[1]] = moved(known, int(found[2]), numbers(found[3]))
        elif found := re.fullmatch(r"(\S+)-(\d+): (.+)", line):
            self.partitions[TopicPartition(found[1], int(found[2]))] = partition_state(found[3], self.epoch)
        else:
            raise AssertionError(f"not understood: given {line}")

    def event(self, line: str, state: ClusterState) -> plans.Event:
        for pattern, make in EVENTS.items():
            if found := re.fullmatch(pattern, line):
                return make(state, found)  # type: ignore[no-any-return,operator]
        raise AssertionError(f"not understood: > {line}")


def numbers(text: str) -> list[int]:
    return [int(word) for word in text.split()]


def partitions(text: str) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(w.rpartition("-")[0], int(w.rpartition("-")[2])) for w in text.split())


def topic(name: str, replicas: str, unclean: bool = False) -> Topic:
    configs = {"unclean.leader.election.enable": "true"} if unclean else {}
    each = {i: tuple(numbers(one)) for i, one in enumerate(replicas.split("/"))}
    return Topic(name, UUID(int=sum(name.encode())), each, configs)


def moved(known: Topic, number: int, target: list[int] | None) -> Topic:
    """The topic as its node says after somebody has asked for this; without a target: has cancelled."""
    return assigned(known, {number: wanted(known.assignment(number), target, range(100))})


def assigned(known: Topic, changes: dict[int, Assignment]) -> Topic:
    moves = {number: one for number, one in {**known.moves, **changes}.items() if one.is_moving}
    replicas = {**known.replicas, **{number: one.replicas for number, one in changes.items()}}
    return replace(known, replicas=replicas, moves=moves)


def assignments_landed(state: ClusterState, found: re.Match[str]) -> plans.Event:
    departed = {q.partition: d for q, d in state.departures.items() if q.topic == found[1] and d.is_written}
    topic = assigned(state.topics[found[1]], {number: one.then for number, one in departed.items()})
    return plans.TopicsRead({found[1]: topic})


def partition_state(text: str, epoch: int) -> PartitionState:
    found = re.fullmatch(
        r"leader (\S+), epoch (\d+), isr ([\d ]+?)(?:, joined at starts ([\d ]+?))?"
        r"(?:, version (\d+))?(?:, by controller (\d+))?(, recovering)?",
        text,
    )
    assert found, text
    isr = tuple(numbers(found[3]))
    joined = numbers(found[4]) if found[4] else [1] * len(isr)
    leader = -1 if found[1] == "none" else int(found[1])
    by = int(found[6] or epoch)
    return PartitionState(
        leader,
        int(found[2]),
        isr,
        dict(zip(isr, joined, strict=True)),
        by,
        bool(found[7]),
        int(found[5] or 0),
    )


def elected(state: ClusterState, found: re.Match[str]) -> plans.Event:
    suspected = frozenset((b, state.brokers[b].incarnation) for b in numbers(found[1] or ""))
    return plans.Elected(state.brokers, state.topics, state.partitions, suspected=suspected)


def started(state: ClusterState, found: re.Match[str]) -> plans.Event:
    b, k = int(found[1]), int(found[2])
    old = state.brokers.get(b)
    since = k if found[3] == "its data lost" else old.intact_since if old else 1
    again = Broker(b, k, since, has_failed_dirs=old is not None and old.has_failed_dirs)
    return plans.BrokersRead({**state.brokers, b: again})


def landed(state: ClusterState, found: re.Match[str]) -> plans.Event:
    chosen = state.in_flight.keys() if not found[1] else partitions(found[1])
    written = {q: s for q, s in state.in_flight.items() if q in chosen}
    known = state.partitions
    return plans.StatesWritten({q: replace(s, version=s.version + (q in known)) for q, s in written.items()})


def answered(state: ClusterState, found: re.Match[str]) -> plans.Event:
    b = int(found[1])
    k = int(found[2]) if found[2] else state.brokers[b].incarnation
    known = {q: state.partitions[q] for q in partitions(found[3]) if q in state.partitions}
    return plans.ReplicasAnswered(
        b,
        k,
        partitions(found[3]),
        led={q: one.leader_epoch for q, one in known.items() if one.leader == b},
        offline=partitions(found[4]) if found[5] == "offline" else frozenset(),
        full=partitions(found[4]) if found[5] == "full" else frozenset(),
    )


def refused(state: ClusterState, found: re.Match[str]) -> plans.Event:
    b, k = state.start_of(int(found[1]))
    roles = {q: state.partitions[q].leader_epoch for q in partitions(found[3]) if q in state.partitions}
    return plans.RolesRefused(b, int(found[2] or k), roles)


def said(state: ClusterState, found: re.Match[str]) -> plans.Event:
    ends = {
        TopicPartition(topic, int(number)): (int(end), int(epoch))
        for topic, number, end, epoch in re.findall(r"(\S+)-(\d+) ends at (\d+) in epoch (\d+)", found[2])
    }
    known = {q: (state.partitions[q].leader_epoch, LogEnd(epoch, end)) for q, (end, epoch) in ends.items()}
    return plans.EndsAnswered(*state.start_of(int(found[1])), frozenset(ends), known)


def leaving(state: ClusterState, found: re.Match[str]) -> plans.Event:
    broker = replace(state.brokers[int(found[1])], leaving=True)
    return plans.BrokersRead({**state.brokers, broker.id: broker})


def election(state: ClusterState, found: re.Match[str]) -> plans.Event:
    kind = plans.ElectionKind.PREFERRED if found[1] == "preferred leaders" else plans.ElectionKind.UNCLEAN
    return plans.ElectionWanted(kind, partitions(found[2]))


def configured(state: ClusterState, found: re.Match[str]) -> plans.Event:
    known = state.topics[found[1]]
    at = known.configs_at if found[4] else (1, known.configs_at[1] + 1)
    return plans.TopicsRead({found[1]: replace(known, configs={found[2]: found[3]}, configs_at=at)})


EVENTS: dict[str, object] = {
    r"elected(?:, suspecting ([\d ]+))?": elected,
    r"the brokers are ([\d ]+)": lambda s, f: plans.BrokersRead(
        {b: s.brokers.get(b) or Broker(b, 1, 1) for b in numbers(f[1])}
    ),
    r"no broker is left": lambda s, f: plans.BrokersRead({}),
    r"broker (\d+) starts for the (\d+)\S+ time, (its data whole|its data lost)": started,
    r"the connection to broker (\d+) breaks": lambda s, f: plans.BrokerSuspected(
        int(f[1]), s.brokers[int(f[1])].incarnation
    ),
    r"broker (\d+) answers again": lambda s, f: plans.BrokerCleared(
        int(f[1]), s.brokers[int(f[1])].incarnation
    ),
    r"broker (\d+) is (out of reach|reached again)": lambda s, f: plans.ReachChanged(
        *s.start_of(int(f[1])), is_reached=f[2] == "reached again"
    ),
    r"the writes land()": landed,
    r"the writes? of (.+) lands?": landed,
    r"the writes? of (.+) finds? another version": lambda s, f: plans.StatesWritten({}, partitions(f[1])),
    r"topic (\S+) has replicas on ([\d /]+)": lambda s, f: plans.TopicsRead({f[1]: topic(f[1], f[2])}),
    r"topic (\S+) is given (\S+)=([^ ,]+)(, read again)?": configured,
    r"unclean leaders are (no|the) default": lambda s, f: plans.DefaultsChanged(f[1] == "the"),
    r"partitions are recovered (\S+)": lambda s, f: plans.DefaultsChanged(
        s.unclean, {"manually": Strategy.MANUAL, "aggressively": Strategy.AGGRESSIVE}[f[1]]
    ),
    r"acks=all needs (\d+) by default": lambda s, f: plans.DefaultsChanged(s.unclean, s.strategy, int(f[1])),
    r"broker (\d+) says: (.+)": said,
    r"broker (\d+) does not say how far (.+) go": lambda s, f: plans.EndsAnswered(
        *s.start_of(int(f[1])), partitions(f[2])
    ),
    r"a while later": lambda s, f: plans.AskAgainDue(*s.start_of(2), frozenset(s.recoveries)),
    r"whoever is not in the ISR of (.+) has had time enough": lambda s, f: plans.RecoveryTimeOver(
        {q: s.recoveries[q].epoch for q in partitions(f[1])}
    ),
    r"an operator wants (preferred leaders|any leaders) for (.+)": election,
    r"the balance of leaders is looked at": lambda s, f: plans.RebalanceDue(10),
    r"broker (\d+) registers that it is leaving": leaving,
    r"topic (\S+) is gone": lambda s, f: plans.TopicsRead({}, frozenset([f[1]])),
    r"nothing is found at (.+)": lambda s, f: plans.StatesRead(dict.fromkeys(partitions(f[1]))),
    r"(\S+) cannot be understood": lambda s, f: plans.StatesRead({}, partitions(f[1])),
    r"(\S+-\d+) is found: (.+)": lambda s, f: plans.StatesRead(
        dict.fromkeys(partitions(f[1]), partition_state(f[2], 5))
    ),
    r"leaders report new ISRs of (.+)": lambda s, f: plans.IsrsChanged(tuple(sorted(partitions(f[1])))),
    r"broker (\d+)(?: at its (\d+)\S+ start)? refuses (.+)": refused,
    r"broker (\d+) wants to stop": lambda s, f: plans.ShutdownWanted(
        int(f[1]), s.brokers[int(f[1])].incarnation
    ),
    r"broker (\d+) reports its log directories": lambda s, f: plans.LogDirsChanged(frozenset([int(f[1])])),
    r"broker (\d+) answere?[sd](?: at its (\d+)\S+ start)? for ([^:]+?)(?:: (.+) (offline|full))?": answered,
    r"(\S+)-(\d+) shall move to ([\d ]+)": lambda s, f: plans.TopicsRead(
        {f[1]: moved(s.topics[f[1]], int(f[2]), numbers(f[3]))}
    ),
    r"the move of (\S+)-(\d+) is cancelled": lambda s, f: plans.TopicsRead(
        {f[1]: moved(s.topics[f[1]], int(f[2]), None)}
    ),
    r"the assignments of (\S+) land": assignments_landed,
    r"topic (\S+) is read again": lambda s, f: plans.TopicsRead({f[1]: s.topics[f[1]]}),
    r"topic (\S+) shall be deleted": lambda s, f: plans.DeletionsWanted(frozenset([f[1]])),
    r"broker (\d+) has deleted (.+)": lambda s, f: plans.ReplicasDeleted(int(f[1]), partitions(f[2])),
    r"broker (\d+) could not delete (.+)": lambda s, f: plans.ReplicasDeleted(
        int(f[1]), frozenset(), partitions(f[2])
    ),
}


def render(command: plans.Command) -> Iterator[str]:
    match command:
        case plans.WriteStates(writes) | plans.CreateStates(writes):
            yield (
                "  write, all at once" if isinstance(command, plans.WriteStates) else "  create, all at once"
            )
            for q, state in sorted(writes.items()):
                yield f"    {q}: {describe(state)}"
        case plans.ReadStates(wanted):
            yield f"  read {words(wanted)}"
        case plans.RemoveTopic(name):
            yield f"  remove topic {name} from ZooKeeper"
        case plans.RestorePartitions(name, _, assignments):
            numbers_of = " ".join(f"{name}-{number}" for number in sorted(assignments))
            yield f"  say that {name} was shrunk, and put back what its node lacks of {numbers_of}"
        case plans.WriteAssignments(name, changes):
            for number, (before, then) in sorted(changes.items()):
                now = f"{words(then.replicas)}, no longer {words(before.replicas)}"
                yield f"  let {name}-{number} be held by {now}"
        case plans.AskEnds(broker, asked):
            yield f"  ask broker {broker} how far {words(asked)} go"
        case plans.AskAgainLater(broker, _, asked):
            yield f"  ask broker {broker} again later about {words(sorted(asked))}"
        case plans.AwaitReplicas(timed, is_forced):
            how_long = "shortly" if is_forced else "some time"
            yield f"  wait {how_long} for the replicas of {words(sorted(timed))}"
        case plans.ReportLoss(q, state, isr, ends):
            who = f"broker {state.leader} leads, the ISR was {words(isr)}"
            yield f"  report that records of {q} may be lost: {who}"
            for b, end in ends.items():
                yield f"    broker {b} ends at {end.offset} in epoch {end.epoch}"
        case plans.Resign(because):
            yield f"  resign: {because}"
        case plans.SendLeaderAndIsr(broker, roles, full):
            yield f"  tell broker {broker}" + (", and this is all it has:" if full else "")
            for role in roles:
                yield f"    {role.partition}: {describe(role.state)}" + (", new" if role.is_new else "")
        case plans.SendUpdateMetadata(brokers, roles):
            yield f"  show {words(brokers) or 'nobody'}: " + (summary(roles) or "who is there")
        case plans.SendStopReplica(broker, stops, delete):
            what = "delete" if delete else "stop following"
            yield f"  tell broker {broker} to {what} {words(sorted(stops))}"


def words(items: object) -> str:
    return " ".join(str(item) for item in items)  # type: ignore[attr-defined]


def summary(roles: tuple[plans.PartitionRole, ...]) -> str:
    return ", ".join(f"{role.partition} led by {leader(role.state)}" for role in roles)


def leader(state: PartitionState) -> str:
    return {-1: "none", -2: "none for ever"}.get(state.leader, str(state.leader))


def describe(state: PartitionState) -> str:
    text = f"leader {leader(state)}, epoch {state.leader_epoch}, isr {words(state.isr)}"
    if any(joined != 1 for joined in state.isr_epochs.values()):
        text += f", joined at starts {words(state.isr_epochs[m] for m in state.isr if m in state.isr_epochs)}"
    return text + (", records may be lost" if state.recovering else "")
