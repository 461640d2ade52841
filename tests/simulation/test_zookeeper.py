"""The ZooKeeper in memory: fences hold, sessions end, watches fire once, and it agrees with the real one."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence

import pytest

from strandline.simulation.environment.loop import SimLoop
from strandline.simulation.environment.zk_client import SimZkClient
from strandline.simulation.environment.zookeeper import SimZooKeeper
from strandline.zookeeper.client import (
    Check,
    Create,
    Delete,
    MultiFailed,
    NoNode,
    NotReached,
    Op,
    SetData,
    Unknown,
    ZkClient,
    ZkError,
)
from strandline.zookeeper.kazoo_client import KazooZkClient
from tests.patience import HANG_S


def in_world(story: object) -> object:
    """Run `story(loop, server)` in a simulated world."""
    loop = SimLoop(1)
    asyncio.set_event_loop(loop)
    try:
        return loop.run_until_complete(story(loop, SimZooKeeper()))  # type: ignore[operator]
    finally:
        loop.drain()
        loop.close()
        asyncio.set_event_loop(None)


def test_a_multi_is_all_or_nothing() -> None:
    async def story(loop: SimLoop, server: SimZooKeeper) -> None:
        zk = SimZkClient(loop, server, 6)
        await zk.start()
        await zk.multi([Create("/a", b"1")])
        with pytest.raises(MultiFailed) as caught:
            await zk.multi([SetData("/a", b"2", 0), Create("/b", b""), Check("/a", 9)])
        assert caught.value.culprit == 2
        assert await zk.get("/a") == (b"1", (0, server.nodes["/a"].czxid, 0))
        assert await zk.exists("/b") is None

    in_world(story)


def test_a_cut_off_session_ends_and_its_ephemerals_go() -> None:
    async def story(loop: SimLoop, server: SimZooKeeper) -> None:
        zk, other = SimZkClient(loop, server, 2), SimZkClient(loop, server, 60)
        await zk.start()
        await zk.multi([Create("/me", b"", ephemeral=True)])
        zk._host = type(zk._host)("cut-off")
        await other.start()
        gone: list[str] = []
        await other.exists("/me", gone.append)
        loop.network.cut("cut-off", "zookeeper")
        states: list[str] = []
        zk.listen(lambda event: states.append(f"{event.state.value} {event.generation}"))
        await asyncio.sleep(30)
        assert gone == ["/me"]
        assert states == ["suspended 1", "assume_expired 1"]
        loop.network.heal()
        await asyncio.sleep(5)
        assert states[2:] == ["expired 1", "connected 2"]

    in_world(story)


Command = tuple[str, int, object]  # what, by which of two sessions, and its rest
SESSIONS = 2
PATHS = ("/a", "/a/x", "/a/y", "/b", "/b/x")


def write(drawn: random.Random) -> Op:
    path, data = drawn.choice(PATHS), b"%d" % drawn.randrange(100)
    match drawn.randrange(6):
        case 0 | 1:
            return Create(path, data, ephemeral=drawn.random() < 0.3 and path.count("/") == 2)
        case 2:
            return SetData(path, data, drawn.randrange(3))
        case 3:
            return Delete(path, drawn.randrange(3))
        case 4:
            parent = drawn.choice(["/a", "/b"])
            return Create(f"{parent}/n_", data, ephemeral=drawn.random() < 0.5, sequential=True)
        case _:
            return Check(path, drawn.randrange(-1, 3))


def commands(seed: int, count: int) -> list[Command]:
    """Writes, reads with watches and ends of sessions, drawn from few paths, so that they often meet."""
    drawn = random.Random(seed)
    script: list[Command] = []
    for _ in range(count):
        who = drawn.randrange(SESSIONS)
        kind = drawn.choice(
            ["multi"] * 4
            + ["get", "exists", "exists", "exists", "children"]
            + ["end"] * (drawn.random() < 0.2)
        )
        if kind == "multi":
            script.append((kind, who, [write(drawn) for _ in range(drawn.randint(1, 4))]))
        else:
            script.append((kind, who, drawn.choice(PATHS)))
    return script


class Player:
    """Plays a script on either client: what is answered, what there is, which watches have fired."""

    def __init__(
        self, root: str, connect: Callable[[], Awaitable[ZkClient]], due: Sequence[int] = ()
    ) -> None:
        self.root, self.connect, self.due = root, connect, due
        self.answers: list[object] = []
        self.fired: list[int] = []  # commands whose watches have fired
        self.told: list[int] = []  # how many of them had when a session was closed

    async def play(self, script: Sequence[Command]) -> None:
        sessions = [await self.connect() for _ in range(SESSIONS)]
        await sessions[0].multi([Create(self.root, b"")])
        for number, (kind, who, rest) in enumerate(script):
            if kind == "end":
                await self._close(sessions[who])
                sessions[who] = await self.connect()
            else:
                self.answers.append(await self._ask(sessions[who], number, kind, rest))
            self.answers.append(await _tree(sessions[0], self.root))
        for session in sessions:
            await session.exists(self.root)
            await self._close(session)

    async def _close(self, session: ZkClient) -> None:
        """Close it once all has fired that is due; kazoo has a thread for answers and one for watches."""
        due = self.due[len(self.told)] if self.due else 0
        async with asyncio.timeout(HANG_S):
            while len(self.fired) < due:
                await asyncio.sleep(0.01)
        self.told.append(len(self.fired))
        await session.close()

    async def _ask(self, session: ZkClient, number: int, kind: str, rest: object) -> object:
        try:
            if kind == "multi":
                assert isinstance(rest, list)
                moved = [type(op)(**{**_fields(op), "path": self.root + op.path}) for op in rest]
                return [_common(result, self.root) for result in await session.multi(moved)]
            told: object = await getattr(session, kind)(
                f"{self.root}{rest}", lambda path: self.fired.append(number)
            )
            return told if kind == "children" else _version(told)
        except MultiFailed as failed:
            return [type(error).__name__ for error in failed.results]
        except ZkError as error:
            return type(error).__name__


def _version(told: object) -> object:
    if isinstance(told, tuple) and len(told) == 2:
        return told[0], told[1].version
    return getattr(told, "version", told)


def _fields(op: Op) -> dict[str, object]:
    return {name: getattr(op, name) for name in op.__slots__}


def _common(result: object, root: str) -> object:
    if isinstance(result, str):
        return result.removeprefix(root)
    return getattr(result, "version", result)


async def _tree(zk: ZkClient, path: str) -> object:
    try:
        data, stat = await zk.get(path)
        names = await zk.children(path)
    except NoNode:
        return None
    inside = [(name, await _tree(zk, f"{path}/{name}")) for name in names]
    return (data, stat.version, bool(stat.owner), inside)


@pytest.mark.parametrize("seed", [20, 21, 22])
def test_it_agrees_with_the_real_one(zookeeper: str, seed: int) -> None:
    """The same random commands of two sessions give the same answers, trees and watches on both."""
    script, root = commands(seed, count=120), f"/differential{seed}"

    async def simulated(loop: SimLoop, server: SimZooKeeper) -> Player:
        async def connect() -> ZkClient:
            zk = SimZkClient(loop, server, 60)
            await zk.start()
            return zk

        player = Player(root, connect)
        await player.play(script)
        return player

    async def real(due: Sequence[int]) -> Player:
        async def connect() -> ZkClient:
            zk = KazooZkClient(zookeeper, 10_000)
            await zk.start()
            return zk

        player = Player(root, connect, due)
        await player.play(script)
        return player

    expected = in_world(simulated)
    assert isinstance(expected, Player)
    found = asyncio.run(real(expected.told))
    assert found.answers == expected.answers
    assert sorted(found.fired) == sorted(expected.fired)
    assert len(expected.fired) > 1, "the script makes watches fire"
    kinds = {name for answer in found.answers if isinstance(answer, list) for name in answer}
    assert {error.__name__ for error in (NoNode, NotReached)} <= kinds, "and things fail"


def test_a_server_that_lags_shows_what_was_and_then_tells_of_the_change() -> None:
    async def story(loop: SimLoop, server: SimZooKeeper) -> None:
        server.clock, server.defer = loop.time, loop.call_soon
        writer, reader = SimZkClient(loop, server, 60), SimZkClient(loop, server, 60)
        await writer.start()
        await reader.start()
        await writer.multi([Create("/a", b"old")])
        await asyncio.sleep(2)
        reader.lag_s = 0.5
        await writer.multi([SetData("/a", b"new", 0)])
        changed: list[str] = []
        data, stat = await reader.get("/a", changed.append)
        assert (data, stat.version) == (b"old", 0)
        await asyncio.sleep(0.1)
        assert changed == ["/a"]
        assert (await reader.get("/a"))[0] == b"new", (
            "nobody is told of a change and then shown what was before"
        )

    in_world(story)


@pytest.mark.parametrize(("loses", "value"), [(True, b"1"), (False, b"2")])
def test_what_is_asked_on_a_lost_connection_may_be_carried_out_later(loses: bool, value: bytes) -> None:
    async def story(loop: SimLoop, server: SimZooKeeper) -> None:
        zk = SimZkClient(loop, server, 6)
        await zk.start()
        await zk.multi([Create("/a", b"1")])
        asked = asyncio.ensure_future(zk.multi([SetData("/a", b"2", 0)]))
        await asyncio.sleep(0)
        zk.lose_connection(1.0, loses=loses)
        with pytest.raises(Unknown):
            await asked
        assert server.nodes["/a"].data == b"1"
        await asyncio.sleep(3)
        assert server.nodes["/a"].data == value
        assert zk.connected

    in_world(story)


def test_a_session_may_end_early_or_late() -> None:
    async def story(loop: SimLoop, server: SimZooKeeper) -> None:
        zk, other = SimZkClient(loop, server, 2), SimZkClient(loop, server, 60)
        await zk.start()
        await other.start()
        await zk.multi([Create("/me", b"", ephemeral=True)])
        zk.lose_session()
        assert "/me" not in server.nodes
        await asyncio.sleep(1)
        assert zk.generation == 2
        await zk.multi([Create("/me", b"", ephemeral=True)])
        server.grace_s = 100.0
        zk.lose_connection(50.0, loses=True)
        await asyncio.sleep(30)
        assert "/me" in server.nodes

    in_world(story)


async def refusals(zk: ZkClient, root: str) -> list[str]:
    """What becomes of writes to paths that are none, and of one that is longer than a request may be."""
    await zk.multi([Create(root, b"")])
    found = []
    for name in ("..", ".", "a/../b", "a\0", "a\n", "\x7f", "\ue000", "é", "a b", "%2E"):
        try:
            await zk.multi([Create(f"{root}/{name}", b"")])
            found.append("made")
        except (ValueError, MultiFailed, ZkError) as error:
            found.append(type(error).__name__)
    for path in (f"{root}/..", f"{root}/./a"):
        for ask in (zk.get, zk.exists, zk.children, lambda path: zk.get_many([path])):
            try:
                await ask(path)
                found.append("read")
            except ValueError as error:
                found.append(type(error).__name__)
    try:
        await zk.multi([Create(f"{root}/long", bytes(1 << 20))])
        found.append("made")
    except Unknown:
        found.append("the connection is lost")
    return found


def test_it_refuses_what_the_real_one_and_its_client_refuse(zookeeper: str) -> None:
    async def simulated(loop: SimLoop, server: SimZooKeeper) -> list[str]:
        zk = SimZkClient(loop, server, 60)
        await zk.start()
        return await refusals(zk, "/refused")

    async def real() -> list[str]:
        zk = KazooZkClient(zookeeper, 60_000)
        await zk.start()
        try:
            return await refusals(zk, "/refused")
        finally:
            await zk.close()

    assert in_world(simulated) == asyncio.run(real())


def test_what_is_no_path_is_refused_and_a_request_that_is_too_long_costs_the_connection() -> None:
    async def story(loop: SimLoop, server: SimZooKeeper) -> None:
        zk = SimZkClient(loop, server, 60)
        await zk.start()
        found = await refusals(zk, "/refused")
        assert found[:3] == ["ValueError"] * 3 and found[3:7] == ["MultiFailed"] * 4
        assert found[7:10] == ["made"] * 3 and found[10:18] == ["ValueError"] * 8
        assert found[18:] == ["the connection is lost"] and not zk.connected
        await asyncio.sleep(20)
        assert zk.connected and "/refused/long" not in server.nodes

    in_world(story)
