"""A run of a scenario: load and faults, then final reads and the audit of the replicas.

Everything is noted in a folder. Left to others: the verdict on it (outcome.py), each step.
"""

import importlib.util
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from ...base.types import TopicPartition
from ...client.admin.descriptions import NewTopic
from ...client.sync import Admin
from ...protocol.errors import ApiError
from ...zookeeper.client import ZkError, ZkUnreachable
from ..anomalies import HistoryWriter, Notes
from ..anomalies.following import Following
from ..waiting import until
from .enough import count, lacking, tracebacks
from .finale import read_all, wait_copied, wait_read
from .fleet import Fleet
from .kinds import KINDS, Library
from .nemesis import Nemesis, NotDone, wait_full
from .outcome import Outcome, Record, judged
from .places import KAFKAS, Place, PlaceProblem
from .replicas import Holders, strays, untidy, wait_same
from .scenario import ALL, ClientPart, Scenario, ScenarioError, unfit
from .schedule import drawn_least, strikes
from .znodes import Znodes

CREATED_S = 90.0
SAME_S = 60.0
MOVED_S, DELETED_S = 60.0, 5.0
TICK_S = 0.25
TOPIC_LEVEL = ("min.insync.replicas", "unclean.leader.election.enable")
"""Of the settings of the scenario's cluster, those that its topics get on a cluster that is there already."""
NETWORK = (ApiError, OSError, ZkError, ZkUnreachable)


class Screen(Protocol):
    """Who watches a run."""

    def phase(self, what: str) -> None:
        """What is done from now on."""
        ...

    def fault(self, what: str) -> None:
        """What is done to the cluster now."""
        ...

    def tick(self, answered: Counter[str], faults: int) -> None:
        """Called several times a second: what clients were answered so far, and how many faults there
        were.
        """
        ...


class Blind:
    """Nobody watches."""

    def phase(self, what: str) -> None:
        """Nothing."""

    def fault(self, what: str) -> None:
        """Nothing."""

    def tick(self, answered: Counter[str], faults: int) -> None:
        """Nothing."""


def run(scenario: Scenario, place: Place, folder: Path, screen: Screen | None = None) -> Outcome:
    """Run a scenario to its end, and judge it; `folder` gets histories, logs and `run.json`.

    The place is closed in the end, also after an interrupt. Raises ScenarioError if the scenario asks for
    what cannot be done there, PlaceProblem if the cluster does not start.
    """
    with place_of(place):
        return Run(scenario, place, folder, screen or Blind()).to_the_end()


class place_of:
    """Closes a place, whatever happens."""

    def __init__(self, place: Place) -> None:
        self.place = place

    def __enter__(self) -> Place:
        return self.place

    def __exit__(self, *_: object) -> None:
        self.place.close()


def check(scenario: Scenario, place: Place, clients: Sequence[ClientPart] | None = None) -> None:
    """Raises ScenarioError if a fault of the scenario, by name, cannot be done where the brokers live, or to
    these clients (all, if none are given).
    """
    able = set(place.able())
    drawn = scenario.faults.drawn if scenario.faults.drawn != ALL else ()
    wanted = [*drawn, *(each.fault for each in scenario.faults.at)]
    if missing := sorted({name for name in wanted if name not in able}):
        raise ScenarioError(
            f"{', '.join(missing)}: cannot be done with brokers that live in `{place.name}`; what can be: "
            f"{', '.join(sorted(able))}. Choose another place, or leave it out with --faults"
        )
    for name in wanted:
        if why := unfit(name, scenario.clients if clients is None else clients, len(place.ids)):
            raise ScenarioError(f"fault {name}: {why}. Choose another place, or leave it out with --faults")


class Run:
    """See the module."""

    def __init__(self, scenario: Scenario, place: Place, folder: Path, screen: Screen) -> None:
        self.clients = [each for each in scenario.clients if is_installed(each)]
        check(scenario, place, self.clients)
        self.scenario, self.place, self.folder, self.screen = scenario, place, folder, screen
        self.folder.mkdir(parents=True, exist_ok=True)
        token = random.SystemRandom().getrandbits(24)
        self.prefix = "" if place.is_ours else f"verify-{token:06x}-"
        if not any(KINDS[each.kind].writes for each in self.clients):
            raise ScenarioError(
                "confluent-kafka is not installed, and without it nobody writes: pip install "
                "'strandline[verify]'"
            )
        self.record = Record(scenario, place.name, place.kind, self.prefix)
        self.record.left_out = [each.called for each in scenario.clients if each not in self.clients]
        self.fleet = Fleet(place, scenario, folder, self.prefix, self.clients)
        self.following = Following(folder)
        self.counts: dict[str, Counter[str]] = {each.called: Counter() for each in self.clients}
        self.faults = 0
        self._moves = any(KINDS[each.kind].administers for each in self.clients)

    def to_the_end(self) -> Outcome:
        """All of it, and the verdict. Raises PlaceProblem if the cluster does not start."""
        self.screen.phase(f"starting {self.place.kind} ({self.place.name})")
        self.place.start()
        begun_s, logged = time.monotonic(), {id: len(text) for id, text in self.place.logs().items()}
        try:
            self._drive()
        except AssertionError as failure:  # what must come has not come in time
            self.record.violations.append(str(failure) or repr(failure))
        except PlaceProblem as problem:
            self.record.violations.append(str(problem))
        except NETWORK as error:
            self.record.unknowns.append(f"the run could not go on: {error!r}")
        finally:
            self.fleet.kill()
        if self.place.has_tracebacks:
            logs = self.place.logs()
            self.record.violations += tracebacks(logs, logged)
            if not logs:
                self.record.notes.append("what the brokers logged was not looked at: it is out of reach here")
        self.record.lives = self.fleet.lives
        self.record.took_s = time.monotonic() - begun_s
        self.record.save(self.folder)
        self.screen.phase("judging")
        return judged(self.folder)

    # ------------------------------------------------------------ load

    def _drive(self) -> None:
        self.screen.phase("creating topics")
        self._create_topics()
        self._load()
        self._settle()
        self._finish()
        self._audit()
        self._tidy_up()

    def _create_topics(self) -> None:
        outer = {} if self.place.is_ours else self.scenario.cluster.properties()
        inherited = {name: value for name, value in outer.items() if name in TOPIC_LEVEL}
        brokers = len(self.place.ids)
        new = [
            NewTopic(
                self.prefix + name,
                part.partitions,
                replication_factor=min(part.replicas or 3, brokers),
                configs=inherited | self.scenario.topic_properties(name),
            )
            for name, part in self.scenario.topics.items()
        ]
        with Admin(self.place.bootstrap) as admin:
            admin.create_topics(new)
        wait_full(self.place, self._topics(), CREATED_S)

    def _topics(self) -> list[str]:
        return [self.prefix + name for name in self.scenario.topics]

    def _load(self) -> None:
        self.screen.phase("until all clients have begun")
        self.fleet.start_all()
        self._wait(lambda: all(self.counts.values()))
        self.screen.phase("load and faults")
        about = {"seed": self.scenario.seed, "scenario": self.scenario.name}
        with HistoryWriter(self.folder / "nemesis.history", about) as writer:
            nemesis = Nemesis(
                self.place, self.scenario, self.prefix, self.fleet, Notes(writer, "nemesis"),
                self._struck, self._rest,
            )  # fmt: skip
            begun_s = time.monotonic()
            try:
                self._strike(nemesis, begun_s)
                self._rest(self.scenario.load_s - (time.monotonic() - begun_s))
            finally:
                self.record.loaded_s = time.monotonic() - begun_s
                self.record.violations += nemesis.late
                self.record.notes += slowest(nemesis.full_s)
        self.screen.phase("until each client has done its part")
        self._wait(lambda: not lacking(self.counts, self.clients))

    def _wait(self, enough: Callable[[], bool]) -> None:
        """Until it is so, or for as long as the scenario allows; then the run goes on all the same."""
        deadline = time.monotonic() + self.scenario.limits.enough_s
        while not enough() and time.monotonic() < deadline:
            self._rest(TICK_S)

    def _strike(self, nemesis: Nemesis, begun_s: float) -> None:
        """Faults until the load is over; those with a time, and those of a list, at least once."""
        least = drawn_least(self.scenario)
        brokers = len(self.place.ids)
        able = [name for name in self.place.able() if unfit(name, self.clients, brokers) is None]
        for strike in strikes(self.scenario, able):
            loaded_s = time.monotonic() - begun_s
            wait_s = strike.after_s - loaded_s if strike.is_timed else strike.after_s
            if not strike.is_timed and loaded_s + wait_s >= self.scenario.load_s and least <= 0:
                return
            self._rest(wait_s)
            try:
                nemesis.strike(strike)
            except NotDone as failure:
                self.record.unknowns.append(f"{strike.fault} was not done: {failure}")
                self.place.mend()
                self.place.wait_ready(self.scenario.limits.ready_s)
            least -= not strike.is_timed

    def _struck(self, what: str) -> None:
        self.faults += 1
        self.screen.fault(what)

    def _rest(self, seconds: float) -> None:
        """Let the load go on for so long; clients that have ended begin their next lives."""
        deadline = time.monotonic() + seconds
        while True:
            self._tick()
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return
            time.sleep(min(TICK_S, left_s))

    def _tick(self) -> None:
        self.fleet.tend()
        for operation in self.following.fresh():
            count(operation, self.counts)
        self.screen.tick(sum(self.counts.values(), Counter[str]()), self.faults)

    # ------------------------------------------------------------ the end

    def _settle(self) -> None:
        self.screen.phase("healing")
        self.place.mend()
        self.place.wait_ready(self.scenario.limits.ready_s)
        self._end(lambda part: KINDS[part.kind].administers)
        wait_full(self.place, self._topics())

    def _finish(self) -> None:
        limit_s = self.scenario.limits.read_s
        self._end(lambda part: KINDS[part.kind].writes)
        self.screen.phase("copying what is left")
        for part in self.clients:
            if KINDS[part.kind].copies:
                (topic,) = part.topics
                partitions = self.scenario.topics[topic].partitions
                wait_copied(
                    self.place.bootstrap, self.prefix, self.prefix + topic, partitions, limit_s, self._tick
                )
        self._end(lambda part: KINDS[part.kind].copies)
        self.screen.phase("reading everything")
        places = [
            TopicPartition(self.prefix + name, each)
            for name, part in self.scenario.topics.items()
            for each in range(part.partitions)
        ]
        read_all(self.place.bootstrap, places, self.folder, limit_s)
        wait_read(self.folder, self.record.readers(), limit_s, self._tick)
        self._end(lambda part: True)

    def _end(self, which: Callable[[ClientPart], bool]) -> None:
        self.fleet.stop(which)
        self.fleet.fence(which)

    def _audit(self) -> None:
        if not self.place.directories():
            self.record.notes.append("the logs of the replicas were not compared: they are out of reach here")
            return
        self.screen.phase("comparing the replicas' logs")
        holders = self._wait_moved()
        try:
            wait_same(self.place.directories, holders, SAME_S)
        except AssertionError as failure:
            self.record.violations.append(str(failure))
        if (zookeeper := self.place.zookeeper) is not None:
            with Znodes(zookeeper) as znodes:
                self.record.violations += znodes.wrong_states(self.prefix)
        if self.place.stop_all():
            self.record.violations += untidy(self.place.directories(), self._moves, self._kafkas)
            self.record.violations += self.place.examined(holders)

    def _wait_moved(self) -> Holders:
        """Once no partition is being moved, no topic deleted, and brokers have deleted what they hold no
        more.
        """
        with Admin(self.place.bootstrap) as admin:
            until(lambda: not admin.list_partition_reassignments(), MOVED_S, "no partition is being moved")
        deleted = self._wait_deleted()
        holders = {tp: brokers for tp, brokers in self._holders().items() if tp.topic not in deleted}
        if self.place.is_ours and not self._kafkas:
            with suppress(AssertionError):
                until(lambda: not strays(self.place.directories(), holders), DELETED_S, "", every_s=0.2)
        if self.place.is_ours and (left := strays(self.place.directories(), holders)):
            told = self.record.notes if self._kafkas else self.record.violations
            told.append(f"logs are left where no replica is: {', '.join(left)}")
        return holders

    def _wait_deleted(self) -> list[str]:
        """Once no topic of the run is being deleted; those that still are. Some brokers may have no replica
        of such a topic any more.

        A controller of Kafka that meets an error of its own in the middle lets it stand. One of ours
        completes it, whoever began.
        """
        if (zookeeper := self.place.zookeeper) is None:
            return []
        left: list[str] = []
        controller: int | None = None

        def are_deleted() -> bool:
            nonlocal controller
            left[:] = [topic for topic in znodes.deleted() if topic.startswith(self.prefix)]
            controller = znodes.controller()
            return not left

        with Znodes(zookeeper) as znodes, suppress(AssertionError):
            until(are_deleted, MOVED_S, "no topic is being deleted", every_s=0.2)
        if left:
            told = self.record.notes if controller in self._kafkas else self.record.violations
            whose = "Kafka's" if controller in self._kafkas else "our"
            told.append(
                f"{', '.join(left)}: half deleted, and {whose} controller (broker {controller}) does not go "
                "on with it; the replicas of such topics were not compared"
            )
        return left

    @property
    def _kafkas(self) -> list[int]:
        """Brokers of Kafka. With ZooKeeper it never deletes what was moved away from a broker that was dead
        or cut off, and as controller does not tell ours of it either.
        """
        return [id for id in self.place.ids if self.place.software(id) == KAFKAS]

    def _holders(self) -> Holders:
        """Who has a replica of each partition of the run; of all, if the cluster is the run's own."""
        with Admin(self.place.bootstrap) as admin:
            topics = list(admin.list_topics(internal=True)) if self.place.is_ours else self._topics()
            described = admin.describe_topics(topics)
        return {
            TopicPartition(topic.name, one.partition): one.replicas
            for topic in described
            for one in topic.partitions
        }

    def _tidy_up(self) -> None:
        """On a cluster that others use: no topic is left. Where records were lost they are evidence."""
        if self.place.is_ours or self.record.violations:
            return
        with Admin(self.place.bootstrap) as admin:
            admin.delete_topics(self._topics())
            groups = [each.group for each in admin.list_groups() if each.group.startswith(self.prefix)]
            with suppress(ApiError):  # a member that was killed is still in it: its offsets expire
                admin.delete_groups(groups)


def slowest(full_s: Sequence[tuple[float, str]]) -> list[str]:
    """A sentence about the fault after which the ISRs were waited for the longest."""
    if not full_s:
        return []
    took_s, fault = max(full_s)
    return [f"after each fault every ISR was full again in {took_s:.1f} s at the most ({fault})"]


def is_installed(client: ClientPart) -> bool:
    """Whether its library is there."""
    return client.library != Library.LIBRDKAFKA or importlib.util.find_spec("confluent_kafka") is not None
