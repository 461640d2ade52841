"""A leader's throttle, by its answers: who waits and until when, and what a fetch that waits costs."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from strandline.base.types import BrokerId
from strandline.broker.fetch.read import Reading
from strandline.broker.replicas import isr_writer
from strandline.broker.throttle import LEADERS, UNLIMITED, Throttle
from strandline.protocol.messages.control import TopicConfigEntry
from strandline.protocol.messages.fetch import FetchResponse
from strandline.replication.progress import NEVER, REPEATS
from strandline.zookeeper.config_nodes import Overrides
from tests.broker.replica_harness import TOPIC, TP, Cluster, ask, batch, cluster, outcome, produce, until
from tests.broker.test_fetch_sessions import Peer

EACH = len(batch(b"x" * 1000))
ONE = {"partition_max_bytes": 1}  # one batch, however large
LONG_MS = 60_000  # nobody waits that long here: an answer has come for a better reason
NAMED = (TopicConfigEntry(name=LEADERS, value="0:1"),)

Story = Callable[[Cluster, Peer], Awaitable[None]]


def with_peer(
    tmp_path: Path, story: Story, *, rate: int, isr: tuple[int, ...] = (1,), members: int = 2
) -> None:
    """Broker 1 leads t-0 and sends at `rate`; three batches are there; the fetchers of others are silent.

    Of t-1, which no throttle names, broker 2 is in sync.
    """

    async def play() -> None:
        async with cluster(tmp_path, members) as stage:
            for id in range(2, members + 1):
                stage.members[id].parts.fetchers.stop()
            await stage.elect(1, isr, NAMED)
            await stage.tell(stage.members[1], 1, [1, 2], 1, NAMED, index=1)
            stage.members[1].parts.leader_throttle.set_rate(rate, asyncio.get_running_loop().time())
            for _ in range(3):
                await append(stage)
            connection = await stage.members[1].connect("PLAINTEXT")
            await story(stage, Peer(connection))
            await connection.close()

    asyncio.run(play())


async def append(stage: Cluster, index: int = 0) -> None:
    client = await stage.members[1].connect()
    assert outcome(await ask(client, produce(batch(b"x" * 1000), acks=1, index=index)))[0] == 0
    await client.close()


def sizes(answer: FetchResponse) -> dict[int, int]:
    """The bytes that an answer brings, by partition."""
    told = [one for topic in answer.responses for one in topic.partitions]
    return {one.partition_index: len(bytes(one.records)) for one in told if one.records}  # type: ignore[arg-type]


def counted(
    monkeypatch: pytest.MonkeyPatch, of: type, name: str, after: Callable[[int], None] = lambda number: None
) -> list[object]:
    """Whoever calls this method from now on; `after` is told how many it were so far."""
    calls: list[object] = []
    method = getattr(of, name)

    def count(self: object, *arguments: Any) -> Any:
        calls.append(self)
        found = method(self, *arguments)
        after(len(calls))
        return found

    monkeypatch.setattr(of, name, count)
    return calls


def test_who_lags_gets_the_next_batch_when_the_last_is_paid(tmp_path: Path) -> None:
    async def story(stage: Cluster, peer: Peer) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        assert sizes(await peer.full(0, **ONE)) == {0: EACH}
        for offset in (1, 2):
            answer = await peer.next(offset, max_wait_ms=LONG_MS, **ONE)
            assert sizes(answer) == {0: EACH}, "woken when the debt was paid, long before its own deadline"
            assert loop.time() - began >= offset * EACH / 5_000

    with_peer(tmp_path, story, rate=5_000)


def test_who_is_woken_when_others_have_taken_it_all_waits_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(stage: Cluster, peer: Peer) -> None:
        throttle, loop = stage.members[1].parts.leader_throttle, asyncio.get_running_loop()

        def take(number: int) -> None:
            if number == 1:
                throttle.took(TP, EACH, loop.time(), lags=True)

        began = loop.time()
        await peer.full(0, **ONE)
        looks = counted(monkeypatch, Reading, "read", take)
        assert sizes(await peer.next(1, max_wait_ms=LONG_MS)) == {0: 2 * EACH}
        assert loop.time() - began >= 2 * EACH / 5_000
        assert len(looks) == 3, "when it came, too early, and in time"

    with_peer(tmp_path, story, rate=5_000)


@pytest.mark.parametrize("in_session", [True, False])
def test_an_empty_answer_comes_after_the_longest_wait_and_costs_two_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_session: bool
) -> None:
    async def story(stage: Cluster, peer: Peer) -> None:
        loop = asyncio.get_running_loop()
        assert sizes(await peer.full(0, **ONE)) == {0: EACH}
        if not in_session:
            peer.id, peer.epoch = 0, -1
        looks, began = counted(monkeypatch, Reading, "read"), loop.time()
        assert sizes(await peer.next(1, max_wait_ms=150)) == {}
        assert loop.time() - began >= 0.145, "the wheel of deadlines may be a few milliseconds early"
        assert len(looks) == 2, "when it came and when it left"
        stage.members[1].parts.leader_throttle.set_rate(UNLIMITED, loop.time())
        if not in_session:
            peer.epoch = -1
        assert sizes(await peer.next(1)) == {0: 2 * EACH}, "the throttle was taken back"

    with_peer(tmp_path, story, rate=10)


def test_who_is_named_no_more_does_not_wait(tmp_path: Path) -> None:
    async def story(stage: Cluster, peer: Peer) -> None:
        await peer.full(0, **ONE)
        assert sizes(await peer.next(1)) == {}
        stage.members[1].parts.settings.learn(TOPIC, Overrides({LEADERS: "1:1"}, 1 << 40))
        assert sizes(await peer.next(1)) == {0: 2 * EACH}

    with_peer(tmp_path, story, rate=10)


def test_others_in_the_same_fetch_go_on_and_what_is_held_back_is_not_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(stage: Cluster, peer: Peer) -> None:
        await peer.full(0, **ONE)
        assert sizes(await peer.next(1)) == {}
        await peer.next(0, partition=1)
        asked = counted(monkeypatch, Throttle, "held_until")
        for number in range(5):
            waiting = (
                peer.send(max_wait_ms=LONG_MS)
                if number == 0
                else peer.send(number, partition=1, max_wait_ms=LONG_MS)
            )
            await until(lambda: len(stage.members[1].parts.shared.deadlines))
            await append(stage, index=1)
            assert sizes(await waiting) == {1: EACH}
        assert not asked
        await append(stage)
        assert sizes(await peer.next(5, partition=1)) == {} and len(asked) == 1, "it has news"

    with_peer(tmp_path, story, rate=10)


def test_a_member_of_the_isr_never_waits(tmp_path: Path) -> None:
    """Nor does any producer with acks=all: two brokers as they are, at a byte a second."""

    async def play() -> None:
        async with cluster(tmp_path, 2) as stage:
            await stage.elect(1, [1, 2], NAMED)
            leader = stage.members[1]
            leader.parts.leader_throttle.set_rate(1, asyncio.get_running_loop().time())
            client = await leader.connect()
            for number in range(20):
                assert outcome(await ask(client, produce(batch(b"x" * 1000), acks=-1))) == (0, number)
            assert stage.state().isr == [1, 2] and leader.parts.shared.replication_bytes_out >= 20 * EACH
            await client.close()

    asyncio.run(play())


def test_who_may_join_after_all_is_held_back_no_longer(tmp_path: Path) -> None:
    """Broker 3 is in the ISR and silent, so little is committed: broker 2 could join, but was refused."""

    async def story(stage: Cluster, peer: Peer) -> None:
        progress = stage.members[1].partition.leading.progress_of(BrokerId(2))
        progress.refused_until = float("inf")
        await peer.full(0, **ONE)
        assert sizes(await peer.next(1)) == {}
        assert stage.members[1].partition.leading.isr.members == {1, 3}
        progress.refused_until = NEVER
        async with asyncio.timeout(20):
            while not (got := sizes(await peer.next(max_wait_ms=20))):
                pass
        assert got == {0: 2 * EACH}, "acks=all waits for it from now on"

    with_peer(tmp_path, story, rate=10, isr=(1, 3), members=3)


def test_no_producer_waits_for_a_debt_when_the_copy_is_almost_done(tmp_path: Path) -> None:
    """It had all that there was when it asked last, so acks=all waits for it; but it cannot join yet, because
    more was committed since.
    """

    async def story(stage: Cluster, peer: Peer) -> None:
        assert sizes(await peer.full(0)) == {0: 3 * EACH}
        await append(stage)
        for end in (4, 5):
            assert sizes(await peer.next(end - 1)) == {0: EACH}, "though the first three are not paid for"
            if end == 4:
                assert stage.members[1].partition.leading.isr.must_ack == {1}
                client = await stage.members[1].connect()
                written = asyncio.ensure_future(ask(client, produce(batch(b"x" * 1000), acks=-1)))
                await until(lambda: stage.members[1].partition.log.end_offset == 5)
        await peer.next(5)
        assert outcome(await written) == (0, 4)
        await client.close()

    with_peer(tmp_path, story, rate=10)


def test_a_batch_that_is_held_back_is_not_taken_for_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its follower asks for it again and again, as it would if it could not take what it gets."""

    async def story(stage: Cluster, peer: Peer) -> None:
        checked: list[object] = []

        async def check(partition: object, *_: object) -> None:
            checked.append(partition)

        monkeypatch.setattr(isr_writer, "check_batch", check)
        await peer.full(0, **ONE)
        for _ in range(2 * REPEATS):
            assert sizes(await peer.next(1)) == {}
        for _ in range(2 * REPEATS):
            assert sizes(await peer.next(max_wait_ms=60)) == {}, "silent, and outside of the ISR"
        assert not checked
        stage.members[1].parts.leader_throttle.set_rate(UNLIMITED, asyncio.get_running_loop().time())
        for _ in range(2 * REPEATS):
            assert sizes(await peer.next(1)) == {0: 2 * EACH}
        assert checked

    with_peer(tmp_path, story, rate=10)
