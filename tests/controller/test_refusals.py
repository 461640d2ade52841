"""A broker of Kafka that refuses its roles is given them anew, at growing intervals, and not for ever."""

import asyncio
from dataclasses import replace
from typing import Any, cast
from uuid import UUID

import pytest

from strandline.base.types import KAFKAS, TopicPartition
from strandline.broker.decision_words import sentence
from strandline.controller import refusals
from strandline.controller.broker_channels import Announcer, Reports
from strandline.controller.challenges import Challenger
from strandline.controller.control_requests import VERSIONS, RequestBuilder
from strandline.controller.failure_detector import Patience
from strandline.controller.planning import plans
from strandline.controller.planning.decision_notes import DecisionNotes
from strandline.controller.planning.planner import plan
from strandline.controller.planning.state import Broker, ClusterState, PartitionState, Topic
from strandline.controller.refusals import FIRST_S, LONGEST_S, QUIET_S, ROUNDS_MAX, Refusals
from strandline.protocol.apis import APIS, Api
from strandline.protocol.connection import frame_response
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from strandline.storage.decision_log import Note
from strandline.zookeeper.documents import Endpoint
from tests.listener import Listener, read_request
from tests.patience import HANG_S

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))
OURS, THEIRS = 3, KAFKAS + 900
PATIENCE = Patience(suspect_after_s=5.0, retry_every_s=0.02, answer_within_s=HANG_S)


def test_each_wait_is_twice_as_long_and_they_come_to_an_end() -> None:
    held, now_s = Refusals(), 0.0
    waits: list[float] = []
    while (wait_s := held.refused({T0: len(waits)}, now_s)) is not None:
        waits.append(wait_s)
        assert held.refused({T1: 7}, now_s) is None, "what comes while one waits is taken up with it"
        now_s += wait_s
        assert held.take() == {T0: len(waits) - 1, T1: 7}
    assert waits[:7] == [FIRST_S, 2.0, 4.0, 8.0, 16.0, 32.0, LONGEST_S]
    assert len(waits) == ROUNDS_MAX and max(waits) == LONGEST_S
    assert held.abandon() and held.take() == {}
    assert held.refused({T0: 99}, now_s) is None and not held.abandon(), "that is said once"


def test_after_a_long_quiet_time_a_refusal_is_a_first_one() -> None:
    held, now_s = Refusals(), 0.0
    while held.refused({T0: 1}, now_s) is not None:
        assert not held.abandon()
        held.take()
    assert held.abandon()
    now_s += QUIET_S
    assert held.refused({T0: 1}, now_s) is None, "it has refused all the time"
    assert not held.abandon()
    now_s += QUIET_S + 1
    assert held.refused({T0: 1}, now_s) == FIRST_S and not held.abandon()
    while held.take() and held.refused({T0: 1}, now_s) is not None:
        pass
    assert held.abandon(), "then it is said again"


class Refusing:
    """A broker that names its versions, and answers orders with these codes, the last one again and again."""

    def __init__(self, *codes: ErrorCode) -> None:
        self.heard: list[Any] = []
        self._codes = list(codes)
        self._listener = Listener(self._serve)
        self.listen, self.close = self._listener.listen, self._listener.close

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head, request = await read_request(reader)
            if head.api_key == Api.API_VERSIONS:
                tops = VERSIONS.items()
                keys = [ApiVersion(api_key=key, min_version=0, max_version=top) for key, top in tops]
                answer: Any = ApiVersionsResponse(api_keys=keys)
            else:
                self.heard.append(request)
                answer = APIS[Api(head.api_key)].response()
                answer.error_code = self._codes.pop(0) if len(self._codes) > 1 else self._codes[0]
            writer.writelines(frame_response(head.api_key, head.version, head.correlation_id, answer))


def sent(
    incarnation: int, peer: Refusing, roles: list[tuple[TopicPartition, int]], moves: bool = False
) -> list[plans.Event]:
    """What is told of when such a broker gets these orders, and then may move to another address."""
    events: list[plans.Event] = []

    async def scene() -> None:
        port = await peer.listen()
        reports = Reports(events.append, lambda reason: None, lambda why: None, lambda failure: None)
        announcer = Announcer(RequestBuilder(1, 5, "INTERNAL"), PATIENCE, reports, cast(Challenger, None))
        there = Broker(2, incarnation, 1, endpoints=(Endpoint("INTERNAL", "127.0.0.1", port),))
        topic = Topic("t", UUID(int=7), {0: (2,), 1: (2,), 2: (2,)})
        state = ClusterState(5, brokers={2: there}, topics={"t": topic})
        try:
            announcer.follow(state)
            for partition, epoch in roles:
                known = PartitionState(1, epoch, (1,), {}, 5)
                role = plans.PartitionRole(partition, topic.id, known, (2,))
                announcer.send_leader_and_isr(state, plans.SendLeaderAndIsr(2, (role,)))
            async with asyncio.timeout(HANG_S):
                await announcer.heard([2])
                if moves:
                    there = replace(there, endpoints=(Endpoint("INTERNAL", "localhost", port),))
                    announcer.follow(replace(state, brokers={2: there}))
                if incarnation == OURS:
                    assert announcer._channels[2]._refusals.rounds == 0
                while incarnation == THEIRS and not any(isinstance(e, plans.RolesRefused) for e in events):
                    await asyncio.sleep(0.005)
        finally:
            await announcer.stop()
            peer.close()

    asyncio.run(scene())
    return events


def test_what_a_broker_of_kafka_refuses_is_taken_up_once_for_all_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(refusals, "FIRST_S", 0.3)
    peer = Refusing(ErrorCode.STALE_BROKER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    told = sent(THEIRS, peer, [(T2, 1), (T0, 2), (T1, 4), (T0, 3)])
    assert len(peer.heard) == 4
    assert told == [plans.RolesRefused(2, THEIRS, {T0: 3, T1: 4})], "the first one was of another session"


def test_what_was_refused_at_an_address_is_taken_up_at_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusals, "FIRST_S", 0.3)
    peer = Refusing(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert sent(THEIRS, peer, [(T0, 1)], moves=True) == [plans.RolesRefused(2, THEIRS, {T0: 1})]


def test_a_broker_of_ours_that_refuses_has_its_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusals, "FIRST_S", 0.0)
    peer = Refusing(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert sent(OURS, peer, [(T0, 1), (T0, 2)]) == []
    assert len(peer.heard) == 2


def test_the_notes_say_why_there_is_a_new_epoch() -> None:
    brokers = {1: Broker(1, OURS, 1), 2: Broker(2, THEIRS, 1 << 62)}
    known = PartitionState(1, 4, (1,), {1: OURS}, 5)
    topic = Topic("t", UUID(int=7), {0: (1, 2)})
    before = ClusterState(5, brokers, topics={"t": topic}, partitions={T0: known})
    event = plans.RolesRefused(2, THEIRS, {T0: 4})
    after, commands = plan(before, event)
    notes: list[Note] = []
    DecisionNotes(notes.extend).told(before, after, event, commands)
    (note,) = notes
    assert note.values["cause"] == "broker 2 of Apache Kafka refused its roles, and takes them in a new epoch"
    assert sentence(note.what, note.values, True).startswith("broker 1 leads on in epoch 5; ISR ")
