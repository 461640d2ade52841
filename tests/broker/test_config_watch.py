"""Notifications of changed settings: whoever writes them, they are heard once, and removed in the end."""

import asyncio
import json
from collections.abc import Callable
from typing import Any, cast
from uuid import UUID

import pytest

from strandline.base.event import Event
from strandline.broker import config_watch
from strandline.broker.config.groups import GroupSettings
from strandline.broker.config.live import LiveConfig
from strandline.broker.config_watch import ConfigWatch
from strandline.broker.replicas.topic_configs import TopicSettings
from strandline.protocol.decoder import TEXT_MAX
from strandline.protocol.messages.control import (
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
    TopicConfigEntry,
    UpdateMetadataTopicState,
)
from strandline.protocol.schema import decode, encode, spec_of
from strandline.simulation.environment.zookeeper import SimZooKeeper
from strandline.zookeeper import documents
from strandline.zookeeper.client import (
    Create,
    Delete,
    NoNode,
    Op,
    SessionEvent,
    SessionState,
    SetData,
    Unknown,
    ZkClient,
)
from strandline.zookeeper.config_nodes import NOTHING, Overrides, read_overrides
from tests.broker.cluster_harness import config
from tests.patience import HANG_S


class Session:
    """A session with the ZooKeeper in memory, which can be lost and fail."""

    def __init__(self) -> None:
        self.server = SimZooKeeper()
        self.generation = 1
        self.failures = 0
        self.reads: list[str] = []
        self.tell: Callable[[SessionEvent], None] = lambda event: None
        for path in ("/config", "/config/topics", "/config/brokers", "/config/groups", "/config/changes"):
            self.do(Create(path, b""))

    def do(self, *ops: Op) -> None:
        self.server.multi(ops, 1)

    def put(self, path: str, **settings: str) -> None:
        data = documents.ConfigDocument(config={n.replace("_", "."): v for n, v in settings.items()}).data()
        stat = self.server.exists(path, 1, None)
        self.do(Create(path, data) if stat is None else SetData(path, data, stat.version))

    def notify(self, document: Any) -> None:
        data = document if isinstance(document, bytes) else json.dumps(document).encode()
        self.do(Create(documents.CONFIG_CHANGE_PREFIX, data, sequential=True))

    def topics_read(self) -> list[str]:
        return [path for path in self.reads if path.startswith("/config/topics/")]

    def changes(self) -> list[str]:
        return self.server.children(documents.CONFIG_CHANGES, 1, None)

    def listen(self, listener: Callable[[SessionEvent], None]) -> Callable[[], None]:
        self.tell = listener
        return lambda: None

    async def _answer(self) -> None:
        await asyncio.sleep(0)
        if self.failures:
            self.failures -= 1
            raise Unknown("lost")

    async def get(self, path: str, watch: Any = None) -> Any:
        await self._answer()
        self.reads.append(path)
        return self.server.get(path, 1, watch and (lambda p: watch(p)))

    async def children(self, path: str, watch: Any = None) -> Any:
        await self._answer()
        return self.server.children(path, 1, watch and (lambda p: watch(p)))

    async def get_many(self, paths: Any) -> Any:
        await self._answer()
        self.reads += paths
        there = (path if self.server.exists(path, 1, None) else None for path in paths)
        return [path and self.server.get(path, 1, None) for path in there]

    async def multi(self, ops: Any) -> Any:
        await self._answer()
        return self.server.multi(ops, 1)


class Topics:
    """What a broker knows of topics' settings."""

    def __init__(self) -> None:
        self.known: dict[str, Overrides] = {}
        self.heard: list[str] = []
        self.unsaid = Event[str]()
        self.unsent: list[str] = []  # by the controller, which is one of Apache Kafka

    def of(self, topic: str) -> Overrides:
        return self.known.get(topic, NOTHING)

    def learn(self, topic: str, told: Overrides, instead_of: Overrides | None = None) -> None:
        self.known[topic] = told


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.002)


def play(story: Callable[[Session, ConfigWatch, LiveConfig, Topics], Any]) -> None:
    async def run() -> None:
        session, live, topics = Session(), LiveConfig(config()), Topics()
        zk: Any = session
        watch = ConfigWatch(zk, live, GroupSettings(live.current.groups))
        kept: Any = topics
        session.put("/config/brokers/1", log_segment_bytes="77")
        await watch.read_own()
        assert live.current.storage.segment_bytes == 77, "known before anything is served"
        watch.start(kept, topics.heard.append)
        try:
            await story(session, watch, live, topics)
        finally:
            await watch.stop()

    asyncio.run(run())


def test_whoever_writes_is_heard() -> None:
    async def story(session: Session, watch: ConfigWatch, live: LiveConfig, topics: Topics) -> None:
        session.put("/config/topics/t", retention_ms="5")
        session.notify({"version": 2, "entity_path": "topics/t"})
        await until(lambda: topics.of("t").names == {"retention.ms": "5"})
        session.put("/config/topics/t", retention_ms="6")
        session.notify({"version": 1, "entity_type": "topics", "entity_name": "t"})
        await until(lambda: topics.of("t").names == {"retention.ms": "6"})
        assert topics.of("t").version == 1 and topics.heard == ["t", "t"]
        session.put("/config/brokers/<default>", log_roll_ms="9")
        session.notify({"version": 2, "entity_path": "brokers/<default>"})
        await until(lambda: live.current.storage.segment_ms == 9)

    play(story)


LONGER = {"consumer_session_timeout_ms": "50000"}


def test_settings_of_groups_are_known_by_name_whatever_it_is() -> None:
    async def story(session: Session, watch: ConfigWatch, live: LiveConfig, topics: Topics) -> None:
        groups = watch._groups
        for name in ("g", "a/b c%2F", "..", "\N{GREEK SMALL LETTER ALPHA}*"):
            session.put(documents.group_config_path(name), **LONGER)
            entity = documents.group_config_path(name).removeprefix("/config/")
            session.notify({"version": 2, "entity_path": entity})
            await until(lambda name=name: groups.terms(name).session_ms == 50_000)
        assert sorted(groups.names) == ["..", "a/b c%2F", "g", "\N{GREEK SMALL LETTER ALPHA}*"]
        session.do(Delete("/config/groups/g", 0))
        session.notify({"version": 2, "entity_path": "groups/g"})
        await until(lambda: groups.terms("g").session_ms == 45_000)
        assert "g" not in groups.names
        session.do(Create("/config/groups/bad", b"no json"), Create("/config/groups/%FF", b"no json"))
        session.notify({"version": 2, "entity_path": "groups/bad"})
        session.put("/config/groups/g", **LONGER)
        session.notify({"version": 2, "entity_path": "groups/g"})
        await watch.refresh()
        assert groups.terms("g").session_ms == 50_000

    play(story)


def test_settings_of_groups_are_read_at_the_start_and_after_a_lost_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(config_watch, "NODES_AT_ONCE", 2)

    async def story(session: Session, watch: ConfigWatch, live: LiveConfig, topics: Topics) -> None:
        groups = watch._groups
        for name in "abc":
            session.put(f"/config/groups/{name}", **LONGER)
        session.do(Create("/config/groups/bad", b"no json"))
        await watch.read_groups()
        assert sorted(groups.names) == ["a", "b", "c"]
        session.do(Delete("/config/groups/a", 0))
        session.put("/config/groups/d", **LONGER)
        session.failures = 1
        session.tell(SessionEvent(SessionState.CONNECTED, 2))
        await until(lambda: sorted(groups.names) == ["b", "c", "d"])

    play(story)


def test_who_is_asked_knows_what_was_announced_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client has it from another broker that the change is made; the watch may fire later."""

    async def story(session: Session, watch: ConfigWatch, live: LiveConfig, topics: Topics) -> None:
        await until(lambda: session.server.watches.get(("children", documents.CONFIG_CHANGES)))
        session.server.forget_watches(1)
        session.put("/config/topics/t", retention_ms="5")
        session.notify({"version": 2, "entity_path": "topics/t"})
        await watch.refresh()
        assert topics.of("t").names == {"retention.ms": "5"}
        await watch.refresh()

        children, read, goes_on = session.children, asyncio.Event(), asyncio.Event()

        async def slow(path: str, watch: Any = None) -> Any:
            names = await children(path, watch)
            read.set()
            await goes_on.wait()
            return names

        session.children = slow  # type: ignore[method-assign]
        async with asyncio.timeout(HANG_S), asyncio.TaskGroup() as tasks:
            tasks.create_task(watch.refresh())
            await read.wait()
            session.put("/config/topics/t", retention_ms="6")
            session.notify({"version": 2, "entity_path": "topics/t"})
            second = tasks.create_task(watch.refresh())
            goes_on.set()
            await second
        assert topics.of("t").names == {"retention.ms": "6"}, "a look that had begun has not seen it"

    monkeypatch.setattr(config_watch, "REFRESH_S", HANG_S)
    play(story)


@pytest.mark.parametrize("is_silent", [True, False])
def test_who_is_asked_while_zookeeper_is_away_tells_what_it_knows(
    is_silent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(session: Session, watch: ConfigWatch, live: LiveConfig, topics: Topics) -> None:
        await watch.refresh()
        monkeypatch.setattr(config_watch, "REFRESH_S", 0.05 if is_silent else HANG_S)
        waits = asyncio.Event()
        if is_silent:
            monkeypatch.setattr(session, "children", lambda path, watch=None: waits.wait())
        session.failures = 1
        async with asyncio.timeout(HANG_S / 2):
            await watch.refresh()

    monkeypatch.setattr(config_watch, "REFRESH_S", HANG_S)
    play(story)


def test_a_cluster_whose_controller_is_older_has_no_settings_of_groups() -> None:
    async def story(session: Session, watch: ConfigWatch, live: LiveConfig, topics: Topics) -> None:
        session.do(Delete("/config/groups", 0))
        await watch.read_groups()
        assert not watch._groups.names

    play(story)


def test_what_does_not_concern_us_and_what_is_broken_is_passed_over() -> None:
    async def story(session: Session, watch: ConfigWatch, live: LiveConfig, topics: Topics) -> None:
        session.notify(b"no json")
        session.notify({"version": 2, "entity_path": "users/alice"})
        session.notify({"version": 2, "entity_path": "brokers/2"})
        session.do(Create("/config/topics/u", b"no json"))
        session.notify({"version": 2, "entity_path": "topics/u"})
        for no_name in ("topics/..", "groups/.", "topics/../brokers"):  # a client of ZooKeeper raises at once
            session.notify({"version": 2, "entity_path": no_name})
        session.put("/config/topics/t", retention_ms="5")
        session.notify({"version": 2, "entity_path": "topics/t"})
        await until(lambda: topics.of("t").exists)
        assert topics.of("u") == NOTHING
        assert not [path for path in session.reads if "/." in path]
        assert len(session.changes()) == 8

    play(story)


@pytest.mark.parametrize("letter", ["x", "é"])
def test_a_setting_that_is_too_long_to_be_told_is_as_if_it_were_not_there(letter: str) -> None:
    """Kafka's tools of some time ago wrote to ZooKeeper themselves, and lists of any length."""

    async def story(session: Session, watch: ConfigWatch, live: LiveConfig, topics: Topics) -> None:
        path, length = "/config/topics/t", TEXT_MAX // len(letter.encode())
        too_long = "leader.replication.throttled.replicas"
        session.put(path, retention_ms="5", long=letter * length, **{too_long: letter * (length + 1)})
        session.notify({"version": 2, "entity_path": "topics/t"})
        await until(lambda: topics.of("t").exists)
        told = topics.of("t").names
        assert told == {"retention.ms": "5", "long": letter * length}
        entries = [TopicConfigEntry(name=name, value=value) for name, value in told.items()]
        role = LeaderAndIsrTopicState(topic_name="t", partition_states=[], configs=entries)
        sent = LeaderAndIsrRequest(controller_id=1, controller_epoch=1, topic_states=[role], live_leaders=[])
        version = spec_of(LeaderAndIsrRequest).versions[-1]
        decode(LeaderAndIsrRequest, version, b"".join(map(bytes, encode(sent, version))))
        whole = await read_overrides(cast(ZkClient, session), path, whole=True)
        assert too_long in whole.names, "who writes the node again leaves it as it is"

    play(story)


def test_settings_that_could_not_be_read_are_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody would tell of them once more."""
    monkeypatch.setattr(config_watch, "RETRY_S", 0.001)

    async def story(session: Session, watch: ConfigWatch, live: LiveConfig, topics: Topics) -> None:
        get, failures = session.get, iter([Unknown("lost")])

        async def fails(path: str, watch: Any = None) -> Any:
            if path == "/config/topics/t" and (failure := next(failures, None)) is not None:
                raise failure
            return await get(path, watch)

        monkeypatch.setattr(session, "get", fails)
        for topic in "tu":
            session.put(f"/config/topics/{topic}", retention_ms="5")
            session.notify({"version": 2, "entity_path": f"topics/{topic}"})
        await until(lambda: topics.of("t").exists and topics.of("u").exists)
        assert next(failures, None) is None

    play(story)


@pytest.mark.parametrize("failures", [0, 3])
def test_nothing_is_missed_when_zookeeper_is_away(failures: int) -> None:
    async def story(session: Session, watch: ConfigWatch, live: LiveConfig, topics: Topics) -> None:
        await until(lambda: session.server.watches.get(("children", documents.CONFIG_CHANGES)))
        session.server.forget_watches(1)  # the connection drops, and every watch with it
        session.put("/config/topics/t", retention_ms="5")
        session.notify({"version": 2, "entity_path": "topics/t"})
        session.failures = failures
        session.tell(SessionEvent(SessionState.SUSPENDED, 1))
        session.tell(SessionEvent(SessionState.CONNECTED, 1))
        await until(lambda: topics.of("t").exists)
        await until(lambda: session.server.watches.get(("children", documents.CONFIG_CHANGES)))
        session.put("/config/topics/u", retention_ms="5")
        session.notify({"version": 2, "entity_path": "topics/u"})
        await until(lambda: topics.of("u").exists)
        session.reads.clear()
        session.put("/config/brokers/1", log_segment_bytes="88")  # and its notification is long gone
        session.tell(SessionEvent(SessionState.CONNECTED, 2))
        await until(lambda: live.current.storage.segment_bytes == 88)
        assert "/config/topics/t" not in session.reads, "known notifications are not read again"

    play(story)


def test_a_node_that_somebody_removed_is_believed_gone_only_when_it_is() -> None:
    async def story(session: Session, watch: ConfigWatch, live: LiveConfig, topics: Topics) -> None:
        session.put("/config/topics/t", retention_ms="5")
        session.notify({"version": 2, "entity_path": "topics/t"})
        await until(lambda: topics.of("t").exists)
        before = topics.of("t")
        session.do(Delete("/config/topics/t", 0))
        session.notify({"version": 2, "entity_path": "topics/t"})
        await until(lambda: topics.of("t").names == {})
        assert before.edition < topics.of("t").edition
        session.put("/config/topics/t", retention_ms="7")
        assert topics.of("t").edition < (session.server.nodes["/config/topics/t"].czxid, 0)

    play(story)


def test_notifications_go_when_they_are_old(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config_watch, "KEPT_S", 0.1)

    async def story(session: Session, watch: ConfigWatch, live: LiveConfig, topics: Topics) -> None:
        session.put("/config/topics/t", retention_ms="5")
        session.notify({"version": 2, "entity_path": "topics/t"})
        session.notify({"version": 2, "entity_path": "users/alice"})
        await until(lambda: topics.of("t").exists)
        assert len(session.changes()) == 2, "other brokers may not have read them"
        await until(lambda: session.changes() == [])
        session.put("/config/topics/t", retention_ms="6")
        session.notify({"version": 2, "entity_path": "topics/t"})
        await until(lambda: topics.of("t").names == {"retention.ms": "6"})

    play(story)


def test_of_many_notifications_the_oldest_go_early_and_new_ones_are_heard_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With each new one every broker reads all names."""
    for name, value in (("NOTICES_MAX", 5), ("REMOVED_AT_ONCE", 4), ("KEPT_LEAST_SESSIONS", 0)):
        monkeypatch.setattr(config_watch, name, value)
    monkeypatch.setattr(config_watch, "KEPT_LEAST_S", 0.05)

    async def story(session: Session, watch: ConfigWatch, live: LiveConfig, topics: Topics) -> None:
        for _ in range(40):
            session.notify({"version": 2, "entity_path": "users/alice"})
        session.put("/config/topics/t", retention_ms="5")
        session.notify({"version": 2, "entity_path": "topics/t"})
        await until(lambda: topics.of("t").exists)
        await until(lambda: len(session.changes()) == 5)
        kept = session.changes()
        assert kept[-1].endswith(f"{40:010}"), "the newest are kept, for those who have not read them"
        assert watch._expires_at() == pytest.approx(min(since for since, _ in watch._seen.values()) + 900)

    play(story)


def test_many_notifications_are_kept_until_a_session_that_is_away_must_have_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(config_watch, "NOTICES_MAX", 5)

    async def story(session: Session, watch: ConfigWatch, live: LiveConfig, topics: Topics) -> None:
        for _ in range(10):
            session.notify({"version": 2, "entity_path": "users/alice"})
        await until(lambda: len(watch._seen) == 10)
        away_s = 3 * live.started_with.zookeeper.session_timeout_ms / 1000
        wait_s = [at - watch._seen[name][0] for at, name in watch._expiries()]
        assert wait_s == pytest.approx([max(120.0, away_s)] * 5 + [900.0] * 5)


def test_settings_that_a_controller_of_kafkas_has_not_sent_are_read() -> None:
    async def story(session: Session, watch: ConfigWatch, live: LiveConfig, topics: Topics) -> None:
        session.put("/config/topics/t", retention_ms="5")
        topics.unsaid("t")
        topics.unsaid("bare")
        await until(lambda: topics.heard == ["t", "bare"])
        assert topics.known["t"].names == {"retention.ms": "5"} and topics.known["bare"] == NOTHING

    play(story)


def test_settings_that_nobody_sends_are_read_again_after_a_lost_session() -> None:
    """The notification of a change in between may be gone by then."""

    async def story(session: Session, watch: ConfigWatch, live: LiveConfig, topics: Topics) -> None:
        session.put("/config/topics/t", retention_ms="5")
        topics.unsaid("t")
        await until(lambda: topics.heard == ["t"])
        session.put("/config/topics/t", retention_ms="7")
        session.tell(SessionEvent(SessionState.CONNECTED, 2))
        await until(lambda: not watch._due.is_set())
        assert topics.known["t"].names == {"retention.ms": "5"}, "a controller of ours sends them"
        topics.unsent = ["t"]
        session.tell(SessionEvent(SessionState.CONNECTED, 3))
        await until(lambda: topics.known["t"].names == {"retention.ms": "7"})

    play(story)


@pytest.mark.parametrize("failures", [0, 3])
def test_thousands_of_topics_are_read_side_by_side_but_not_all_at_once(
    monkeypatch: pytest.MonkeyPatch, failures: int
) -> None:
    """One by one they would take a round trip each. What is not answered is read again."""

    async def story(session: Session, watch: ConfigWatch, live: LiveConfig, topics: Topics) -> None:
        topics.unsent = [f"t{number}" for number in range(1000)]
        for topic in topics.unsent:
            session.put(f"/config/topics/{topic}", retention_ms="5")
        read, under_way, most = session.get, 0, 0

        async def counted(asked: str, watch: Any = None) -> Any:
            nonlocal under_way, most
            under_way += 1
            most = max(most, under_way)
            try:
                return await read(asked, watch)
            finally:
                under_way -= 1

        monkeypatch.setattr(session, "get", counted)
        monkeypatch.setattr(config_watch, "RETRY_S", 0.0)
        session.failures = failures
        session.tell(SessionEvent(SessionState.CONNECTED, 3))
        await until(lambda: len(topics.known) == 1000)
        assert {told.names["retention.ms"] for told in topics.known.values()} == {"5"}
        assert most == 50
        assert len(topics.heard) == len(session.topics_read()), "no other is read again"

    play(story)


def test_what_a_server_that_lags_behind_tells_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A controller of Kafka tells of a topic as soon as it is made: the node may not be everywhere yet, or
    still be that of an earlier topic of this name.
    """

    async def story(session: Session, watch: ConfigWatch, live: LiveConfig, topics: Topics) -> None:
        path = "/config/topics/t"
        session.put(path, retention_ms="5")
        before = session.server.get(path, 1, None)
        session.do(Delete(path, 0))
        session.put(path, retention_ms="7")
        read, stale = session.get, [None]

        async def lagging(asked: str, watch: Any = None) -> Any:
            found = await read(asked, watch)
            if asked != path or not stale:
                return found
            if (there := stale.pop()) is None:
                raise NoNode(path)
            return there

        monkeypatch.setattr(session, "get", lagging)
        topics.unsaid("t")
        await until(lambda: topics.known.get("t", NOTHING).names == {"retention.ms": "7"})
        topics.known["t"] = Overrides({}, before[1].czxid, 0).voided()
        stale.append(before)
        topics.unsaid("t")
        await until(lambda: topics.known["t"].names == {"retention.ms": "7"})

    play(story)


def test_settings_that_were_read_before_their_topic_was_named_are_not_lost() -> None:
    """A topic is made again and changed at once: the change is announced by ZooKeeper, and here before the
    controller, which is one of Apache Kafka, has named the new topic.
    """

    async def run() -> None:
        session, live, any_logs = Session(), LiveConfig(config()), cast(Any, None)
        topics = TopicSettings(any_logs, {})
        watch = ConfigWatch(cast(Any, session), live, GroupSettings(live.current.groups))
        watch.start(topics, lambda topic: None)
        first, second = (
            UpdateMetadataTopicState(topic_name="t", topic_id=UUID(int=id), partition_states=[])
            for id in (7, 8)
        )
        try:
            session.put("/config/topics/t", cleanup_policy="delete")
            topics.told(first, by_kafkas=True)
            await until(lambda: topics.names_of("t") == {"cleanup.policy": "delete"})
            session.do(Delete("/config/topics/t", 0))
            session.put("/config/topics/t", cleanup_policy="compact")
            session.notify({"version": 2, "entity_path": "topics/t"})
            await until(lambda: topics.names_of("t") == {"cleanup.policy": "compact"})
            topics.told(second, by_kafkas=True)
            assert topics.names_of("t") == {}, "for all that is known they may be the earlier topic's"
            await until(lambda: topics.names_of("t") == {"cleanup.policy": "compact"})
        finally:
            await watch.stop()

    asyncio.run(run())
