"""A session with the simulator's ZooKeeper that answers at once, and loses answers when it is told to."""

import asyncio
from collections.abc import Callable, Sequence

from strandline.simulation.environment.zookeeper import SimZooKeeper
from strandline.zookeeper.client import Op, OpResult, Stat, Unknown, Watch

Loses = Callable[[Sequence[Op]], bool]


class MemoryZkClient:
    """`loses` is asked of each write that has landed: if it says so, the answer does not come."""

    generation, connected = 1, True

    def __init__(self, server: SimZooKeeper) -> None:
        self.server = server
        self.loses: Loses = lambda _: False
        self.unreadable: set[str] = set()  # the answer to a read of these does not come, once
        self.session_id = server.open(10, 0).id

    def listen(self, listener: object) -> Callable[[], None]:
        return lambda: None

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        await self._asked(path)
        return self.server.get(path, self.session_id, watch)

    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        for path in paths:
            await self._asked(path)
        return self.server.get_many(paths)

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        await self._asked(path)
        return self.server.exists(path, self.session_id, watch)

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        await self._asked(path)
        return self.server.children(path, self.session_id, watch)

    async def multi(self, ops: Sequence[Op]) -> list[OpResult]:
        await asyncio.sleep(0)
        results = self.server.multi(ops, self.session_id)
        if self.loses(ops):
            raise Unknown("the answer was lost")
        return results

    async def _asked(self, path: str) -> None:
        await asyncio.sleep(0)
        if path in self.unreadable:
            self.unreadable.discard(path)
            raise Unknown("the answer was lost")
