"""A small world for moves: one partition, five brokers, ZooKeeper, controllers that come and go.

Writes land, are refused and are forgotten with their controller; orders arrive late, also those of a
controller that is no more; leaders change the ISR on their own. Every step is one of `choices`, so that a
list of numbers is a story.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from uuid import UUID

from strandline.base.types import TopicPartition
from strandline.controller.planning import plans
from strandline.controller.planning.assignment import Assignment
from strandline.controller.planning.planner import plan
from strandline.controller.planning.reassignment import is_out, wanted
from strandline.controller.planning.state import Broker, ClusterState, PartitionState, Topic
from strandline.protocol.errors import ApiError

T0 = TopicPartition("t", 0)
BROKERS = (1, 2, 3, 4, 5)
TARGETS = ((1, 2), (2, 1), (3, 4), (2, 3), (1, 2, 3), (4,), (5, 1), (3, 4, 5))

Step = Callable[[], None]


@dataclass
class Replica:
    """What a broker has of the partition, and what it was told last."""

    epoch: int = -1
    role: plans.PartitionRole | None = None
    version: int = 0  # of the state, as its leader knows it


@dataclass
class Server:
    """A broker: its start, its replica, whose orders it obeys, and those that are on their way."""

    incarnation: int = 1
    replica: Replica | None = None
    controller_epoch: int = 0
    requests: list[tuple[int, plans.SendLeaderAndIsr | plans.SendStopReplica]] = field(default_factory=list)


class World:
    def __init__(self, origin: tuple[int, ...] = (1, 2), min_isr: int = 1) -> None:
        self.min_isr = min_isr
        self.assignment = Assignment(origin)
        self.expected = origin
        self.state = PartitionState(origin[0], 0, origin, dict.fromkeys(origin, 1), 0)
        self.servers = {broker: Server() for broker in BROKERS}
        for broker in origin:
            self.servers[broker].replica = Replica(0)
        self.alive = set(BROKERS)
        self.epoch = 0
        self.view = ClusterState(0)
        self.asked: list[plans.Command] = []
        self.news: list[plans.Event] = []
        self.elect()

    # --- ZooKeeper and the controller ----------------------------------------------------------------

    def topic(self) -> Topic:
        moves = {0: self.assignment} if self.assignment.is_moving else {}
        configs = {"min.insync.replicas": str(self.min_isr)}
        return Topic("t", UUID(int=7), {0: self.assignment.replicas}, configs, moves=moves)

    def registered(self) -> dict[int, Broker]:
        return {b: Broker(b, self.servers[b].incarnation, 1) for b in sorted(self.alive)}

    def elect(self) -> None:
        """A new controller; what the old one had asked of ZooKeeper meets the fence."""
        self.epoch += 1
        self.asked, self.news = [], []
        self.view = ClusterState(self.epoch)
        self.tell(plans.Elected(self.registered(), {"t": self.topic()}, {T0: self.state}))

    def tell(self, event: plans.Event) -> None:
        self.view, commands = plan(self.view, event)
        for command in commands:
            match command:
                case plans.SendLeaderAndIsr(broker) | plans.SendStopReplica(broker):
                    self.servers[broker].requests.append((self.epoch, command))
                case (
                    plans.SendUpdateMetadata()
                    | plans.AskEnds()
                    | plans.AskAgainLater()
                    | plans.AwaitReplicas()
                ):
                    pass  # nobody loses data here: whoever was in the ISR comes back with all of it
                case _:
                    self.check(event, command)
                    self.asked.append(command)

    def check(self, event: plans.Event, command: plans.Command) -> None:
        """What a controller asks for must be safe by what it knows."""
        known = self.view.partitions[T0]
        match command:
            case plans.WriteStates(writes):
                left = set(known.isr) - set(writes[T0].isr)
                if left and all(self.view.is_live(b) for b in left):
                    gone = self.view.departures[T0].gone if T0 in self.view.departures else frozenset()
                    staying = set(self.view.assignment(T0).replicas) - gone
                    assert len(writes[T0].isr) >= min(self.min_isr, len(staying)), (
                        "the ISR is good enough without those who go"
                    )
            case plans.WriteAssignments(_, changes) if not isinstance(
                event, plans.TopicsRead
            ):  # there: once more
                before, then = changes[0]
                if set(then.replicas) != set(before.origin) and not then.is_moving:
                    assert set(then.replicas) <= set(known.isr), "all of the target are in sync"

    def carry_out(self, index: int) -> None:
        """One of the things that the controller has asked of ZooKeeper; they overtake each other."""
        match self.asked.pop(index):
            case plans.WriteStates(writes):
                if writes[T0].version != self.state.version:
                    self.news.append(plans.StatesWritten({}, frozenset(writes)))
                    return
                self.state = replace(writes[T0], version=self.state.version + 1)
                self.check_isr()
                self.news.append(plans.StatesWritten({T0: self.state}))
            case plans.ReadStates():
                self.news.append(plans.StatesRead({T0: self.state}))
            case plans.WriteAssignments(_, changes):
                before, then = changes[0]
                if self.assignment == before and is_out(self.view, T0, before):
                    self.assignment = then
                    self.check_isr()
                    self.news.append(plans.TopicsRead({"t": self.topic()}))
            case other:
                raise AssertionError(f"not expected: {other}")

    def hear(self) -> None:
        """News reach the controller in order, but as late as they like."""
        event = self.news.pop(0)
        if isinstance(event, plans.TopicsRead):  # a look finds what stands there now
            event = plans.TopicsRead({"t": self.topic()})
        self.tell(event)

    def check_isr(self) -> None:
        assert self.state.isr, "an ISR is never empty"
        assert set(self.state.isr) <= set(self.assignment.replicas), "I12"
        assert self.state.leader in (*self.state.isr, -1), "I12"

    # --- administrators ------------------------------------------------------------------------------

    def ask(self, target: tuple[int, ...] | None) -> None:
        try:
            after = wanted(self.assignment, target, self.alive)
        except ApiError:
            return
        self.expected = self.assignment.origin if target is None else target
        if after != self.assignment:
            self.assignment = after
            self.check_isr()
            self.news.append(plans.TopicsRead({"t": self.topic()}))

    # --- brokers -------------------------------------------------------------------------------------

    def die(self, broker: int) -> None:
        """The process goes, with what was on its way to it; its disk stays."""
        server = self.servers[broker]
        self.alive.discard(broker)
        server.requests = []
        if server.replica is not None:
            server.replica = Replica()
        self.news.append(plans.BrokersRead(self.registered()))

    def come(self, broker: int) -> None:
        self.alive.add(broker)
        self.servers[broker].incarnation += 1
        self.servers[broker].controller_epoch = 0
        self.news.append(plans.BrokersRead(self.registered()))

    def deliver(self, broker: int) -> None:
        server = self.servers[broker]
        epoch, request = server.requests.pop(0)
        if epoch < server.controller_epoch:
            return
        server.controller_epoch = epoch
        if isinstance(request, plans.SendStopReplica):
            self.stop(broker, request.partitions[T0], request.delete)
        elif request.roles:
            self.obey(broker, request.roles[0])
        elif request.full and server.replica is not None:
            self.lose(broker)  # stray: set aside

    def stop(self, broker: int, epoch: int, delete: bool) -> None:
        replica = self.servers[broker].replica
        if replica is None or epoch < replica.epoch:
            return
        if delete:
            self.lose(broker)

    def lose(self, broker: int) -> None:
        assert broker not in self.state.isr, f"I17: broker {broker} is in the ISR"
        self.servers[broker].replica = None

    def obey(self, broker: int, role: plans.PartitionRole) -> None:
        server = self.servers[broker]
        replica = server.replica = server.replica or Replica()
        if role.state.leader_epoch > replica.epoch:
            replica.epoch, replica.role, replica.version = role.state.leader_epoch, role, role.state.version

    def leads(self, broker: int) -> bool:
        replica = self.servers[broker].replica
        return (
            broker in self.alive
            and replica is not None
            and replica.role is not None
            and replica.role.state.leader == broker
            and replica.epoch == self.state.leader_epoch
            and replica.version == self.state.version
        )

    def joinable(self) -> list[int]:
        """Followers that the leader may take into the ISR: of its replicas, in its epoch."""
        for leader in sorted(self.alive):
            if self.leads(leader):
                mine = self.servers[leader].replica
                assert mine is not None and mine.role is not None
                return [
                    f
                    for f in mine.role.replicas
                    if f in self.alive and f not in self.state.isr and self.follows(f, mine.epoch)
                ]
        return []

    def follows(self, broker: int, epoch: int) -> bool:
        replica = self.servers[broker].replica
        return replica is not None and replica.epoch == epoch

    def change_isr(self, isr: tuple[int, ...]) -> None:
        """The leader's own write; the controller's watch tells it."""
        leader = self.servers[self.state.leader].replica
        assert leader is not None
        joined = {m: self.state.isr_epochs.get(m, self.servers[m].incarnation) for m in isr}
        self.state = replace(self.state, isr=isr, isr_epochs=joined, version=self.state.version + 1)
        leader.version = self.state.version
        self.check_isr()
        self.news.append(plans.IsrsChanged((T0,)))

    # --- what may happen -----------------------------------------------------------------------------

    def progress(self) -> list[Step]:
        """What happens by itself."""
        steps: list[Step] = [lambda i=i: self.carry_out(i) for i in range(len(self.asked))]  # type: ignore[misc]
        steps += [self.hear] if self.news else []
        steps += [lambda b=b: self.deliver(b) for b in BROKERS if self.servers[b].requests]  # type: ignore[misc]
        steps += [lambda f=f: self.change_isr((*self.state.isr, f)) for f in self.joinable()]  # type: ignore[misc]
        return steps

    def trouble(self) -> list[Step]:
        """What somebody does, or what befalls them."""
        steps: list[Step] = [lambda t=t: self.ask(t) for t in (*TARGETS, None)]  # type: ignore[misc]
        steps += [lambda b=b: self.die(b) for b in sorted(self.alive)] if len(self.alive) > 2 else []  # type: ignore[misc]
        steps += [lambda b=b: self.come(b) for b in BROKERS if b not in self.alive]  # type: ignore[misc]
        if any(self.leads(b) for b in sorted(self.alive)):
            others = [m for m in self.state.isr if m != self.state.leader]
            steps += [lambda m=m: self.change_isr(tuple(x for x in self.state.isr if x != m)) for m in others]  # type: ignore[misc]
        return [*steps, self.elect]

    def heal(self) -> None:
        """All come back, and nothing happens but what happens by itself."""
        for broker in BROKERS:
            if broker not in self.alive:
                self.come(broker)
        for _ in range(500):
            steps = self.progress()
            if not steps:
                return
            steps[0]()
        raise AssertionError(f"it does not come to rest: {self.assignment}, {self.state}")
