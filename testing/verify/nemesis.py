"""What is done to the cluster: processes die and stand still, links are cut, disks are lost.

Each fault returns how to mend it. Left to others: which comes when (schedule.py), how it is done where the
brokers live (places/), clients (fleet.py) and verdicts.
"""

import random
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from typing import Protocol

from ...base.types import TopicPartition
from ...broker.coordinator_partitions import partition_of
from ...client.sync import Admin
from ...local.processes import machine_is_slower
from ...protocol.errors import ApiError
from ..anomalies import Action, Notes, Type
from ..waiting import until
from .clients.client import copiers
from .faults import Power
from .kinds import KINDS
from .places import Place, PlaceProblem
from .places.base import CLIENTS, ZOOKEEPER
from .scenario import Scenario
from .schedule import Strike
from .znodes import Znodes

Mend = Callable[[], None]
OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"
INTERNAL = (OFFSETS, TRANSACTIONS)
APART_S = 60.0  # until the ISR is without a follower that does not fetch
AHEAD_S = (0.5, 1.5)  # for which the others go on without it
ALONE_S = 12.0  # for which a broker that lost its data may come to lead, before the others return
FULL_S = 90.0
LED_S = 10.0
GONE_S = 60.0
LOOK_S = 0.2
SLOWER_MAX = 5.0  # a machine that is slower still gets no more time


class NotDone(Exception):
    """A fault could not be brought about; says what has not come. The cluster is not to blame."""


class Victims(Protocol):
    """The clients, as faults see them (fleet.py)."""

    def kill_one(self, draw: random.Random) -> str:
        """SIGKILL for one that will have another life."""
        ...

    def freeze_one(self, draw: random.Random, replaced: bool) -> tuple[str, Mend]:
        """SIGSTOP for one with transactions, which has another life at once if `replaced`."""
        ...


def wait_full(place: Place, topics: list[str], within_s: float = FULL_S) -> None:
    """Wait until every ISR of these topics, and of the internal ones that there are, is full; but of
    partitions that are being moved.
    """

    def full() -> bool:
        try:
            with Admin(place.bootstrap) as admin:
                internal = [name for name in INTERNAL if name in admin.list_topics(internal=True)]
                described = admin.describe_topics([*topics, *internal])
                lacking = {
                    TopicPartition(topic.name, one.partition)
                    for topic in described
                    for one in topic.partitions
                    if len(one.isr) != len(one.replicas) or one.leader < 0
                }
                return not lacking or lacking <= admin.list_partition_reassignments(lacking).keys()
        except (ApiError, OSError):
            return False

    until(full, within_s, "every ISR is full", every_s=LOOK_S)


class Nemesis:
    """`strike` does one fault to its end."""

    def __init__(
        self, place: Place, scenario: Scenario, prefix: str, victims: Victims, notes: Notes,
        tell: Callable[[str], None], rest: Callable[[float], None] = time.sleep,
    ) -> None:  # fmt: skip
        """Each fault is noted, and told with what it hits; `rest` is called to wait so many seconds."""
        self.place, self.scenario, self.prefix = place, scenario, prefix
        self.victims, self.notes, self.tell, self.rest = victims, notes, tell, rest
        self.random = random.Random(scenario.seed)
        self.full_s: list[tuple[float, str]] = []  # after each fault, if the scenario has a limit
        self.late: list[str] = []  # a sentence for each time that was too long

    def strike(self, strike: Strike) -> None:
        """The fault, the time for which it holds, its end; then everything is ready again. Raises NotDone,
        and leaves the cluster to be mended.
        """
        self.random = random.Random(strike.seed)
        fault: Callable[[], Mend] = getattr(self, strike.fault.replace("-", "_"))
        mend = fault()
        try:
            self.rest(strike.hold_s)
        finally:
            mend()
        mended_s = time.monotonic()
        try:
            self.place.wait_ready(self.scenario.limits.ready_s)
        except PlaceProblem as problem:
            raise PlaceProblem(f"after {strike.fault}: {problem}") from None
        if self.scenario.limits.full_s is not None:
            self._wait_full(strike.fault, mended_s)

    def _wait_full(self, fault: str, mended_s: float) -> None:
        """Until every ISR is full again: whether that took longer than it may, on a machine like this."""
        slower = min(SLOWER_MAX, machine_is_slower())
        wait_full(self.place, self.topics)
        took_s, may_s = time.monotonic() - mended_s, (self.scenario.limits.full_s or 0.0) * slower
        self.full_s.append((took_s, fault))
        if took_s > may_s:
            self.late.append(
                f"after {fault} every ISR was full again in {took_s:.1f} s, not within {may_s:.1f} s (the "
                f"limit is {self.scenario.limits.full_s:g} s; this machine is {slower:.1f} times slower)"
            )

    def note(self, what: str, exact: str = "", *whose: int) -> None:
        """Into the history what was done, and whose brokers it hit where there are several kinds; to the
        user also which.
        """
        kinds = sorted({self.place.software(broker) for broker in whose} - {""})
        what = f"{what}, {' and '.join(kinds)}" if kinds else what
        self.notes.note(Type.INFO, Action.FAULT, error=what)
        self.tell(f"{what} {exact}".rstrip())

    # ------------------------------------------------------------ whom it hits

    @property
    def topics(self) -> list[str]:
        """The run's topics, as the brokers know them."""
        return [self.prefix + name for name in self.scenario.topics]

    def somewhere(self) -> tuple[str, int]:
        """A partition of the run."""
        name = self.random.choice(list(self.scenario.topics))
        return self.prefix + name, self.random.randrange(self.scenario.topics[name].partitions)

    def somewhere_written(self) -> tuple[str, int]:
        """A partition that is always written to: who does not fetch there leaves the ISR.

        Transactions stand still while their coordinator is out of reach, and in an idle partition nobody is
        behind.
        """
        plain = (each for each in self.scenario.clients if KINDS[each.kind].writes)
        topics = [
            name for each in plain if not KINDS[each.kind].transacts for name in self.scenario.topics_of(each)
        ]
        if not topics:
            return self.somewhere()
        name = self.random.choice(topics)
        return self.prefix + name, self.random.randrange(self.scenario.topics[name].partitions)

    def leader(self, topic: str, partition: int) -> int:
        """The one that leads; if nobody does for LED_S, anybody."""
        with suppress(AssertionError):
            until(
                lambda: self._leader(topic, partition) in self.place.ids, LED_S, "it is led", every_s=LOOK_S
            )
        found = self._leader(topic, partition)
        return found if found in self.place.ids else self.random.choice(self.place.ids)

    def _leader(self, topic: str, partition: int) -> int:
        try:
            with Admin(self.place.bootstrap) as admin:
                (described,) = admin.describe_topics([topic])
        except (ApiError, OSError):
            return -1
        return {one.partition: one.leader for one in described.partitions}.get(partition, -1)

    def leader_somewhere(self) -> int:
        """The leader of a partition of the run."""
        return self.leader(*self.somewhere())

    def follower_somewhere(self) -> int:
        """A broker that does not lead a partition of the run."""
        return self.random.choice(self.others(self.leader_somewhere()))

    def coordinator(self, topic: str, name: str) -> int:
        """The broker that coordinates a transactional id or a group, or anybody."""
        try:
            with Admin(self.place.bootstrap) as admin:
                (described,) = admin.describe_topics([topic])
        except (ApiError, OSError):
            return self.random.choice(self.place.ids)
        return self.leader(topic, partition_of(name, max(1, len(described.partitions))))

    def controller(self) -> int:
        """The controller's broker, or anybody."""
        try:
            with Admin(self.place.bootstrap) as admin:
                found = admin.describe_cluster().controller_id
        except (ApiError, OSError):
            found = -1
        return found if found in self.place.ids else self.random.choice(self.place.ids)

    def others(self, *brokers: int) -> list[int]:
        """All brokers but these."""
        return [id for id in self.place.ids if id not in brokers]

    # ------------------------------------------------------------ processes

    def _kill(self, what: str, *victims: int) -> Mend:
        self.note(f"kill -9 {what}", told(*victims), *victims)
        for victim in victims:
            self.place.kill(victim)
        return lambda: self._launch(self.random.sample(victims, len(victims)))

    def _launch(self, brokers: list[int]) -> None:
        for broker in brokers:
            self.place.launch(broker)

    def kill_leader(self) -> Mend:
        return self._kill("leader", self.leader_somewhere())

    def kill_transaction_coordinator(self) -> Mend:
        name = next(each.called for each in self.scenario.clients if KINDS[each.kind].transacts)
        found = self.coordinator(TRANSACTIONS, f"{self.prefix}{name}-1")
        return self._kill("transaction coordinator", found)

    def kill_group_coordinator(self) -> Mend:
        members = (each for each in self.scenario.clients if KINDS[each.kind].is_member)
        member = next(members, None)
        group = f"{self.prefix}{member.called if member else ''}"
        if member is not None and member.to is not None:
            group = copiers(self.prefix, self.prefix + member.topics[0])
        return self._kill("group coordinator", self.coordinator(OFFSETS, group))

    def kill_controller(self) -> Mend:
        return self._kill("controller", self.controller())

    def kill_follower(self) -> Mend:
        return self._kill("follower", self.follower_somewhere())

    def kill_two(self) -> Mend:
        return self._kill("two brokers", *self.random.sample(self.place.ids, min(2, len(self.place.ids))))

    def kill_all(self) -> Mend:
        return self._kill("all", *self.place.ids)

    def restart(self) -> Mend:
        victim = self.random.choice(self.place.ids)
        self.note("stop", told(victim), victim)
        self.place.stop(victim)
        return lambda: self.place.launch(victim)

    def _pause(self, what: str, victim: int) -> Mend:
        self.note(f"SIGSTOP {what}", told(victim), victim)
        self.place.pause(victim)
        return lambda: self.place.resume(victim)

    def pause_leader(self) -> Mend:
        return self._pause("leader", self.leader_somewhere())

    def pause_controller(self) -> Mend:
        return self._pause("controller", self.controller())

    def pause_follower(self) -> Mend:
        return self._pause("follower", self.follower_somewhere())

    # ------------------------------------------------------------ clients

    def kill_a_client(self) -> Mend:
        self.note("kill -9 client", self.victims.kill_one(self.random))
        return lambda: None

    def zombie_client(self) -> Mend:
        """A producer stands still while its next life begins, and goes on as if nothing had happened."""
        name, wake = self.victims.freeze_one(self.random, replaced=True)
        self.note("SIGSTOP client, and another life", name)
        return wake

    def sleeping_client(self) -> Mend:
        """A producer stands still for longer than its transaction may take."""
        name, wake = self.victims.freeze_one(self.random, replaced=False)
        self.note("SIGSTOP client", name)
        self.rest(self.scenario.transaction_timeout_s)
        return wake

    # ------------------------------------------------------------ followers that are behind

    def _znodes(self) -> "Znodes | nullcontext[None]":
        address = self.place.zookeeper
        return nullcontext() if address is None else Znodes(address)

    def _isr(self, znodes: Znodes | None, topic: str, partition: int) -> list[int]:
        """As ZooKeeper has it, for if the follower is the controller, the others do not hear of a new ISR."""
        if znodes is not None:
            return znodes.isr(topic, partition)
        with suppress(ApiError, OSError), Admin(self.place.bootstrap) as admin:
            (described,) = admin.describe_topics([topic])
            return next((list(one.isr) for one in described.partitions if one.partition == partition), [])
        return []

    def _wait_isr(self, topic: str, partition: int, wanted: Callable[[list[int]], bool], what: str) -> None:
        with self._znodes() as znodes:
            wait_brought_about(
                lambda: wanted(self._isr(znodes, topic, partition)), APART_S, f"{what} ({topic}-{partition})"
            )

    def _apart(self, topic: str, partition: int, follower: int) -> None:
        """Wait until the follower has left the ISR, and the others have gone on without it."""
        self._wait_isr(
            topic, partition, lambda isr: bool(isr) and follower not in isr, f"{follower} has left the ISR"
        )
        self.rest(self.random.uniform(*AHEAD_S))

    def kill_leader_ahead(self) -> Mend:
        """A follower cannot fetch, the others go on, and the leader dies: it must not take its place."""
        topic, partition = self.somewhere_written()
        leader = self.leader(topic, partition)
        follower = self.random.choice(self.others(leader))
        self.note("cut broker from peers, then kill -9 leader", told(follower, leader), leader)
        self.place.cut(follower, *self.others(follower))
        try:
            self._apart(topic, partition, follower)
        finally:
            self.place.kill(leader)
            self.place.heal(follower)
        return lambda: self.place.launch(leader)

    def only_an_outsider(self) -> Mend:
        """A follower stands still, the others go on and die: it is alone, and must not lead."""
        topic, partition = self.somewhere_written()
        outsider = self.random.choice(self.others(self.leader(topic, partition)))
        others = self.others(outsider)
        self.note("SIGSTOP broker, then kill -9 the others", f"{told(outsider)}; {told(*others)}")
        self.place.pause(outsider)
        try:
            self._apart(topic, partition, outsider)
        finally:
            for id in others:
                self.place.kill(id)
            self.place.resume(outsider)
        return lambda: self._launch(self.random.sample(others, len(others)))

    # ------------------------------------------------------------ disks

    def lose_a_disk(self) -> Mend:
        """A broker dies and comes back with nothing. Every ISR is full before, so nothing may be lost."""
        wait_full(self.place, self.topics)
        victim = self.leader_somewhere()
        self.note("kill -9 broker, and its disk is lost", told(victim), victim)
        self.place.kill(victim)
        self.place.lose_disk(victim)
        return lambda: self.place.launch(victim)

    def last_isr_empty_disk(self) -> Mend:
        """The last member of the ISR comes back empty, before the others."""
        return self._last_isr("its disk is lost", self.place.lose_disk)

    def last_isr_power_loss(self) -> Mend:
        """The last member of the ISR comes back without what it had not synced, before the others."""
        return self._last_isr("its power is lost", self.place.lose_unsynced)

    def _last_isr(self, what: str, lose: Callable[[int], object]) -> Mend:
        """Everything acknowledged before is on the others, too, if the min ISR is more than one."""
        wait_full(self.place, self.topics)
        topic, partition = self.somewhere_written()
        last = self.leader(topic, partition)
        others = self.others(last)
        self.note(f"stop all brokers but one, kill -9 the last of the ISR, and {what}", told(last))
        for id in others:
            self.place.stop(id)
        self._wait_isr(topic, partition, lambda isr: isr == [last], f"{last} is alone in the ISR")
        self.place.kill(last)
        lose(last)
        self._wait_unregistered(last)
        self.place.launch(last)
        leave_alone(lambda: self._leader(topic, partition) == last)
        return lambda: self._launch(others)

    def _wait_unregistered(self, broker: int) -> None:
        """Until its session is over: it comes back as a machine does that had to start."""
        with self._znodes() as znodes:
            wait_brought_about(
                lambda: znodes is None or not znodes.registered(broker), GONE_S, "its session is over"
            )

    # ------------------------------------------------------------ links

    def _resets(self) -> tuple[bool, str]:
        """Whether connections are reset, and how it is told: a place without single links cuts as it can."""
        resets = self.random.random() < 0.5
        if Power.LINKS not in self.place.powers:
            return resets, ""
        return resets, ", with resets" if resets else ", silently"

    def _cut(self, what: str, victim: int, *others: int | str) -> Mend:
        resets, how = self._resets()
        self.note(f"cut {what}", f"{told(victim)}{how}", victim)
        self.place.cut(victim, *others, reset=resets)
        return lambda: self.place.heal(victim)

    def cut_from_clients(self) -> Mend:
        return self._cut("broker from clients", self.leader_somewhere(), CLIENTS)

    def cut_from_zookeeper(self) -> Mend:
        return self._cut("broker from ZooKeeper", self.leader_somewhere(), ZOOKEEPER)

    def cut_from_a_peer(self) -> Mend:
        victim, peer = self.random.sample(self.place.ids, 2)
        return self._cut("broker from a peer", victim, peer)

    def _isolate(self, what: str, victim: int) -> Mend:
        resets, how = self._resets()
        self.note(f"cut {what} from everybody", f"{told(victim)}{how}", victim)
        self.place.isolate(victim, reset=resets)
        return lambda: self.place.heal(victim)

    def cut_from_everybody(self) -> Mend:
        return self._isolate("broker", self.leader_somewhere())

    def cut_follower(self) -> Mend:
        return self._isolate("follower", self.follower_somewhere())

    def cut_controller(self) -> Mend:
        return self._isolate("controller", self.controller())

    def cut_controller_from_zookeeper(self) -> Mend:
        return self._cut("controller from ZooKeeper", self.controller(), ZOOKEEPER)


def wait_brought_about(condition: Callable[[], bool], within_s: float, what: str) -> None:
    """Wait for what a fault needs. Raises NotDone."""
    try:
        until(condition, within_s, what, every_s=LOOK_S)
    except AssertionError as failure:
        raise NotDone(str(failure)) from None


def leave_alone(leads: Callable[[], bool]) -> None:
    """Wait for whether the broker comes to lead: one that knows that its data is not whole does not. A slow
    machine is given no more time: after `unclean.recovery.timeout.ms` it leads, and the others come too late.
    """
    until_s = time.monotonic() + ALONE_S
    while not leads() and time.monotonic() < until_s:
        time.sleep(LOOK_S)


def told(*brokers: int) -> str:
    """Brokers by their ids."""
    return f"broker{'s' if len(brokers) > 1 else ''} {', '.join(map(str, brokers))}"
