"""Fetch sessions between brokers, at the follower: what a fetch names, and what it need not."""

import asyncio
from typing import Any, cast
from uuid import UUID

from strandline.base.types import Offset, TopicPartition
from strandline.broker.config.sections import ReplicationConfig
from strandline.broker.follower import fetcher, round
from strandline.broker.follower.fetcher import LeaderFetcher
from strandline.broker.follower.round import EpochRound, FetchRound, FollowerSession, SessionLost
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages.fetch import FetchRequest, FetchResponse
from strandline.protocol.messages.offsets import ListOffsetsResponse


class FakeLog:
    def __init__(self) -> None:
        self.topic_id, self.start_offset, self.end_offset = UUID(int=7), 0, 0


class FakePartition:
    """Something that has a next question."""

    def __init__(self, index: int) -> None:
        self.tp = TopicPartition("t", index)
        self.log, self.following, self.epoch = FakeLog(), self, 0

    def question(self) -> Any:
        asked = round.AskRecords
        return asked(cast(Any, self.epoch), Offset(self.log.end_offset), cast(Any, -1), 0)


class Round(FetchRound):
    def take_all(self, response: FetchResponse) -> list[Any]:
        return list(self.take(response))


def rounds(session: FollowerSession, some: list[FakePartition], silent: Any = ()) -> Round:
    config = type("Config", (), {})()
    for name in ("fetch_max_bytes", "fetch_wait_max_ms", "fetch_min_bytes", "fetch_response_max_bytes"):
        setattr(config, name, 100)
    host = type("Host", (), {"me": 2, "incarnation": 1})()
    return Round(cast(Any, host), config, cast(Any, some), session, silent)


def named(request: FetchRequest) -> list[tuple[int, int]]:
    return [(p.partition, p.fetch_offset) for topic in request.topics for p in topic.partitions]


def gone(request: FetchRequest) -> list[int]:
    return [index for topic in request.forgotten_topics_data for index in topic.partitions]


def test_a_fetch_names_what_is_not_so_any_more() -> None:
    session, some = FollowerSession(), [FakePartition(n) for n in range(3)]
    first = rounds(session, some)
    request = first.request()
    assert (request.session_id, request.session_epoch, named(request)) == (0, 0, [(0, 0), (1, 0), (2, 0)])
    first.take_all(FetchResponse(session_id=9, responses=[]))
    some[1].log.end_offset = 5
    second = rounds(session, some)
    request = second.request()
    assert (request.session_id, request.session_epoch, named(request)) == (9, 1, [(1, 5)])
    second.take_all(FetchResponse(session_id=9, responses=[]))
    some[2].log.start_offset = 1
    request = rounds(session, some[1:], silent=some[:1]).request()
    assert (named(request), gone(request)) == ([(2, 0)], [0])
    assert rounds(session, some[1:]).request().topics == []
    request = rounds(session, some[:1]).request()
    assert named(request) == [(0, 0)], "what waited is named again"


def test_a_leader_that_keeps_no_session_is_told_all_each_time() -> None:
    session, some = FollowerSession(), [FakePartition(n) for n in range(2)]
    first = rounds(session, some)
    first.request()
    first.take_all(FetchResponse(responses=[]))
    request = rounds(session, [], silent=some[:1]).request()
    assert (request.session_id, request.session_epoch, named(request)) == (0, -1, [(1, 0)])
    assert gone(request) == []


def test_thousands_are_named_little_by_little_and_at_once(monkeypatch: Any) -> None:
    monkeypatch.setattr(round, "NAMED_MAX", 2)
    session, some = FollowerSession(), [FakePartition(n) for n in range(5)]
    first = rounds(session, some)
    assert first.left == some[2:] and first.request().max_wait_ms == 0
    first.take_all(FetchResponse(session_id=1, responses=[]))
    second = rounds(session, cast(Any, first.left))
    assert named(second.request()) == [(2, 0), (3, 0)] and second.left == some[4:]


class Truncating(FakePartition):
    """One that has to find out first where to truncate."""

    must_truncate = True

    def question(self) -> Any:
        return round.AskEpochEnd(cast(Any, self.epoch), cast(Any, 3), 0)


def test_thousands_ask_little_by_little_where_to_truncate(monkeypatch: Any) -> None:
    """After a failover, all that have another leader: each answer takes a moment of the event loop."""
    monkeypatch.setattr(round, "NAMED_MAX", 2)
    host = type("Host", (), {"me": 2})()
    request = EpochRound(cast(Any, host), cast(Any, [Truncating(n) for n in range(5)])).request()
    assert [p.partition for topic in request.topics for p in topic.partitions] == [0, 1]


async def test_thousands_ask_little_by_little_where_logs_begin(monkeypatch: Any) -> None:
    monkeypatch.setattr(fetcher, "NAMED_MAX", 2)
    asked: list[list[int]] = []

    class Leader:
        async def request(self, request: Any, deadline: float) -> ListOffsetsResponse:
            asked.append([p.partition_index for topic in request.topics for p in topic.partitions])
            return ListOffsetsResponse(topics=[])

    some = [FakePartition(n) for n in range(5)]
    host = type("Host", (), {"me": 2, "loop": asyncio.get_running_loop()})()
    fetching = LeaderFetcher(cast(Any, host), ReplicationConfig(), cast(Any, 1), cast(Any, None))
    await fetching._find_starts(cast(Any, Leader()), [cast(Any, (p, p, p.question())) for p in some])
    assert asked == [[0, 1], [2, 3], [4]]


def test_what_the_leader_does_not_know_is_not_taken_for_an_answer() -> None:
    for code in (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH):
        asking = rounds(FollowerSession(), [FakePartition(0)])
        asking.request()
        try:
            asking.take_all(FetchResponse(error_code=code, responses=[]))
        except SessionLost:
            continue
        raise AssertionError("a lost session is said")
