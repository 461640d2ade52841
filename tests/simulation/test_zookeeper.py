"""The ZooKeeper in memory: fences hold, sessions end, watches fire once, and it agrees with the real one."""

import asyncio
import random
from collections.abc import Sequence

import pytest

from strandline.controller.registry import (
    Check,
    Create,
    Delete,
    MultiFailed,
    NodeExists,
    NoNode,
    NotReached,
    Op,
    Registry,
    RegistryError,
    SetData,
)
from strandline.controller.zookeeper import KazooRegistry
from strandline.simulation.loop import SimLoop
from strandline.simulation.registry import SimRegistry
from strandline.simulation.zookeeper import SimZooKeeper


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
        registry = SimRegistry(loop, server, 6)
        await registry.start()
        await registry.multi([Create("/a", b"1")])
        with pytest.raises(MultiFailed) as caught:
            await registry.multi([SetData("/a", b"2", 0), Create("/b", b""), Check("/a", 9)])
        assert caught.value.culprit == 2
        assert await registry.get("/a") == (b"1", (0, server.nodes["/a"].czxid, 0))
        assert await registry.exists("/b") is None

    in_world(story)


def test_a_cut_off_session_ends_and_its_ephemerals_go() -> None:
    async def story(loop: SimLoop, server: SimZooKeeper) -> None:
        registry, other = SimRegistry(loop, server, 2), SimRegistry(loop, server, 60)
        await registry.start()
        await registry.multi([Create("/me", b"", ephemeral=True)])
        registry._host = type(registry._host)("cut-off")
        await other.start()
        gone: list[str] = []
        await other.exists("/me", gone.append)
        loop.network.cut("cut-off", "zookeeper")
        states: list[str] = []
        registry.listen(lambda event: states.append(f"{event.state.value} {event.generation}"))
        await asyncio.sleep(30)
        assert gone == ["/me"]
        assert states == ["suspended 1", "assume_expired 1"]
        loop.network.heal()
        await asyncio.sleep(5)
        assert states[2:] == ["expired 1", "connected 2"]

    in_world(story)


def commands(seed: int, count: int) -> list[list[Op]]:
    """Writes drawn from few paths and versions, so that they often meet."""
    drawn = random.Random(seed)
    paths = ["/a", "/a/x", "/a/y", "/b", "/b/x"]

    def op() -> Op:
        path, data = drawn.choice(paths), b"%d" % drawn.randrange(100)
        match drawn.randrange(4):
            case 0:
                return Create(path, data, ephemeral=drawn.random() < 0.2 and path.count("/") == 2)
            case 1:
                return SetData(path, data, drawn.randrange(3))
            case 2:
                return Delete(path, drawn.randrange(3))
            case _:
                return Check(path, drawn.randrange(-1, 3))

    return [[op() for _ in range(drawn.randint(1, 4))] for _ in range(count)]


async def replay(registry: Registry, root: str, script: Sequence[Sequence[Op]]) -> list[object]:
    """What the registry answers to each write and shows afterwards, without what no two servers share."""
    answers: list[object] = []
    for ops in script:
        moved = [type(op)(**{**_fields(op), "path": root + op.path}) for op in ops]
        try:
            answers.append([_common(result, root) for result in await registry.multi(moved)])
        except MultiFailed as failed:
            answers.append([type(error).__name__ for error in failed.results])
        answers.append(await _tree(registry, root))
    return answers


def _fields(op: Op) -> dict[str, object]:
    return {name: getattr(op, name) for name in op.__slots__}


def _common(result: object, root: str) -> object:
    if isinstance(result, str):
        return result.removeprefix(root)
    return getattr(result, "version", result)


async def _tree(registry: Registry, path: str) -> object:
    try:
        data, stat = await registry.get(path)
        names = await registry.children(path)
    except NoNode:
        return None
    inside = [(name, await _tree(registry, f"{path}/{name}")) for name in names]
    return (data, stat.version, bool(stat.owner), inside)


def test_it_agrees_with_the_real_one(zookeeper: str) -> None:
    """The same random writes give the same results, errors and trees on both."""
    script = commands(seed=20, count=150)

    async def simulated(loop: SimLoop, server: SimZooKeeper) -> list[object]:
        registry = SimRegistry(loop, server, 60)
        await registry.start()
        await registry.multi([Create("/differential", b"")])
        return await replay(registry, "/differential", script)

    async def real() -> list[object]:
        registry = KazooRegistry(zookeeper, 10_000)
        await registry.start()
        try:
            await registry.multi([Create("/differential", b"")])
            return await replay(registry, "/differential", script)
        finally:
            await registry.close()

    expected = asyncio.run(real())
    assert in_world(simulated) == expected
    kinds = {
        name for answer in expected if isinstance(answer, list) for name in answer if isinstance(name, str)
    }
    for error in (NodeExists, NoNode, NotReached):
        assert error.__name__ in kinds, "the script reaches every kind of outcome"
    assert issubclass(NodeExists, RegistryError)
