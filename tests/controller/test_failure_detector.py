"""When a peer counts as dead, and when it does not: no connection, and no answer through ZooKeeper."""

import asyncio
import socket
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from strandline.controller import failure_detector
from strandline.controller.challenges import Word
from strandline.controller.failure_detector import FailureDetector, Patience, Standing
from tests.listener import Listener
from tests.patience import HANG_S


class Oracle:
    """What ZooKeeper says of a peer: by default, that it does not answer."""

    def __init__(self) -> None:
        self.word = Word.SILENT
        self.patience_s: list[float] = []
        self.deaths: list[float] = []
        self.standings: list[Standing] = []

    async def ask(self, patience_s: float) -> Word:
        self.patience_s.append(patience_s)
        if self.word is Word.SILENT:
            await asyncio.sleep(patience_s)
        return self.word

    @property
    def asked(self) -> int:
        return len(self.patience_s)

    def detector(self, place: Any) -> FailureDetector:
        def changed() -> None:
            self.standings.append(line.standing)
            if line.is_dead:
                self.deaths.append(asyncio.get_running_loop().time())

        line = FailureDetector(place, Patience(), self.ask, changed)
        return line


class Peer:
    def __init__(self) -> None:
        self.accepted = 0
        self.listener = Listener(self.accept)
        self.listen, self.cut, self.close = self.listener.listen, self.listener.cut, self.listener.close

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        await reader.read()


Story = Callable[[Peer, Oracle, FailureDetector], Coroutine[Any, Any, None]]


def play(story: Story) -> None:
    async def scene() -> None:
        peer, oracle = Peer(), Oracle()
        await peer.listen()
        detector = oracle.detector(("127.0.0.1", peer.listener.port))
        with pytest.MonkeyPatch.context() as patch:  # on a busy machine, too, the first attempt is enough
            patch.setattr(failure_detector, "UNHURRIED_S", HANG_S)
            task = asyncio.ensure_future(detector.run())
            await until(lambda: detector.standing is Standing.REACHED)
        assert peer.accepted == 1 and oracle.asked == 0
        await story(peer, oracle, detector)
        task.cancel()
        await asyncio.wait([task])
        peer.close()
        await asyncio.sleep(0)

    asyncio.run(scene())


async def until(condition: Callable[[], object], seconds: float = HANG_S) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.005)


def test_a_peer_whose_port_refuses_and_that_does_not_answer_is_dead_after_a_hundred_milliseconds() -> None:
    async def story(peer: Peer, oracle: Oracle, detector: FailureDetector) -> None:
        cut_at = asyncio.get_running_loop().time()
        peer.close()
        await until(lambda: detector.is_dead)
        assert len(oracle.deaths) == 1
        assert 0.09 <= oracle.deaths[0] - cut_at < 0.3
        assert oracle.patience_s == [0.1]
        await peer.listen()
        await until(lambda: detector.standing is Standing.REACHED)
        assert len(oracle.deaths) == 1

    play(story)


def test_a_peer_that_answers_through_zookeeper_lives_however_long_it_is_out_of_reach(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(failure_detector, "ASK_AGAIN_S", 0.1)

    async def story(peer: Peer, oracle: Oracle, detector: FailureDetector) -> None:
        oracle.word = Word.ALIVE
        peer.close()
        await until(lambda: oracle.asked == 5)
        assert detector.standing is Standing.CUT and not oracle.deaths
        oracle.word = Word.SILENT  # an answer speaks for its moment
        await until(lambda: detector.is_dead)

    play(story)


def test_a_peer_that_only_stood_still_when_the_path_broke_does_not_stay_dead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What breaks a path may keep the peer from ZooKeeper for a moment, too."""
    monkeypatch.setattr(failure_detector, "ASK_AGAIN_S", 0.1)

    async def story(peer: Peer, oracle: Oracle, detector: FailureDetector) -> None:
        peer.close()
        await until(lambda: detector.is_dead)
        oracle.word = Word.ALIVE
        await until(lambda: detector.standing is Standing.CUT)
        await peer.listen()
        await until(lambda: detector.standing is Standing.REACHED)
        assert oracle.standings[-3:] == [Standing.DEAD, Standing.CUT, Standing.REACHED]

    play(story)


@pytest.mark.parametrize("word", [Word.UNKNOWN, Word.UNHEARD])
def test_without_a_word_of_zookeeper_there_is_no_verdict(word: Word) -> None:
    async def story(peer: Peer, oracle: Oracle, detector: FailureDetector) -> None:
        oracle.word = word
        peer.close()
        if word is Word.UNHEARD:
            await until(lambda: oracle.asked > 3)
        await asyncio.sleep(0.6)
        assert detector.standing is Standing.AWAY and not oracle.deaths
        assert oracle.asked == 1 or word is Word.UNHEARD

    play(story)


def test_a_peer_that_can_be_reached_again_has_no_verdict() -> None:
    async def story(peer: Peer, oracle: Oracle, detector: FailureDetector) -> None:
        peer.close()
        await until(lambda: oracle.asked == 1)
        await peer.listen()
        await asyncio.sleep(0.4)
        assert oracle.deaths == [] and peer.accepted == 2

    play(story)


@pytest.mark.parametrize("word", [Word.SILENT, Word.ALIVE])
async def test_of_a_peer_that_left_a_request_unanswered_a_connection_proves_nothing(word: Word) -> None:
    """A process that stands still has its connections accepted by the kernel."""

    peer, oracle = Peer(), Oracle()
    oracle.word = word
    await peer.listen()
    detector = oracle.detector(("127.0.0.1", peer.listener.port))
    connection = await detector.open(doubtful=True)
    assert oracle.asked == 1
    assert detector.standing is (Standing.DEAD if word is Word.SILENT else Standing.REACHED)
    await connection.close()
    peer.close()


async def test_a_port_that_we_never_got_into_has_longer() -> None:
    """Its broker may be about to listen there, or something between us refuses in its name."""

    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        oracle = Oracle()
        task = asyncio.ensure_future(oracle.detector(nobody.getsockname()).run())
        await until(lambda: oracle.deaths)
        assert oracle.patience_s == [0.3]
        task.cancel()
        await asyncio.wait([task])


def test_a_silent_peer_has_no_verdict() -> None:
    async def story(peer: Peer, oracle: Oracle, detector: FailureDetector) -> None:
        await asyncio.sleep(0.6)
        assert oracle.asked == 0 and not oracle.deaths and peer.accepted == 1

    play(story)


def test_a_peer_that_hangs_up_at_once_is_not_besieged() -> None:
    async def story(peer: Peer, oracle: Oracle, detector: FailureDetector) -> None:
        for _ in range(100):
            peer.cut()
            await asyncio.sleep(0.005)
        assert not oracle.deaths and oracle.asked == 0 and peer.accepted < 12

    play(story)


async def test_a_host_that_swallows_everything_is_dead_too() -> None:
    with socket.socket() as full:  # a listener whose queue is full drops what comes
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        crowd = [socket.socket() for _ in range(4)]
        for one in crowd:
            one.setblocking(False)
            one.connect_ex(full.getsockname())
        oracle = Oracle()
        started = asyncio.get_running_loop().time()
        task = asyncio.ensure_future(oracle.detector(full.getsockname()).run())
        await until(lambda: oracle.deaths)
        assert 0.29 <= oracle.deaths[0] - started < 0.5
        assert oracle.patience_s == [0.3]
        task.cancel()
        await asyncio.wait([task])
        for one in crowd:
            one.close()


@pytest.mark.parametrize("steps", range(6))
async def test_a_process_that_stood_still_itself_gives_no_verdict(steps: int) -> None:
    peer, oracle = Peer(), Oracle()
    await peer.listen()
    task = asyncio.ensure_future(oracle.detector(("127.0.0.1", peer.listener.port)).run())
    for _ in range(steps):
        await asyncio.sleep(0)  # so far has it come with its first connection
    time.sleep(0.35)  # noqa: ASYNC251 - the process stands still, that is the story
    await asyncio.sleep(0.1)
    assert not oracle.deaths and peer.accepted, "the peer was there all the time"
    peer.close()
    await until(lambda: oracle.deaths)
    task.cancel()
    await asyncio.wait([task])
