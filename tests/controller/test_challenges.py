"""A challenge: a living broker answers it, whatever message is lost or late; a dead one never does."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

import pytest

from strandline.controller.challenges import Challenger, Respondent, Word
from strandline.simulation.environment.zookeeper import SimZooKeeper
from strandline.zookeeper import documents, znodes
from strandline.zookeeper.client import Create, Delete, Op, SetData, Unknown, Watch, ZkError
from tests.controller.memory_zk_client import MemoryZkClient

B, K = 7, 3
PATH = documents.challenge_path(B)
PATIENCE_S = 0.05


class Stage:
    """A broker, and two who ask after it."""

    def __init__(self) -> None:
        self.server = SimZooKeeper()
        self.zk, self.one, self.two = (MemoryZkClient(self.server) for _ in range(3))
        self.failures: list[BaseException] = []
        self.respondent = Respondent(cast(Any, self.zk), B, self.failures.append)
        self.askers = [Challenger(cast(Any, each)) for each in (self.one, self.two)]

    async def ask(self, who: int = 0, patience_s: float = PATIENCE_S, start: int = K) -> Word:
        return await self.askers[who].ask(B, start, patience_s)

    def writes(self) -> list[Sequence[Op]]:
        return [ops for _, ops in self.server.writes if any(isinstance(op, SetData) for op in ops)]


def play(story: Callable[[Stage], Awaitable[None]]) -> None:
    async def scene() -> None:
        stage = Stage()
        await znodes.ensure_paths(cast(Any, stage.zk))
        await stage.respondent.begin(K)
        await story(stage)
        await stage.respondent.stop()
        assert not stage.failures

    asyncio.run(scene())


def test_whoever_lives_answers_and_it_costs_two_writes() -> None:
    async def story(stage: Stage) -> None:
        assert await stage.ask() is Word.ALIVE
        assert len(stage.writes()) == 2
        assert await stage.ask() is Word.ALIVE
        assert len(stage.writes()) == 4
        again = Challenger(cast(Any, stage.one))  # as by the next controller on the same broker
        assert await again.ask(B, K, PATIENCE_S) is Word.ALIVE

    play(story)


def test_whoever_is_dead_does_not_and_is_asked_no_second_time_by_others() -> None:
    async def story(stage: Stage) -> None:
        await stage.respondent.stop()
        words = await asyncio.gather(stage.ask(0), stage.ask(1))
        assert words == [Word.SILENT, Word.SILENT]
        assert len(stage.writes()) == 1, "one question serves both"
        assert await stage.ask() is Word.SILENT

    play(story)


def test_a_late_answer_is_one_too() -> None:
    """A question that another one left open long ago waits for an answer like a new one."""

    async def story(stage: Stage) -> None:
        await stage.respondent.stop()
        assert await stage.ask() is Word.SILENT
        again = Respondent(cast(Any, stage.zk), B, stage.failures.append)
        again._incarnation = K  # it only stood still
        asked = asyncio.ensure_future(stage.ask(1, patience_s=2.0))
        await asyncio.sleep(0.02)
        again._due.set()
        assert await asked is Word.ALIVE
        await again.stop()

    play(story)


def test_another_start_and_one_that_knows_no_challenges_have_no_word() -> None:
    async def story(stage: Stage) -> None:
        assert await stage.ask(start=K - 1) is Word.UNKNOWN
        assert await stage.ask(start=K + 1) is Word.UNKNOWN
        await stage.respondent.stop()
        await stage.zk.multi([Delete(PATH, stage.server.nodes[PATH].version)])
        assert await stage.ask() is Word.UNKNOWN

    play(story)


def test_without_zookeeper_there_is_no_word() -> None:
    async def story(stage: Stage) -> None:
        stage.one.unreadable = {PATH}
        assert await stage.ask() is Word.UNHEARD

    play(story)


def test_silence_is_not_believed_of_a_server_that_lags() -> None:
    """The answer stands, and whoever asked still reads what was before it."""

    async def story(stage: Stage) -> None:
        get, lags = stage.one.get, True
        before: list[Any] = []

        async def old(path: str, watch: Watch | None = None) -> Any:
            if not before or before[-1][1].version == 0:
                before.append(await get(path))
            return before[-1] if lags else await get(path, watch)

        stage.one.get = old  # type: ignore[method-assign]
        asked = asyncio.ensure_future(stage.ask())
        await asyncio.sleep(2 * PATIENCE_S)
        assert not asked.done()
        lags = False
        assert await asked is Word.ALIVE

    play(story)


def test_a_node_that_was_made_anew_under_a_question_is_an_answer() -> None:
    """Its versions begin again: waiting for a higher one would have no end, and there would be no verdict."""

    async def story(stage: Stage) -> None:
        assert await stage.ask() is Word.ALIVE
        await stage.respondent.stop()
        asking = asyncio.ensure_future(stage.ask())
        while len(stage.writes()) < 3:
            await asyncio.sleep(0)
        anew = Create(PATH, documents.ChallengeDocument(incarnation=K).data())
        await stage.two.multi([Delete(PATH, stage.server.nodes[PATH].version), anew])  # before anybody looks
        async with asyncio.timeout(20):
            assert await asking is Word.ALIVE

    play(story)


def test_a_node_that_somebody_has_spoilt_is_made_again() -> None:
    async def story(stage: Stage) -> None:
        await asyncio.sleep(PATIENCE_S)  # it stands under watch
        await stage.one.multi([SetData(PATH, b"{", stage.server.nodes[PATH].version)])
        await asyncio.sleep(PATIENCE_S)
        assert await stage.ask() is Word.ALIVE

    play(story)


def test_a_node_that_somebody_has_removed_is_made_again() -> None:
    async def story(stage: Stage) -> None:
        assert await stage.ask() is Word.ALIVE  # its watch stands
        await stage.one.multi([Delete(PATH, stage.server.nodes[PATH].version)])
        async with asyncio.timeout(20):
            while await stage.ask() is not Word.ALIVE:
                await asyncio.sleep(0.01)

    play(story)


@pytest.mark.parametrize("fate", ["the request is lost", "the answer is lost", "it comes twice"])
@pytest.mark.parametrize("nth", range(4))
def test_no_message_that_is_lost_or_repeated_makes_a_living_broker_dead(nth: int, fate: str) -> None:
    """Of each side, each read and each write in turn. Who heard nothing asks again, as a detector does."""

    async def story(stage: Stage) -> None:
        for zk in (stage.one, stage.zk):
            _Spoilt(zk, nth, fate)
        words = [await stage.ask(patience_s=2.0)]
        while words[-1] is Word.UNHEARD:
            words.append(await stage.ask(patience_s=2.0))
        assert words[-1] is Word.ALIVE and len(words) <= 2, words
        await stage.respondent.stop()
        while words[-1] in (Word.ALIVE, Word.UNHEARD):
            words.append(await stage.ask())
        assert words[-1] is Word.SILENT and len(words) <= 4, "nothing old speaks for the dead"

    play(story)


class _Spoilt:
    """One message of a ZooKeeper client, the nth, does not go as it should."""

    def __init__(self, zk: MemoryZkClient, nth: int, fate: str) -> None:
        self.left, self.fate = nth, fate
        for name in ("get", "multi"):
            setattr(zk, name, self._spoil(getattr(zk, name)))

    def _spoil(self, call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def spoilt(*args: Any) -> Any:
            self.left -= 1
            if self.left != -1:
                return await call(*args)
            if self.fate == "the request is lost":
                raise Unknown("it never came")
            result = await call(*args)
            if self.fate == "the answer is lost":
                raise Unknown("the answer was lost")
            if not isinstance(args[0], str):
                with pytest.raises(ZkError):
                    await call(*args)
            return result

        return spoilt
