"""What was decided reaches a broker in order, nothing is skipped, nothing old is obeyed (KAFKA-3916)."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, cast
from uuid import UUID

import pytest

from strandline.base.types import KAFKAS, TopicPartition
from strandline.broker.roles.controller_fence import ControlGate
from strandline.client.network.connection import Connection
from strandline.controller import broker_channels
from strandline.controller.broker_channels import Announcer, Reports
from strandline.controller.challenges import Challenger, Word
from strandline.controller.control_requests import RequestBuilder
from strandline.controller.failure_detector import FailureDetector, Patience
from strandline.controller.planning import plans
from strandline.controller.planning.state import Broker, ClusterState, PartitionState, Topic
from strandline.protocol.apis import APIS, Api
from strandline.protocol.connection import frame_response
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import control
from strandline.zookeeper.documents import Endpoint
from tests.listener import Listener, read_request
from tests.patience import HANG_S

T0, TOPIC_ID = TopicPartition("t", 0), UUID(int=7)
PATIENCE = Patience(suspect_after_s=5.0, retry_every_s=0.02, answer_within_s=0.2)
INCARNATION = 3


class Peer:
    """A broker that reads what it is sent. So often it gives no answer at first, or (`cuts`) hangs up."""

    def __init__(self, silent_for: int, cuts: bool) -> None:
        self.heard: list[Any] = []
        self._silent_for = silent_for
        self._cuts = cuts
        self._listener = Listener(self._serve)
        self.listen, self.close = self._listener.listen, self._listener.close

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head, request = await read_request(reader)
            self.heard.append(request)
            if len(self.heard) > self._silent_for:
                answer = APIS[Api(head.api_key)].response()
                writer.writelines(frame_response(head.api_key, head.version, head.correlation_id, answer))
            elif self._cuts:
                break


class Alive:
    """A challenge is answered at once."""

    async def ask(self, broker: int, incarnation: int, patience_s: float) -> Word:
        return Word.ALIVE


class Stage:
    """An announcer, one broker that it talks to, and what it decides, one epoch after the other."""

    def __init__(self, announcer: Announcer, port: int) -> None:
        self.announcer = announcer
        endpoint = Endpoint("INTERNAL", "127.0.0.1", port)
        self.state = ClusterState(
            controller_epoch=5,
            brokers={2: Broker(2, INCARNATION, 1, endpoints=(endpoint,))},
            topics={"t": Topic("t", TOPIC_ID, {0: (2,)})},
        )
        announcer.follow(self.state)

    def send(self, epoch: int) -> None:
        state = PartitionState(2, epoch, (2,), {2: INCARNATION}, 5)
        self.announcer.send_leader_and_isr(
            self.state, plans.SendLeaderAndIsr(2, (plans.PartitionRole(T0, TOPIC_ID, state, (2,)),))
        )

    def stop(self, epoch: int) -> None:
        self.announcer.send_stop_replica(self.state, plans.SendStopReplica(2, {T0: epoch}, delete=True))


def play(
    silent_for: int,
    cuts: bool,
    story: Callable[[Stage, Peer], Awaitable[None]],
    patience: Patience = PATIENCE,
    post: Callable[[plans.Event], None] = lambda event: None,
) -> None:
    troubles: list[BaseException] = []

    async def scene() -> None:
        peer = Peer(silent_for, cuts)
        port = await peer.listen()
        reports = Reports(post, lambda reason: None, lambda why: None, troubles.append)
        announcer = Announcer(RequestBuilder(1, 5, "INTERNAL"), patience, reports, cast(Challenger, Alive()))
        try:
            await story(Stage(announcer, port), peer)
        finally:
            await announcer.stop()
            peer.close()

    asyncio.run(scene())
    assert not troubles


def shown(request: Any) -> str:
    """An order in one word."""
    if isinstance(request, control.StopReplicaRequest):
        return f"delete@{request.topic_states[0].partition_states[0].leader_epoch}"
    return f"lead@{request.topic_states[0].partition_states[0].leader_epoch}"


def obeyed(requests: list[Any]) -> list[str]:
    """What a broker does that these reach in this order."""
    gate, done = ControlGate(), list[str]()
    for request in requests:
        if not gate.admit(
            request.controller_epoch, request.broker_epoch, request.control_sequence, INCARNATION
        ):
            done.append(shown(request))
    return done


@pytest.mark.parametrize("cuts", [False, True], ids=["it does not answer", "the connection breaks"])
@pytest.mark.parametrize("silent_for", [1, 3])
def test_an_order_without_an_answer_goes_again_before_all_that_follow(cuts: bool, silent_for: int) -> None:
    """Kafka dropped it from the head of its queue after a time-out; the broker never heard of that epoch.

    The copies that had no answer may be read late, after all others: each comes too late then.
    """

    async def story(stage: Stage, peer: Peer) -> None:
        stage.send(4)
        async with asyncio.timeout(20):
            while not peer.heard:
                await asyncio.sleep(0.005)
        stage.stop(5)  # all of this is decided while the first one is on its way
        stage.send(6)
        stage.send(7)
        decided = ["lead@4", "delete@5", "lead@6", "lead@7"]
        async with asyncio.timeout(HANG_S):
            while shown(peer.heard[-1]) != decided[-1]:
                await asyncio.sleep(0.005)
        assert [shown(request) for request in peer.heard] == ["lead@4"] * silent_for + decided
        numbers = [request.control_sequence for request in peer.heard]
        assert numbers == sorted(set(numbers)), "each attempt has its own, or its answer would be a refusal"
        unanswered, answered = peer.heard[:silent_for], peer.heard[silent_for:]
        assert obeyed(answered) == decided
        assert obeyed(answered + unanswered) == decided, "what comes late changes nothing"
        for late in range(1, len(decided) + 1):
            mixed = answered[:late] + unanswered + answered[late:]
            assert obeyed(mixed) == decided
        assert obeyed(unanswered + answered)[-len(decided) :] == decided, "or it was obeyed, and is repeated"

    play(silent_for, cuts, story)


def test_after_a_queue_was_dropped_the_next_request_is_waited_for_until_it_is_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(broker_channels, "QUEUE_MAX", 2)
    events: list[plans.Event] = []

    async def story(stage: Stage, peer: Peer) -> None:
        for epoch in (4, 5, 6):
            stage.send(epoch)
        assert events == [plans.QueueOverflowed(2)]
        stage.send(7)
        async with asyncio.timeout(HANG_S):
            await stage.announcer.heard([2])
        assert shown(peer.heard[-1]) == "lead@7"

    play(1, False, story, post=events.append)


def test_a_channel_that_fails_is_told_of_and_begins_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is wrong with one broker: the others hear what was decided, and so does it in the end."""
    failing, open_connection = [ValueError("nobody foresaw this")] * 2, FailureDetector.open

    async def opened(detector: FailureDetector, **how: bool) -> Connection:
        if failing:
            raise failing.pop()
        return await open_connection(detector, **how)

    monkeypatch.setattr(FailureDetector, "open", opened)
    troubles: list[BaseException] = []

    async def scene() -> None:
        peer = Peer(0, False)
        port = await peer.listen()
        reports = Reports(lambda event: None, lambda reason: None, lambda why: None, troubles.append)
        announcer = Announcer(RequestBuilder(1, 5, "INTERNAL"), PATIENCE, reports, cast(Challenger, Alive()))
        stage = Stage(announcer, port)
        stage.send(4)
        async with asyncio.timeout(20):
            await announcer.heard([2])
        assert [shown(request) for request in peer.heard] == ["lead@4"]
        await announcer.stop()  # raises nothing: nobody dies of it
        peer.close()

    asyncio.run(scene())
    assert [str(trouble) for trouble in troubles] == ["nobody foresaw this"] * 2


def test_sequence_numbers_only_rise_also_over_a_new_start_of_the_broker() -> None:
    async def story(stage: Stage, peer: Peer) -> None:
        stage.send(4)
        await stage.announcer.heard([2])
        (known,) = stage.state.brokers.values()
        again = Broker(2, INCARNATION + 1, 1, endpoints=known.endpoints)
        stage.state = ClusterState(5, {2: again}, topics=stage.state.topics)
        stage.announcer.follow(stage.state)
        stage.send(5)
        await stage.announcer.heard([2])
        assert [request.broker_epoch for request in peer.heard] == [INCARNATION, INCARNATION + 1]
        numbers = [request.control_sequence for request in peer.heard]
        assert numbers == sorted(set(numbers))
        gate = ControlGate()
        late, current = peer.heard
        assert not gate.admit(5, current.broker_epoch, current.control_sequence, INCARNATION + 1)
        refused = gate.admit(5, late.broker_epoch, late.control_sequence, INCARNATION + 1)
        assert refused == ErrorCode.STALE_BROKER_EPOCH

    play(0, False, story)


def test_one_that_takes_an_order_and_does_not_answer_is_out_of_reach_until_it_does() -> None:
    """Also while it takes connections: each new one would make it pass for one that hears."""
    told: list[plans.Event] = []

    async def story(stage: Stage, peer: Peer) -> None:
        stage.send(4)
        async with asyncio.timeout(HANG_S):
            await stage.announcer.heard([2])
            while not any(isinstance(event, plans.ReplicasAnswered) for event in told):
                await asyncio.sleep(0.005)

    play(3, False, story, replace(PATIENCE, hear_within_s=0.05), told.append)
    assert [event.is_reached for event in told if isinstance(event, plans.ReachChanged)] == [False, True]
    (answered,) = [event for event in told if isinstance(event, plans.ReplicasAnswered)]
    assert answered.led == {T0: 4}, "it knows that it leads, and in which epoch"


def test_who_is_out_of_reach_is_not_waited_for() -> None:
    """A broker that is stopped hands over to those that hear; one more that hangs is no concern of it."""
    told: list[plans.Event] = []

    async def story(stage: Stage, peer: Peer) -> None:
        stage.send(4)
        for _ in range(2):  # as it becomes clear, and when it is known
            async with asyncio.timeout(20):
                await stage.announcer.heard([2])
        assert [event.is_reached for event in told if isinstance(event, plans.ReachChanged)] == [False]

    play(10**6, False, story, replace(PATIENCE, hear_within_s=0.05), told.append)


async def nothing(connection: Connection, deadline: float, versions: Any) -> None:
    """In place of asking a peer, which answers orders alone, what it speaks."""


def test_a_broker_of_kafka_that_cannot_be_reached_is_not_waited_for_until_its_session_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It knows no challenge, so nobody says that it is dead. The controller does not doubt itself for it."""
    told: list[plans.Event] = []

    async def unknown(alive: Alive, broker: int, incarnation: int, patience_s: float) -> Word:
        return Word.UNKNOWN

    monkeypatch.setattr(Connection, "negotiate", nothing)
    monkeypatch.setattr(Alive, "ask", unknown)
    monkeypatch.setattr(broker_channels, "AWAY_S", HANG_S)

    async def story(stage: Stage, peer: Peer) -> None:
        theirs = replace(stage.state.brokers[2], incarnation=KAFKAS + 9)
        stage.state = replace(stage.state, brokers={2: theirs})
        stage.announcer.follow(stage.state)
        stage.send(4)
        async with asyncio.timeout(HANG_S):
            await stage.announcer.heard([2])
            monkeypatch.setattr(broker_channels, "AWAY_S", 0.05)
            peer.close()
            stage.send(5)
            await stage.announcer.heard([2])
            assert reaches(told) == [False]
            stage.announcer._channels[2].detector._place = ("127.0.0.1", await peer.listen())
            while len(reaches(told)) < 2:
                await asyncio.sleep(0.005)
            await stage.announcer.heard([2])
            assert shown(peer.heard[-1]) == "lead@5", "it is told when it can be"

    play(0, False, story, post=told.append)
    assert reaches(told) == [False, True]
    assert not [event for event in told if isinstance(event, plans.ReachDoubted | plans.BrokerSuspected)]


def test_a_broker_of_kafka_that_comes_back_in_time_was_never_out_of_reach(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[plans.Event] = []

    async def story(stage: Stage, peer: Peer) -> None:
        theirs = replace(stage.state.brokers[2], incarnation=KAFKAS + 9)
        stage.state = replace(stage.state, brokers={2: theirs})
        monkeypatch.setattr(Connection, "negotiate", nothing)
        monkeypatch.setattr(broker_channels, "AWAY_S", HANG_S)
        stage.announcer.follow(stage.state)
        stage.send(4)
        async with asyncio.timeout(HANG_S):
            await stage.announcer.heard([2])
        channel = stage.announcer._channels[2]
        channel.is_connected()
        monkeypatch.setattr(broker_channels, "AWAY_S", 0.0)
        channel.is_away()
        channel.is_connected()
        later = asyncio.get_running_loop().create_future()  # what was to come by then has come before it
        asyncio.get_running_loop().call_later(0.0, later.set_result, None)
        await later

    play(0, False, story, post=told.append)
    assert reaches(told) == []


def reaches(told: list[plans.Event]) -> list[bool]:
    return [event.is_reached for event in told if isinstance(event, plans.ReachChanged)]


def test_a_controller_that_reaches_too_few_doubts_itself_before_it_tells_who_is_out_of_reach() -> None:
    """What follows from a broken path is not done first: the controller may be the one that is cut off."""
    told: list[plans.Event] = []

    async def story(stage: Stage, peer: Peer) -> None:
        stage.send(4)
        async with asyncio.timeout(HANG_S):
            await stage.announcer.heard([2])
            peer.close()
            while not any(isinstance(event, plans.ReachChanged) for event in told):
                await asyncio.sleep(0.005)
            port = await peer.listen()
            stage.announcer._channels[2].detector._place = ("127.0.0.1", port)
            while len([event for event in told if isinstance(event, plans.ReachChanged)]) < 2:
                await asyncio.sleep(0.005)

    play(0, False, story, replace(PATIENCE, suspect_after_s=0.1), told.append)
    seen = [event for event in told if isinstance(event, plans.ReachChanged | plans.ReachDoubted)]
    assert seen == [
        plans.ReachDoubted(True),
        plans.ReachChanged(2, INCARNATION, is_reached=False),
        plans.ReachChanged(2, INCARNATION, is_reached=True),
        plans.ReachDoubted(False),
    ]


def test_a_broker_that_moves_to_another_address_keeps_its_queue() -> None:
    """The same start of it: nobody would tell it again what was on its way to the old address."""
    told: list[plans.Event] = []

    async def story(stage: Stage, peer: Peer) -> None:
        stage.send(4)
        stage.stop(5)
        async with asyncio.timeout(20):
            while not peer.heard:
                await asyncio.sleep(0.005)
        elsewhere = Peer(0, cuts=False)
        (known,) = stage.state.brokers.values()
        place = Endpoint("INTERNAL", "127.0.0.1", await elsewhere.listen())
        try:
            for endpoints in (
                (*known.endpoints, Endpoint("CLIENT", "kafka.example", 1)),  # not ours to use
                (place, Endpoint("CLIENT", "kafka.example", 1)),
            ):
                stage.state = replace(stage.state, brokers={2: replace(known, endpoints=endpoints)})
                channel = stage.announcer._channels[2]
                stage.announcer.follow(stage.state)
                assert (stage.announcer._channels[2] is channel) == (place not in endpoints)
            stage.send(6)
            async with asyncio.timeout(20):
                await stage.announcer.heard([2])
            assert [shown(request) for request in elsewhere.heard] == ["lead@4", "delete@5", "lead@6"]
            assert obeyed([*elsewhere.heard, *peer.heard]) == ["lead@4", "delete@5", "lead@6"]
        finally:
            elsewhere.close()

    play(1000, False, story, post=told.append)
    assert not [event for event in told if isinstance(event, plans.ReachChanged | plans.BrokerSuspected)]
