"""ZooKeeper in memory: a tree, sessions with ephemeral nodes, one-shot watches, `multi` in one breath.

It is one linear history, as a single real server is. Left to others: what reaches it and when
(`registry.py`), and what the paths mean (`controller/znodes.py`).
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ..controller.registry import (
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
    RegistryError,
    SetData,
    Stat,
)


@dataclass(slots=True)
class Node:
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
class Session:
    """One session, alive until nobody was heard of for its timeout."""

    id: int
    password: bytes
    timeout_s: float
    heard_at: float


Fire = Callable[[str], None]


class SimZooKeeper:
    """The server. Its callers bring the time."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {"/": Node(b"", 0)}
        self.sessions: dict[int, Session] = {}
        self.zxid = 0
        self.watches: dict[tuple[str, str], list[tuple[int, Fire]]] = {}  # (kind, path) -> (session, fire)
        self.writes: list[
            tuple[int, tuple[Op, ...]]
        ] = []  # (session, operations) of every multi that was applied

    # ------------------------------------------------------------ sessions

    def open(self, timeout_s: float, now: float) -> Session:
        self.zxid += 1
        id = 0x1000 + self.zxid
        self.sessions[id] = Session(id, id.to_bytes(16, "big"), timeout_s, now)
        return self.sessions[id]

    def expire(self, now: float) -> None:
        """End the sessions that nobody was heard of in for their timeout."""
        for session in [s for s in self.sessions.values() if now - s.heard_at > s.timeout_s]:
            self.end(session.id)

    def end(self, id: int) -> None:
        """End a session: its ephemeral nodes go, its watches are forgotten."""
        if self.sessions.pop(id, None) is None:
            return
        for key in list(self.watches):
            self.watches[key] = [watch for watch in self.watches[key] if watch[0] != id]
        mine = sorted(path for path, node in self.nodes.items() if node.owner == id)
        if mine:
            self.zxid += 1
        for path in mine:
            self._remove(path)

    def forget_watches(self, id: int) -> None:
        """What a dropped connection does to the watches of its session."""
        for key in list(self.watches):
            self.watches[key] = [watch for watch in self.watches[key] if watch[0] != id]

    # ------------------------------------------------------------ reads

    def get(self, path: str, session: int, fire: Fire | None) -> tuple[bytes, Stat]:
        node = self._node(path)
        self._watch("data", path, session, fire)
        return node.data, node.stat()

    def exists(self, path: str, session: int, fire: Fire | None) -> Stat | None:
        self._watch("data", path, session, fire)
        node = self.nodes.get(path)
        return node.stat() if node else None

    def children(self, path: str, session: int, fire: Fire | None) -> list[str]:
        node = self._node(path)
        self._watch("children", path, session, fire)
        return sorted(node.children)

    def _node(self, path: str) -> Node:
        if path not in self.nodes:
            raise NoNode(path)
        return self.nodes[path]

    def _watch(self, kind: str, path: str, session: int, fire: Fire | None) -> None:
        if fire is not None:
            self.watches.setdefault((kind, path), []).append((session, fire))

    # ------------------------------------------------------------ writes

    def multi(self, ops: Sequence[Op], session: int) -> list[OpResult]:
        """All or nothing: tried on copies of the nodes it touches, then put in place."""
        before, fired = self._touched(ops), list[tuple[str, str]]()
        results: list[OpResult] = []
        self.zxid += 1
        for index, op in enumerate(ops):
            try:
                results.append(self._apply(op, session, fired))
            except RegistryError as error:
                self._restore(before)
                raise MultiFailed([error if i == index else NotReached() for i in range(len(ops))]) from error
        self.writes.append((session, tuple(ops)))
        for kind, path in fired:
            self._fire(kind, path)
        return results

    def _apply(self, op: Op, session: int, fired: list[tuple[str, str]]) -> OpResult:
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
            parent.sequence += 1
        if path in self.nodes:
            raise NodeExists(path)
        self.nodes[path] = Node(op.data, self.zxid, session if op.ephemeral else 0)
        parent.children.add(posixpath.basename(path))
        fired += [("data", path), ("children", posixpath.dirname(path))]
        return path

    def _touched(self, ops: Sequence[Op]) -> dict[str, Node | None]:
        paths = {path for op in ops for path in (op.path, posixpath.dirname(op.path))}
        return {path: _copy(self.nodes.get(path)) for path in paths}

    def _restore(self, before: dict[str, Node | None]) -> None:
        for path, node in before.items():
            if node is None:
                self.nodes.pop(path, None)
            else:
                self.nodes[path] = node
        for path in [p for p in self.nodes if p != "/" and posixpath.basename(p) not in self._siblings(p)]:
            del self.nodes[path]  # a sequential node, whose name was not known before

    def _siblings(self, path: str) -> set[str]:
        parent = self.nodes.get(posixpath.dirname(path))
        return parent.children if parent else set()

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


def _copy(node: Node | None) -> Node | None:
    if node is None:
        return None
    return Node(node.data, node.czxid, node.owner, node.version, set(node.children), node.sequence)
