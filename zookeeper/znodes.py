"""What brokers and the controller do with ZooKeeper: one function on a `ZkClient` for each operation.

Every result of a `multi` is checked, and `Unknown` is never taken for a failure: after a lost answer we
re-read first. The documents are in `documents.py`.
Left to others: when to do what (`controller/controller.py`, `broker/registration.py`, the leader's shell).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

from ..base.types import TopicPartition
from . import documents
from .client import (
    BadVersion,
    Check,
    Create,
    Delete,
    MultiFailed,
    NodeExists,
    NoNode,
    Op,
    OpResult,
    SetData,
    Stat,
    Unknown,
    Watch,
    ZkClient,
)

REGISTRATION_POLL_S = 1.0
NEVER = (1 << 31) - 1  # the largest version that a node can have: a check against it fails


class ControllerMoved(Exception):
    """Another controller has been elected: on this error resign at once."""


class StateMoved(Exception):
    """The partition's state has another version than expected (or is gone): re-read it."""


class CheckFailed(Exception):
    """A condition beside the write failed. The write itself was good, so no earlier attempt has landed."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


class DuplicateBroker(Exception):
    """Another session holds this broker id and did not go away."""


class ControllerTerm(NamedTuple):
    """An elected controller: its epoch, and the version of `/controller_epoch` that fences its writes."""

    epoch: int
    fence: int


class StateWrite(NamedTuple):
    """The state that a leader wants to write, and the version that it replaces."""

    partition: TopicPartition
    document: documents.StateDocument
    version: int


class ControllerNode(NamedTuple):
    """The content of `/controller`: who is controller."""

    broker: int
    version: int
    czxid: int
    owner: int


async def ensure_paths(zk: ZkClient) -> None:
    """Create the persistent parents that Kafka expects."""
    for path in documents.PERSISTENT_PATHS:
        await create_if_absent(zk, path, b"")


async def create_if_absent(zk: ZkClient, path: str, data: bytes) -> bool:
    """Create a node; False if it was there. Safe to repeat after `Unknown`."""
    try:
        await zk.multi([Create(path, data)])
    except MultiFailed as failed:
        if not isinstance(failed.results[0], NodeExists):
            raise failed.results[0] from failed
        return False
    return True


# --- the controller's znode ------------------------------------------------------------------------


async def read_controller(zk: ZkClient, watch: Watch | None = None) -> ControllerNode | None:
    """Who is controller; None if nobody. The watch fires when that changes, in both cases."""
    if await zk.exists(documents.CONTROLLER, watch) is None:
        return None
    try:
        data, stat = await zk.get(documents.CONTROLLER)
    except NoNode:
        return None
    return ControllerNode(
        documents.parse(documents.ControllerDocument, data).brokerid, stat.version, stat.czxid, stat.owner
    )


async def elect(zk: ZkClient, broker: int, now_ms: int) -> ControllerTerm | None:
    """Try to become controller while there is none; None if somebody else is."""
    return await _claim(zk, broker, now_ms, [])


async def take_over(zk: ZkClient, broker: int, now_ms: int, dead: ControllerNode) -> ControllerTerm | None:
    """Replace a controller whose broker is dead, without waiting for the end of its session."""
    return await _claim(zk, broker, now_ms, [Delete(documents.CONTROLLER, dead.version)], dead)


async def _claim(
    zk: ZkClient, broker: int, now_ms: int, first: list[Op], dead: ControllerNode | None = None
) -> ControllerTerm | None:
    await create_if_absent(zk, documents.CONTROLLER_EPOCH, b"0")
    data, stat = await zk.get(documents.CONTROLLER_EPOCH)
    epoch = int(data) + 1
    if dead is not None and await read_controller(zk) != dead:
        return None  # read after the epoch: a newer controller would have raised it since
    me = documents.ControllerDocument(brokerid=broker, timestamp=str(now_ms))
    ops: list[Op] = [
        *first,
        Create(documents.CONTROLLER, me.data(), ephemeral=True),
        SetData(documents.CONTROLLER_EPOCH, str(epoch).encode(), stat.version),
    ]
    try:
        written = (await zk.multi(ops))[-1]
    except MultiFailed:
        return None
    except Unknown:
        return await _claimed(zk, epoch)
    assert isinstance(written, Stat)
    return ControllerTerm(epoch, written.version)


async def _claimed(zk: ZkClient, epoch: int) -> ControllerTerm | None:
    node = await read_controller(zk)
    data, stat = await zk.get(documents.CONTROLLER_EPOCH)
    if node is not None and node.owner == zk.session_id and int(data) == epoch:
        return ControllerTerm(epoch, stat.version)
    return None


async def fenced(zk: ZkClient, term: ControllerTerm, ops: Sequence[Op]) -> list[OpResult]:
    """A controller's write. Raises `ControllerMoved`, or `MultiFailed` with the results of `ops` only."""
    assert ops, "a write writes something"
    try:
        return (await zk.multi([Check(documents.CONTROLLER_EPOCH, term.fence), *ops]))[1:]
    except MultiFailed as failed:
        if failed.culprit == 0:
            raise ControllerMoved(f"controller epoch {term.epoch} has ended") from failed
        raise MultiFailed(failed.results[1:]) from failed


async def resign(zk: ZkClient, term: ControllerTerm) -> None:
    """Delete the controller's znode, if it is still ours."""
    node = await read_controller(zk)
    if node is None or node.owner != zk.session_id:
        return
    try:
        await fenced(zk, term, [Delete(documents.CONTROLLER, node.version)])
    except (MultiFailed, ControllerMoved):
        return


async def resign_without_term(zk: ZkClient) -> None:
    """Delete a controller's znode of our session that belongs to no term."""
    _, stat = await zk.get(documents.CONTROLLER_EPOCH)
    await resign(zk, ControllerTerm(0, stat.version))


# --- brokers ---------------------------------------------------------------------------------------


async def read_incarnation(zk: ZkClient, broker: int) -> tuple[documents.IncarnationDocument, frozenset[str]]:
    """How often this broker id has started (created at 0), and its failed log directories."""
    path = documents.incarnation_path(broker)
    await create_if_absent(zk, path, documents.IncarnationDocument().data())
    data, stat = await zk.get(path)
    document = documents.parse(documents.IncarnationDocument, data)
    assert document.incarnation == stat.version, "the incarnation must equal the version of its znode"
    return document, await failed_dirs(zk, broker)


async def failed_dirs(zk: ZkClient, broker: int) -> frozenset[str]:
    """The log directories (by UUID) that this broker has reported as failed."""
    try:
        return frozenset(await zk.children(documents.failed_dirs_path(broker)))
    except NoNode:
        return frozenset()


async def register_broker(
    zk: ZkClient,
    broker: int,
    registration: documents.RegistrationDocument,
    dirs: Sequence[str],
    checks: Sequence[Check] = (),
    begin: Callable[[int], Awaitable[None]] | None = None,
) -> None:
    """Register incarnation k, which the caller has already made durable on its disks, if `checks` hold.

    `begin` is called with k once no other session is registered under this id. Creates the ephemeral node,
    or replaces it if this session owns it. Raises `NodeExists` if another session owns it
    (`await_registration_end` waits for its end), `BadVersion` if another process of this broker id has
    started meanwhile, `CheckFailed` if a condition does not hold.
    """
    path, k = documents.broker_path(broker), registration.incarnation
    assert k > 0, "a broker's starts are counted from 1"
    counter = documents.IncarnationDocument(incarnation=k, dirs=dict.fromkeys(dirs, k))
    count = SetData(documents.incarnation_path(broker), counter.data(), k - 1)
    stat = await zk.exists(path)
    if stat is not None and stat.owner != zk.session_id:
        raise NodeExists(path)
    if begin is not None:
        await begin(k)
    mine: Op = Create(path, registration.data(), ephemeral=True)
    if stat is not None:
        mine = SetData(path, registration.data(), stat.version)
    try:
        await zk.multi([mine, count, *checks])
    except MultiFailed as failed:
        if await _is_registered(zk, broker, registration):
            return
        if failed.culprit > 1:
            raise CheckFailed(checks[failed.culprit - 2].path) from failed
        raise failed.results[failed.culprit] from failed
    except Unknown:
        if not await _is_registered(zk, broker, registration):
            raise


async def announce_leaving(zk: ZkClient, broker: int) -> None:
    """Mark our registration as shutting down, where any later controller reads it."""
    await _change_registration(zk, broker, lambda known: known.model_copy(update={"leaving": True}))


async def announce_move(zk: ZkClient, broker: int, endpoints: list[documents.Endpoint]) -> bool:
    """Write other addresses into our registration, which stays that of the same start of this broker. False
    if it is not ours. Raises `MultiFailed` if another write came first.
    """
    return await _change_registration(zk, broker, lambda known: known.moved(endpoints))


async def _change_registration(
    zk: ZkClient,
    broker: int,
    change: Callable[[documents.RegistrationDocument], documents.RegistrationDocument],
) -> bool:
    path = documents.broker_path(broker)
    data, stat = await zk.get(path)
    if stat.owner != zk.session_id:
        return False
    changed = change(documents.parse(documents.RegistrationDocument, data))
    await zk.multi([SetData(path, changed.data(), stat.version)])
    return True


class Joinable(NamedTuple):
    """What must still hold of a broker's registration while it joins an ISR."""

    version: int = -1
    counts_starts: bool = True  # else it is Apache Kafka's: it has no incarnation


ANYBODY = Joinable()


async def joinable(zk: ZkClient, broker: int, epoch: int) -> Joinable:
    """How the broker that fetched with this broker epoch is registered now.

    For a broker that is shutting down, not registered, or of Apache Kafka and registered anew since, it is a
    version that no node has. The write is tried all the same and fails: only that proves that no earlier
    attempt has landed. Kafka's brokers before 3.5 tell no epoch (-1).
    """
    try:
        data, stat = await zk.get(documents.broker_path(broker))
    except NoNode:
        return Joinable(NEVER)
    registration = documents.parse(documents.RegistrationDocument, data)
    is_former = registration.is_kafkas and epoch not in (-1, stat.czxid)
    version = NEVER if registration.leaving or is_former else stat.version
    return Joinable(version, not registration.is_kafkas)


async def await_registration_end(zk: ZkClient, broker: int, timeout_s: float) -> None:
    """Wait until another session's registration goes. Raises `DuplicateBroker` if it does not."""
    gone = asyncio.Event()
    try:
        async with asyncio.timeout(timeout_s):
            while await zk.exists(documents.broker_path(broker), lambda _: gone.set()) is not None:
                with suppress(TimeoutError):  # a watch is lost with its connection, so also poll
                    async with asyncio.timeout(REGISTRATION_POLL_S):
                        await gone.wait()
                gone.clear()
    except TimeoutError as error:
        raise DuplicateBroker(f"broker id {broker} is held by another session") from error


async def _is_registered(zk: ZkClient, broker: int, registration: documents.RegistrationDocument) -> bool:
    try:
        data, stat = await zk.get(documents.broker_path(broker))
    except NoNode:
        return False
    return stat.owner == zk.session_id and data == registration.data()


async def report_failed_dir(zk: ZkClient, broker: int, directory: str) -> None:
    """Record that a log directory of this broker has failed, also for later starts."""
    await create_if_absent(zk, documents.failed_dirs_path(broker), b"")
    await create_if_absent(zk, f"{documents.failed_dirs_path(broker)}/{directory}", b"")


async def forget_failed_dirs(zk: ZkClient, broker: int) -> None:
    """Delete the failed directories' nodes, after a registration as not intact: they no longer matter."""
    for name in sorted(await failed_dirs(zk, broker)):
        await delete_if_present(zk, f"{documents.failed_dirs_path(broker)}/{name}")


async def delete_if_present(zk: ZkClient, path: str) -> None:
    """Delete a node without children, whatever version it has now."""
    stat = await zk.exists(path)
    if stat is None:
        return
    try:
        await zk.multi([Delete(path, stat.version)])
    except MultiFailed as failed:
        if not isinstance(failed.results[0], NoNode):
            raise failed.results[0] from failed


# --- partition states ------------------------------------------------------------------------------


async def read_state(
    zk: ZkClient, partition: TopicPartition, watch: Watch | None = None
) -> tuple[documents.StateDocument, int]:
    """A partition's state and the version to expect in the next write. Raises NoNode, BadDocument."""
    data, stat = await zk.get(documents.state_path(partition), watch)
    return documents.parse(documents.StateDocument, data), stat.version


async def write_state(
    zk: ZkClient,
    partition: TopicPartition,
    document: documents.StateDocument,
    version: int,
    checks: Sequence[Check] = (),
) -> int:
    """The leader's write: the state first, then the checks. Returns the new version.

    Raises `StateMoved` (re-read), `CheckFailed` (the proposal has failed and cannot land later), or
    `Unknown`: then the same call may be repeated, as at most one attempt can succeed.
    """
    assert document.leader in document.isr, "a leader is in its ISR"
    try:
        results = await zk.multi(
            [SetData(documents.state_path(partition), document.data(), version), *checks]
        )
    except MultiFailed as failed:
        if isinstance(failed.results[0], BadVersion | NoNode):
            raise StateMoved(str(partition)) from failed
        raise CheckFailed(checks[failed.culprit - 1].path) from failed
    stat = results[0]
    assert isinstance(stat, Stat)
    return stat.version


async def write_states(zk: ZkClient, writes: Sequence[StateWrite], checks: Sequence[Check] = ()) -> list[int]:
    """The same for several partitions under the same checks: all or none. Returns the new versions.

    Raises `StateMoved` for one, which says nothing about the others; `CheckFailed` for all; or `Unknown`.
    """
    assert all(document.leader in document.isr for _, document, _ in writes), "a leader is in its ISR"
    assert len({partition for partition, _, _ in writes}) == len(writes), "each state is written once"
    states = [SetData(documents.state_path(q), document.data(), version) for q, document, version in writes]
    try:
        results = await zk.multi([*states, *checks])
    except MultiFailed as failed:
        if failed.culprit < len(writes):
            raise StateMoved(str(writes[failed.culprit][0])) from failed
        raise CheckFailed(checks[failed.culprit - len(writes)].path) from failed
    return [stat.version for stat in results[: len(writes)] if isinstance(stat, Stat)]


def member_checks(
    joining: int, joining_incarnation: int, me: int, my_incarnation: int, there: Joinable = ANYBODY
) -> list[Check]:
    """The conditions under which a leader may let a follower join its ISR."""
    assert joining != me, "a leader is in its ISR already"
    checks = [Check(documents.broker_path(joining), there.version)]
    if there.counts_starts:
        checks.append(Check(documents.incarnation_path(joining), joining_incarnation))
    return [*checks, *leader_checks(me, my_incarnation)]


def leader_checks(me: int, my_incarnation: int) -> list[Check]:
    """The condition for any write of a leader: it is still the latest start of its broker id."""
    return [Check(documents.incarnation_path(me), my_incarnation)]


async def notify_isr_change(zk: ZkClient, partitions: Sequence[TopicPartition]) -> None:
    """Tell the controller that these partitions have a new ISR. A repeated notification does no harm."""
    changed = [documents.ChangedPartition(topic=p.topic, partition=p.partition) for p in partitions]
    document = documents.IsrChangeDocument(partitions=changed)
    await zk.multi([Create(documents.ISR_CHANGE_PREFIX, document.data(), sequential=True)])


async def notify_log_dir_event(zk: ZkClient, broker: int) -> None:
    """Make the controller ask this broker which replicas it can serve. Repeating it does no harm."""
    document = documents.LogDirEventDocument(broker=broker)
    await zk.multi([Create(documents.LOG_DIR_EVENT_PREFIX, document.data(), sequential=True)])
