"""Registers the broker in ZooKeeper with what it can prove to hold (docs/replication.md, start-up).

Log directories are locked and recovered. The new incarnation (the number of this start) is written to the
disks first, then to ZooKeeper, in one multi with the ephemeral node. A session that a killed predecessor left
is resumed and closed. After a session expires, the broker registers again with the next incarnation; its data
is as intact as before. Other addresses (advertised.listeners) are written into the registration that there
is: the incarnation goes on, for nothing has happened to the data.
Left to others: the verdict (storage/directories/intact.py), the znodes (zookeeper/znodes.py), when to
start (node.py).
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from random import Random
from typing import Protocol, TypeVar, runtime_checkable
from uuid import UUID

import structlog

from ..base.types import Clock, Incarnation, TopicPartition
from ..storage.directories.incarnation import Incarnations, WrongDirectory
from ..storage.directories.intact import Intactness
from ..storage.directories.log_manager import AmbiguousDirectory, Logs, Obstructed, OldFormat
from ..storage.directories.workers import Crew, one_by_one
from ..storage.disk import DirectoryLocked, Disk, DiskError
from ..storage.recovery.failure_scope import DISK_FAILS
from ..zookeeper import documents, znodes
from ..zookeeper.client import (
    BadVersion,
    MultiFailed,
    NodeExists,
    NoNode,
    SessionEvent,
    SessionState,
    Unknown,
    ZkClient,
    ZkError,
    ZkUnreachable,
)
from ..zookeeper.cluster_profile import Agreement, ProfileDiffers, agree, read_agreement
from .config.addresses import ListenerAddress
from .config.broker import BrokerConfig
from .errors import StartFailed

logger = structlog.get_logger(__name__)

T = TypeVar("T")
Credentials = tuple[int, bytes]
ZkClientFactory = Callable[[Credentials | None], ZkClient]
RETRY_S = 0.1
LEAVE_S_MAX = 1.0
DISK_RETRY_S = 1.0
AGREE_AGAIN_S = 1.0
Judge = Callable[[documents.IncarnationDocument, frozenset[str]], Intactness]
SESSIONS_WAITED = 2  # how long to wait while another session holds our id, in session timeouts


@runtime_checkable
class HasCredentials(Protocol):
    """A ZooKeeper client whose session the next start of this broker can resume."""

    @property
    def credentials(self) -> Credentials | None:
        """Id and password of the session."""
        ...


def lock_directories(config: BrokerConfig, disk: Disk, boot_id: str) -> Incarnations:
    """Lock the log directories. Raises StartFailed if they are taken or unusable. Blocking."""
    try:
        return Incarnations.load(disk, config.directories, boot_id)
    except DirectoryLocked as error:
        raise StartFailed(
            f"log directory {config.log_dirs} is locked by another running broker ({error}): "
            "stop it, or give this broker its own `log.dirs`"
        ) from error
    except (OSError, DiskError) as error:
        raise StartFailed(
            f"a log directory of {config.log_dirs} cannot be used: {error}. Make it writable, or "
            "change `log.dirs`"
        ) from error


async def connect(config: BrokerConfig, factory: ZkClientFactory, incarnations: Incarnations) -> ZkClient:
    """Open a session, after ending the one that a killed predecessor left."""
    previous = incarnations.previous_session()
    zk = factory(None if previous is None else previous.client_id)
    try:
        await zk.start()
    except ZkError as error:
        raise StartFailed(unreachable(config, error)) from error
    try:
        await patiently(config, lambda: znodes.ensure_paths(zk))
    except ZkError as error:
        await zk.close()
        raise StartFailed(unreachable(config, error)) from error
    return zk


async def disconnect(zk: ZkClient, incarnations: Incarnations) -> None:
    """End the session. If ZooKeeper was reached, forget it; else the next start has to end it."""
    is_heard = zk.connected
    await zk.close()
    if is_heard:
        try:
            incarnations.forget_session()
        except OSError as error:  # the next start finds that it has ended
            logger.warning("session_credentials_not_removed", reason=str(error))


async def patiently(config: BrokerConfig, deed: Callable[[], Awaitable[T]]) -> T:
    """Repeat `deed`, which must be idempotent, until ZooKeeper answers or the time for a start is over.
    Raises ZkError.
    """
    deadline = asyncio.get_running_loop().time() + config.zookeeper.connection_timeout_ms / 1000
    while True:
        try:
            return await deed()
        except Unknown as error:
            if asyncio.get_running_loop().time() >= deadline:
                raise
            logger.info("zookeeper_retried", reason=str(error))
            await asyncio.sleep(RETRY_S)


def unreachable(config: BrokerConfig, error: ZkError) -> str:
    """The message that ZooKeeper cannot be reached, and the remedy."""
    reason = "did not answer" if isinstance(error, ZkUnreachable) else f"failed ({error})"
    return (
        f"ZooKeeper at {config.zookeeper.connect} {reason} within zookeeper.connection.timeout.ms "
        f"= {config.zookeeper.connection_timeout_ms}: start it, or correct `zookeeper.connect`"
    )


def cannot_begin(error: DiskError) -> None:
    """A broker that cannot write its incarnation to disk does not start."""
    raise StartFailed(f"{error}. Free some space, make it writable, or remove the directory from `log.dirs`")


class Registration:
    """This broker's registration in ZooKeeper, across sessions."""

    def __init__(
        self,
        config: BrokerConfig,
        incarnations: Incarnations,
        zk: ZkClient,
        clock: Clock,
        random: Random,
        begin: Callable[[int], Awaitable[None]],
    ) -> None:
        """`begin` is called with each incarnation just before it is registered, and may use ZooKeeper."""
        self.cluster_id = ""
        self._config = config
        self._incarnations = incarnations
        self._zk = zk
        self._clock = clock
        self._random = random
        self._begin = begin
        self._agreement: Agreement
        self._verdict: Intactness
        self._endpoints: Sequence[ListenerAddress] = ()
        self._turn = asyncio.Lock()
        self.on_disk_failed: Callable[[DiskError], None] = cannot_begin  # replaced while the broker runs
        self._leaving = False
        self._born = -1  # the first incarnation of this process
        self._registered_in = -1  # generation of the session of the last registration

    @property
    def incarnation(self) -> Incarnation:
        """The number of this start or session of the broker id."""
        return Incarnation(self._verdict.k)

    def vouches(self, partition: TopicPartition, joined: int) -> bool:
        """Whether this start claims to hold all that the replica held when it joined an ISR, in an earlier
        start: incarnation `joined`.
        """
        return self._verdict.intact_for(partition) <= joined < self._born

    async def identify(self) -> None:
        """Check that the directories belong to this broker and cluster. The first broker makes its id."""
        profile, random_bytes = self._config.semantics_profile, self._random.randbytes(16)
        try:
            self._agreement = await patiently(
                self._config, lambda: read_agreement(self._zk, random_bytes, profile)
            )
            if self._agreement.document.profile != profile:
                await self._agree()
        except ZkError as error:
            raise StartFailed(unreachable(self._config, error)) from error
        self.cluster_id = self._agreement.document.id
        try:
            self._incarnations.identify(self._config.broker_id, self.cluster_id, self._new_id)
        except WrongDirectory as error:
            raise StartFailed(f"{error}: give this broker its own directories in `log.dirs`") from error
        except OSError as error:
            raise StartFailed(f"cannot write meta.properties: {error}") from error

    def open_logs(self, disk: Disk, clock: Clock, crew: Crew = one_by_one) -> Logs:
        """Open and recover all logs. What recovery is about to drop is noted first. Blocking."""
        incarnations = self._incarnations
        try:
            logs = Logs.open(
                self._config.directories,
                disk,
                self._config.storage,
                clock,
                clean=incarnations.clean,
                before_loss=incarnations.note_doubt,
                offline=incarnations.offline,
                same_boot=incarnations.same_boot,
                doubts=incarnations.remembered().doubts,
                crew=crew,
            )
        except (AmbiguousDirectory, OldFormat) as error:
            incarnations.put_markers_back()  # no log has been touched
            raise StartFailed(str(error)) from error
        except Obstructed as error:
            raise StartFailed(f"{error}: move it out of the log directory") from error
        except (OSError, DiskError) as error:
            self._note_failure(error)
            raise StartFailed(f"cannot open the logs: {error}") from error
        for directory, reason in logs.places.offline.items():
            self._incarnations.give_up(directory, OSError(reason))
            logger.error("log_dir_offline", directory=directory, reason=reason)
        return logs

    def _note_failure(self, error: OSError | DiskError) -> None:
        """The last directory's disk failed: the next start vouches for nothing, even if it can read again."""
        cause = error.error if isinstance(error, DiskError) else error
        if cause.errno in DISK_FAILS:
            with suppress(OSError):  # where this cannot be written, the next start fails in the same way
                self._incarnations.note_doubt(None, str(error))

    async def register(self, endpoints: Sequence[ListenerAddress]) -> None:
        """Write this incarnation to the disks, then register it. Raises StartFailed if the id is taken."""
        self._endpoints = endpoints
        zookeeper = self._config.zookeeper
        patience_ms = SESSIONS_WAITED * zookeeper.session_timeout_ms + zookeeper.connection_timeout_ms
        try:
            async with asyncio.timeout(patience_ms / 1000):
                await self._settle(self._judge)
                self._born = self._verdict.k
                if not self._verdict.intact:
                    await znodes.forget_failed_dirs(self._zk, self._config.broker_id)
        except (ZkError, TimeoutError) as error:
            reason = error if isinstance(error, ZkError) else ZkError("no answer")
            raise StartFailed(unreachable(self._config, reason)) from error
        verdict = self._verdict
        logger.info(
            "broker_registered", incarnation=verdict.k, intact=verdict.intact, reasons=verdict.reasons
        )

    async def register_again(self, doubts: Collection[TopicPartition] = ()) -> None:
        """Register after the session has expired: next incarnation, as intact as before. Waits for ZooKeeper.

        With `doubts`: damage was found in these replicas at run time and noted on the disks. What they held
        when they joined an ISR proves nothing any more; later controllers read that here, too.
        If sessions follow each other fast, the registration for one may land in the next, which then needs
        none. One call at a time: two would take each other for another broker.
        """
        async with self._turn:
            if not doubts and self._registered_in == self._zk.generation:
                return
            before = self._verdict
            await self._settle(
                lambda document, _: before.again(document.incarnation + 1, doubts), keep_notes=True
            )
            doubted = sorted(map(str, doubts))
            logger.info("broker_reregistered", incarnation=self._verdict.k, doubts=doubted)

    async def move(self, endpoints: Sequence[ListenerAddress]) -> None:
        """Have clients and brokers come to these addresses. If the session has ended, the registration of
        the next one says so.
        """
        async with self._turn:
            if tuple(endpoints) == tuple(self._endpoints):
                return
            self._endpoints = endpoints
            me, places = self._config.broker_id, [*map(_endpoint, endpoints)]
            while self._zk.generation == self._registered_in:
                try:
                    is_ours = await znodes.announce_move(self._zk, me, places)
                except (Unknown, MultiFailed) as error:
                    logger.info("move_retried", reason=repr(error))
                    await asyncio.sleep(RETRY_S)
                except NoNode as error:  # the session ends
                    logger.warning("move_not_announced", reason=repr(error))
                    return
                else:
                    told = [f"{each.listener}://{each.host}:{each.port}" for each in endpoints]
                    logger.info("broker_moved", endpoints=told, announced=is_ours)
                    return

    async def leave(self) -> None:
        """Mark the registration as shutting down. Without ZooKeeper, skip it."""
        self._leaving = True
        if not self._zk.connected:
            return
        try:
            async with asyncio.timeout(LEAVE_S_MAX), self._turn:
                await znodes.announce_leaving(self._zk, self._config.broker_id)
        except (ZkError, TimeoutError) as error:
            logger.info("shutdown_not_announced", reason=repr(error))

    def _judge(self, document: documents.IncarnationDocument, failed: frozenset[str]) -> Intactness:
        return self._incarnations.verdict(document.incarnation, document.dirs, failed_dirs=failed)

    async def _settle(self, judge: Judge, keep_notes: bool = False) -> None:
        """Judge what this start holds and register it; repeat until the write is known to have landed.

        If an answer is lost, the incarnation may have been counted up: it is read again, and the next attempt
        is one later. Another broker with our id shows by the ephemeral node that it holds.
        """
        while True:
            generation = self._zk.generation
            try:
                read = await znodes.read_incarnation(self._zk, self._config.broker_id)
                verdict = judge(*read)
                await self._announce(verdict, keep_notes)
            except (Unknown, BadVersion) as error:
                logger.warning("registration_retried", reason=f"{type(error).__name__} {error}")
                await asyncio.sleep(RETRY_S)
            except DiskError as error:
                logger.warning("registration_waits_for_disk", reason=str(error))
                self.on_disk_failed(error)
                await asyncio.sleep(DISK_RETRY_S)
            except NodeExists:
                await self._wait_for_the_other()
            except znodes.CheckFailed:
                await self._agree()
            else:
                self._verdict = verdict
                self._registered_in = generation
                return

    async def _announce(self, verdict: Intactness, keep_notes: bool) -> None:
        """Write the disks first, in a thread: the broker may be serving requests, and a disk may hang."""
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, self._remember, verdict, keep_notes)
        registration = documents.RegistrationDocument.of(
            [*map(_endpoint, self._endpoints)],
            self._clock.wall_ms(),
            verdict.k,
            verdict.intact_since,
            verdict.intact_since_of,
            self._config.broker_rack,
            self._leaving,
            self._config.semantics_profile,
        )
        dirs = sorted(self._incarnations.dir_ids.values())
        checks = [self._agreement.unchanged]
        me = self._config.broker_id
        await znodes.register_broker(self._zk, me, registration, dirs, checks, self._begin)

    def _remember(self, verdict: Intactness, keep_notes: bool) -> None:
        self._save_session()
        self._incarnations.write(verdict, self._config.storage.flush_before_ack, keep_notes)

    async def _agree(self) -> None:
        """Wait, up to a session timeout, until nobody is registered under another semantics profile."""
        me, profile, loop = self._config.broker_id, self._config.semantics_profile, asyncio.get_running_loop()
        wait_ms = self._config.zookeeper.session_timeout_ms
        deadline = loop.time() + wait_ms / 1000
        while True:
            try:
                self._agreement = await agree(self._zk, me, profile)
                return
            except ProfileDiffers as differs:
                if loop.time() >= deadline:
                    raise StartFailed(
                        f"strandline.semantics.profile = {profile}, but {differs}, and all "
                        "brokers of a cluster must have the same profile: start this one with "
                        f"{differs.profile}, or stop all of them and start them with {profile}"
                    ) from differs
                logger.warning(
                    "profile_mismatch", broker=differs.broker, profile=differs.profile, waiting_ms=wait_ms
                )
                await asyncio.sleep(AGREE_AGAIN_S)

    async def _wait_for_the_other(self) -> None:
        me, wait_ms = self._config.broker_id, SESSIONS_WAITED * self._config.zookeeper.session_timeout_ms
        logger.warning("broker_id_taken", broker=me, waiting_ms=wait_ms)
        try:
            await znodes.await_registration_end(self._zk, me, wait_ms / 1000)
        except znodes.DuplicateBroker as error:
            raise StartFailed(
                f"broker.id {me} is registered by another running broker: stop it, or choose another id"
            ) from error

    def _save_session(self) -> None:
        credentials = self._zk.credentials if isinstance(self._zk, HasCredentials) else None
        if credentials is not None:
            try:
                self._incarnations.save_session(*credentials)
            except OSError as error:  # the next start waits until this session expires
                logger.warning("session_credentials_not_saved", reason=str(error))

    def _new_id(self) -> UUID:
        return UUID(bytes=self._random.randbytes(16), version=4)


def _endpoint(told: ListenerAddress) -> documents.Endpoint:
    return documents.Endpoint(told.listener, told.host, told.port)


class SessionKeeper:
    """Calls `again` when a new session has replaced an expired one, so that the broker registers again."""

    def __init__(self, zk: ZkClient, again: Callable[[], None]) -> None:
        self._zk = zk
        self._again = again
        self._generation = zk.generation
        self._stop = zk.listen(self._changed)

    def _changed(self, event: SessionEvent) -> None:
        if event.state is SessionState.CONNECTED and event.generation > self._generation:
            self._generation = event.generation
            self._again()

    def stop(self) -> None:
        """Stop listening."""
        self._stop()
