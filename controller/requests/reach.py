"""`Reach`: what requests may use of the active controller, during one term.

Requests do not see the controller itself: they read what it knows, write to ZooKeeper under its fence, post
events, and wait until the state says that these have been handled.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence

from ...base.values import dataclass
from ...zookeeper.client import Op, OpResult, ZkClient
from ...zookeeper.znodes import ControllerTerm, fenced
from ..planning import plans
from ..planning.state import ClusterState

Condition = Callable[[ClusterState], bool]


@dataclass(frozen=True, slots=True)
class Reach:
    """The state as a function, since it changes with each event. Waiting may raise `NotController`."""

    zk: ZkClient
    term: ControllerTerm
    state: Callable[[], ClusterState]
    post: Callable[[plans.Event], None]
    until: Callable[[Condition], Awaitable[None]]
    all_told: Callable[[], Awaitable[None]]  # every live broker has answered what it was sent until now
    configured: Callable[[Iterable[str]], None]  # the settings of these topics have been written

    async def write(self, ops: Sequence[Op]) -> list[OpResult]:
        """Write under the fence of this term. Raises `ControllerMoved`, `MultiFailed` or `Unknown`."""
        return await fenced(self.zk, self.term, ops)
