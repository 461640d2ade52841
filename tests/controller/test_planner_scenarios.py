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

from strandline.controller import plans as p
from strandline.controller.planner import plan
from strandline.controller.state import Broker, ClusterState, PartitionState, Topic
from strandline.protocol.kinds import TopicPartition

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
                    self.epoch, self.brokers, topics=self.topics, partitions=self.partitions
                )
                self.state, commands = plan(state, self.event(line[1:].strip(), state))
                lines = [rendered for command in commands for rendered in render(command)]
                yield from lines or ["  nothing"]
                continue
            elif line.startswith("  "):
                continue
            yield line

    def given(self, line: str) -> None:
        if found := re.fullmatch(r"brokers ([\d ]+)", line):
            self.brokers |= {b: Broker(b, 1, 1) for b in numbers(found[1])}
        elif found := re.fullmatch(r"broker (\d+) at its (\d+)\S+ start, its data whole", line):
            self.brokers[int(found[1])] = Broker(int(found[1]), int(found[2]), 1)
        elif found := re.fullmatch(r"topic (\S+)( unclean)?: (.+)", line):
            self.topics[found[1]] = topic(found[1], found[3], bool(found[2]))
        elif found := re.fullmatch(r"every partition led by its first replica", line):
            for each in self.topics.values():
                for q in each.partitions:
                    isr = each.replicas[q.partition]
                    self.partitions[q] = PartitionState(isr[0], 0, isr, dict.fromkeys(isr, 1), self.epoch)
        elif found := re.fullmatch(r"(\S+)-(\d+): (.+)", line):
            self.partitions[TopicPartition(found[1], int(found[2]))] = partition_state(found[3], self.epoch)
        else:
            raise AssertionError(f"not understood: given {line}")

    def event(self, line: str, state: ClusterState) -> p.Event:
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


def partition_state(text: str, epoch: int) -> PartitionState:
    found = re.fullmatch(
        r"leader (\S+), epoch (\d+), isr ([\d ]+?)(?:, joined at starts ([\d ]+?))?"
        r"(?:, version (\d+))?(?:, by controller (\d+))?",
        text,
    )
    assert found, text
    isr = tuple(numbers(found[3]))
    joined = numbers(found[4]) if found[4] else [1] * len(isr)
    leader = -1 if found[1] == "none" else int(found[1])
    by = int(found[6] or epoch)
    return PartitionState(
        leader, int(found[2]), isr, dict(zip(isr, joined, strict=True)), by, version=int(found[5] or 0)
    )


def elected(state: ClusterState, found: re.Match[str]) -> p.Event:
    suspected = frozenset((b, state.brokers[b].incarnation) for b in numbers(found[1] or ""))
    return p.Elected(state.brokers, state.topics, state.partitions, suspected=suspected)


def started(state: ClusterState, found: re.Match[str]) -> p.Event:
    b, k = int(found[1]), int(found[2])
    old = state.brokers.get(b)
    since = k if found[3] == "its data lost" else old.intact_since if old else 1
    return p.BrokersRead({**state.brokers, b: Broker(b, k, since)})


def landed(state: ClusterState, found: re.Match[str]) -> p.Event:
    chosen = state.in_flight.keys() if not found[1] else partitions(found[1])
    written = {q: s for q, s in state.in_flight.items() if q in chosen}
    known = state.partitions
    return p.StatesWritten({q: replace(s, version=s.version + (q in known)) for q, s in written.items()})


EVENTS: dict[str, object] = {
    r"elected(?:, suspecting ([\d ]+))?": elected,
    r"the brokers are ([\d ]+)": lambda s, f: p.BrokersRead(
        {b: s.brokers.get(b) or Broker(b, 1, 1) for b in numbers(f[1])}
    ),
    r"no broker is left": lambda s, f: p.BrokersRead({}),
    r"broker (\d+) starts for the (\d+)\S+ time, (its data whole|its data lost)": started,
    r"the connection to broker (\d+) breaks": lambda s, f: p.BrokerSuspected(
        int(f[1]), s.brokers[int(f[1])].incarnation
    ),
    r"broker (\d+) answers again": lambda s, f: p.BrokerCleared(int(f[1]), s.brokers[int(f[1])].incarnation),
    r"the writes land()": landed,
    r"the writes? of (.+) lands?": landed,
    r"the writes? of (.+) finds? another version": lambda s, f: p.StatesWritten({}, partitions(f[1])),
    r"topic (\S+) has replicas on ([\d /]+)": lambda s, f: p.TopicsRead({f[1]: topic(f[1], f[2])}),
    r"topic (\S+) is gone": lambda s, f: p.TopicsRead({}, frozenset([f[1]])),
    r"nothing is found at (.+)": lambda s, f: p.StatesRead(dict.fromkeys(partitions(f[1]))),
    r"(\S+) cannot be understood": lambda s, f: p.StatesRead({}, partitions(f[1])),
    r"(\S+-\d+) is found: (.+)": lambda s, f: p.StatesRead(
        dict.fromkeys(partitions(f[1]), partition_state(f[2], 5))
    ),
    r"leaders report new ISRs of (.+)": lambda s, f: p.IsrsChanged(tuple(sorted(partitions(f[1])))),
    r"broker (\d+) wants to stop": lambda s, f: p.ShutdownWanted(int(f[1]), s.brokers[int(f[1])].incarnation),
    r"topic (\S+) shall be deleted": lambda s, f: p.DeletionsWanted(frozenset([f[1]])),
    r"broker (\d+) has deleted (.+)": lambda s, f: p.ReplicasDeleted(int(f[1]), partitions(f[2])),
    r"broker (\d+) could not delete (.+)": lambda s, f: p.ReplicasDeleted(
        int(f[1]), frozenset(), partitions(f[2])
    ),
}


def render(command: p.Command) -> Iterator[str]:
    match command:
        case p.WriteStates(writes) | p.CreateStates(writes):
            yield "  write, all at once" if isinstance(command, p.WriteStates) else "  create, all at once"
            for q, state in sorted(writes.items()):
                yield f"    {q}: {describe(state)}"
        case p.ReadStates(wanted):
            yield f"  read {words(wanted)}"
        case p.RemoveTopic(name):
            yield f"  remove topic {name} from ZooKeeper"
        case p.Resign(because):
            yield f"  resign: {because}"
        case p.Instruct(broker, roles, full):
            yield f"  tell broker {broker}" + (", and this is all it has:" if full else "")
            for role in roles:
                yield f"    {role.partition}: {describe(role.state)}" + (", new" if role.is_new else "")
        case p.Inform(brokers, roles):
            yield f"  show {words(brokers) or 'nobody'}: " + (summary(roles) or "who is there")
        case p.StopReplicas(broker, stops, delete):
            what = "delete" if delete else "stop following"
            yield f"  tell broker {broker} to {what} {words(sorted(stops))}"


def words(items: object) -> str:
    return " ".join(str(item) for item in items)  # type: ignore[attr-defined]


def summary(roles: tuple[p.Role, ...]) -> str:
    return ", ".join(f"{role.partition} led by {leader(role.state)}" for role in roles)


def leader(state: PartitionState) -> str:
    return {-1: "none", -2: "none for ever"}.get(state.leader, str(state.leader))


def describe(state: PartitionState) -> str:
    text = f"leader {leader(state)}, epoch {state.leader_epoch}, isr {words(state.isr)}"
    if any(joined != 1 for joined in state.isr_epochs.values()):
        text += f", joined at starts {words(state.isr_epochs[m] for m in state.isr if m in state.isr_epochs)}"
    return text + (", records may be lost" if state.recovering else "")
