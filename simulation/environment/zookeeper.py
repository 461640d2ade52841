"""ZooKeeper in memory: a tree, sessions with ephemeral nodes, one-shot watches, atomic `multi`.

It is one linear history. A reader may see a state of a moment ago, as from a lagging follower of an ensemble.
Left to others: what reaches it and when (`zk_client.py`), what the paths mean (`zookeeper/znodes.py`).
"""

from __future__ import annotations

import posixpath
import re
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ...zookeeper.client import (
    ANY_VERSION,
    BadVersion,
    Check,
    Create,
    Delete,
    MultiFailed,
    NodeExists,
    NoNode,
    NotEmpty,
    NotReached,
    Op,
    OpResult,
    SetData,
    Stat,
    ZkError,
)


@dataclass(slots=True)
class Znode:
    """One znode."""

    data: bytes
    czxid: int
    owner: int = 0
    version: int = 0
    children: set[str] = field(default_factory=set)
    sequence: int = 0

    def stat(self) -> Stat:
        return Stat(self.version, self.czxid, self.owner)


@dataclass(slots=True)
class SimSession:
    """One session; it ends when nothing was heard from its client for its timeout."""

    id: int
    password: bytes
    timeout_s: float
    heard_at: float


class NodeBefore(NamedTuple):
    """One node as it was before a change."""

    when: float
    zxid: int
    path: str
    before: Znode | None


Fire = Callable[[str], None]
REQUEST_BYTES_MAX = (1 << 20) - 1
"""ZooKeeper's jute.maxbuffer: it ends the connection of whoever sends more in one request."""
NO_PATH = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]|^(?!/)|//|.+/$")
LATENCY_S = (0.0002, 0.004)
REMEMBERED_S = 3.0
"""How stale a reader may be: so much history is kept."""


def _at_once(fire: Fire, path: str) -> None:
    fire(path)


class SimZooKeeper:
    """The server. Its callers pass the time."""

    def __init__(self) -> None:
        self.nodes: dict[str, Znode] = {"/": Znode(b"", 0)}
        self.sessions: dict[int, SimSession] = {}
        self.zxid = 0
        self.watches: dict[tuple[str, str], list[tuple[int, Fire]]] = {}  # (kind, path) -> (session, fire)
        self.writes: list[
            tuple[int, tuple[Op, ...]]
        ] = []  # (session, operations) of every multi that was applied
        self.on_write: Callable[[int, Sequence[Op]], None] | None = None  # called for each of them
        self.clock: Callable[[], float] = float
        self.defer: Callable[[Fire, str], object] = _at_once
        self.grace_s = 0.0  # sessions outlive their timeout by so much
        self.latency_s = LATENCY_S  # of each request and each answer
        self._past: deque[NodeBefore] = deque()

    # ------------------------------------------------------------ sessions

    def open(self, timeout_s: float, now: float) -> SimSession:
        self.zxid += 1
        id = 0x1000 + self.zxid
        self.sessions[id] = SimSession(id, id.to_bytes(16, "big"), timeout_s, now)
        return self.sessions[id]

    def expire(self, now: float) -> None:
        """End the sessions whose timeout has passed without a sign of their clients."""
        for session in [s for s in self.sessions.values() if now - s.heard_at > s.timeout_s + self.grace_s]:
            self.end(session.id)

    def end(self, id: int) -> None:
        """End a session: its ephemeral nodes are deleted, its watches dropped."""
        if self.sessions.pop(id, None) is None:
            return
        for key in list(self.watches):
            self.watches[key] = [watch for watch in self.watches[key] if watch[0] != id]
        mine = sorted(path for path, node in self.nodes.items() if node.owner == id)
        if mine:
            self.zxid += 1
            paths = {at for path in mine for at in (path, posixpath.dirname(path))}
            self._keep({path: _copy(self.nodes.get(path)) for path in sorted(paths)})
        for path in mine:
            self._remove(path)

    def forget_watches(self, id: int) -> None:
        """Drop the watches of a session, whose connection was lost."""
        for key in list(self.watches):
            self.watches[key] = [watch for watch in self.watches[key] if watch[0] != id]

    # ------------------------------------------------------------ reads

    def get(self, path: str, session: int, fire: Fire | None, at: int | None = None) -> tuple[bytes, Stat]:
        node, fire = self._seen(path, at, fire)
        if node is None:
            raise NoNode(path)
        self._watch("data", path, session, fire)
        return node.data, node.stat()

    def get_many(self, paths: Sequence[str], at: int | None = None) -> list[tuple[bytes, Stat] | None]:
        found = [self._seen(path, at, None)[0] for path in paths]
        return [None if node is None else (node.data, node.stat()) for node in found]

    def exists(self, path: str, session: int, fire: Fire | None, at: int | None = None) -> Stat | None:
        node, fire = self._seen(path, at, fire)
        self._watch("data", path, session, fire)
        return node.stat() if node else None

    def children(self, path: str, session: int, fire: Fire | None, at: int | None = None) -> list[str]:
        node, fire = self._seen(path, at, fire)
        if node is None:
            raise NoNode(path)
        self._watch("children", path, session, fire)
        return sorted(node.children)

    def zxid_before(self, when: float) -> int:
        """The last zxid as of `when`."""
        for change in self._past:
            if change.when > when:
                return change.zxid - 1
        return self.zxid

    def _seen(self, path: str, at: int | None, fire: Fire | None) -> tuple[Znode | None, Fire | None]:
        """A node as of zxid `at`. If it has changed since, the watch fires at once."""
        if at is not None:
            for change in self._past:
                if change.path == path and change.zxid > at:
                    if fire is not None:
                        self.defer(fire, path)
                    return change.before, None
        return self.nodes.get(path), fire

    def _keep(self, before: dict[str, Znode | None]) -> None:
        now = self.clock()
        while self._past and self._past[0].when < now - REMEMBERED_S:
            self._past.popleft()
        self._past.extend(NodeBefore(now, self.zxid, path, node) for path, node in before.items())

    def _node(self, path: str) -> Znode:
        if path not in self.nodes:
            raise NoNode(path)
        return self.nodes[path]

    def _watch(self, kind: str, path: str, session: int, fire: Fire | None) -> None:
        if fire is not None:
            self.watches.setdefault((kind, path), []).append((session, fire))

    # ------------------------------------------------------------ writes

    def multi(self, ops: Sequence[Op], session: int) -> list[OpResult]:
        """Apply all operations or none: on an error the nodes are restored from copies."""
        before, fired = self._touched(ops), list[tuple[str, str]]()
        results: list[OpResult] = []
        self.zxid += 1
        for index, op in enumerate(ops):
            try:
                results.append(self._apply(op, session, fired))
            except ZkError as error:
                self._restore(before, [path for path in results if isinstance(path, str)])
                raise MultiFailed([error if i == index else NotReached() for i in range(len(ops))]) from error
        self._keep({**before, **{path: None for path in results if isinstance(path, str)}})
        self.writes.append((session, tuple(ops)))
        if self.on_write is not None:
            self.on_write(session, ops)
        for kind, path in fired:
            self._fire(kind, path)
        return results

    def _apply(self, op: Op, session: int, fired: list[tuple[str, str]]) -> OpResult:
        if NO_PATH.search(op.path):
            raise ZkError(f"BadArgumentsError: {op.path!r}")
        match op:
            case Check(path, version):
                node = self._node(path)
                if version not in (ANY_VERSION, node.version):
                    raise BadVersion(path)
                return None
            case SetData(path, data, version):
                node = self._node(path)
                if node.version != version:
                    raise BadVersion(path)
                node.data, node.version = data, version + 1
                fired.append(("data", path))
                return node.stat()
            case Delete(path, version):
                node = self._node(path)
                if node.version != version:
                    raise BadVersion(path)
                if node.children:
                    raise NotEmpty(path)
                self._unlink(path)
                fired += [("data", path), ("children", path), ("children", posixpath.dirname(path))]
                return None
            case Create():
                return self._create(op, session, fired)

    def _create(self, op: Create, session: int, fired: list[tuple[str, str]]) -> str:
        parent = self._node(posixpath.dirname(op.path))
        path = op.path
        if op.sequential:
            path = f"{path}{parent.sequence:010d}"
        if path in self.nodes:
            raise NodeExists(path)
        self.nodes[path] = Znode(op.data, self.zxid, session if op.ephemeral else 0)
        parent.children.add(posixpath.basename(path))
        parent.sequence += 1  # counts all that were ever created here
        fired += [("data", path), ("children", posixpath.dirname(path))]
        return path

    def _touched(self, ops: Sequence[Op]) -> dict[str, Znode | None]:
        paths = sorted({path for op in ops for path in (op.path, posixpath.dirname(op.path))})
        return {path: _copy(self.nodes.get(path)) for path in paths}

    def _restore(self, before: dict[str, Znode | None], numbered: Sequence[str]) -> None:
        for path, node in before.items():
            if node is None:
                self.nodes.pop(path, None)
            else:
                self.nodes[path] = node
        for path in numbered:
            if path not in before:
                self.nodes.pop(path, None)  # a sequential node, whose name was not known before

    def _unlink(self, path: str) -> None:
        del self.nodes[path]
        self.nodes[posixpath.dirname(path)].children.discard(posixpath.basename(path))

    def _remove(self, path: str) -> None:
        self._unlink(path)
        for kind, watched in (("data", path), ("children", path), ("children", posixpath.dirname(path))):
            self._fire(kind, watched)

    def _fire(self, kind: str, path: str) -> None:
        for _, fire in self.watches.pop((kind, path), []):
            fire(path)


def _copy(node: Znode | None) -> Znode | None:
    if node is None:
        return None
    return Znode(node.data, node.czxid, node.owner, node.version, set(node.children), node.sequence)
