"""Changes that clients make to the settings of topics, brokers and groups: checked, written, announced.

A resource is read, changed in memory, checked, and written with the version that was read. The same write has
the notification that makes every broker look (`/config/changes`) and the controller's fence. So an invalid
value never reaches ZooKeeper, and two clients cannot undo each other's changes unseen. For a topic the answer
waits until every live broker has been told, or for a short time; by then the settings are written.
Settings of a group do not wait for such a group, nor go with it: removing the last one removes their znode.
Left to others: what an alteration does (config_changes.py), which values are good (`Catalogue`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress

import structlog

from ...protocol.decoder import TEXT_MAX
from ...protocol.errors import (
    ApiError,
    InvalidConfig,
    InvalidRequest,
    NotController,
    UnknownTopicOrPartition,
)
from ...protocol.messages.config_changes import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    AlteredResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ...zookeeper import documents
from ...zookeeper.client import Check, Create, Delete, MultiFailed, Op, SetData, Unknown
from ...zookeeper.config_nodes import Overrides, fits, read_overrides
from ..planning.state import ClusterState
from .config_changes import Alteration, Catalogue, Kind, alteration_of, repeated_resources
from .deadlines import by, deadline_in
from .node_sizes import check_settings
from .reach import Reach

logger = structlog.get_logger(__name__)

WRITE_MS = 10_000
TELL_MS = 5_000
RETRY_S = 0.1
INT32_MAX = (1 << 31) - 1
GROUPS_MAX = 10_000  # with settings of their own
GROUP_NAME_MAX = 1_000  # bytes, percent-encoded

Request = AlterConfigsRequest | IncrementalAlterConfigsRequest


class ConfigRequests:
    """Changes of settings during one term. Every method may raise `NotController`."""

    def __init__(self, reach: Reach, catalogue: Catalogue) -> None:
        self._reach = reach
        self._catalogue = catalogue

    async def alter(self, request: AlterConfigsRequest) -> AlterConfigsResponse:
        """Each resource gets exactly these settings."""
        return AlterConfigsResponse(responses=await self._altered(request))

    async def alter_incrementally(
        self, request: IncrementalAlterConfigsRequest
    ) -> IncrementalAlterConfigsResponse:
        """Each resource gets these changes."""
        return IncrementalAlterConfigsResponse(responses=await self._altered(request))

    async def _altered(self, request: Request) -> list[AlteredResource]:
        repeated = repeated_resources(request)
        results = []
        for (
            asked
        ) in request.resources:  # in their order: the last one for all brokers, say, may follow others
            code, message = 0, None
            try:
                if (asked.resource_type, asked.resource_name) in repeated:
                    raise InvalidRequest("the resource is in the request more than once")
                await self._carry_out(alteration_of(asked), request.validate_only)
            except NotController:
                raise
            except ApiError as error:
                code, message = int(error.code), error.message
            results.append(
                AlteredResource(
                    error_code=code,
                    error_message=message,
                    resource_type=asked.resource_type,
                    resource_name=asked.resource_name,
                )
            )
        return results

    async def _carry_out(self, wanted: Alteration, validate_only: bool) -> None:
        await self._check_resource(wanted)
        await by(deadline_in(WRITE_MS), self._write(wanted, validate_only))
        if not validate_only and wanted.kind == Kind.TOPIC:
            with suppress(ApiError):  # it is written: slow brokers will hear of it later
                await by(deadline_in(TELL_MS), self._told(wanted.name))

    async def _check_resource(self, wanted: Alteration) -> None:
        """Raises the client's error if there is no such resource."""
        if wanted.kind == Kind.TOPIC:
            if wanted.name not in self._reach.state().topics or wanted.name in self._reach.state().deletions:
                raise UnknownTopicOrPartition(f"topic {wanted.name!r} does not exist")
        elif wanted.kind == Kind.BROKER:
            if wanted.name and not _is_broker_id(wanted.name):
                raise InvalidRequest(
                    f"broker {wanted.name!r}: expected a broker id, or an empty name for all brokers"
                )
            await by(deadline_in(WRITE_MS), self._check_broker(wanted.name))
        elif wanted.kind == Kind.GROUP:
            _check_group(wanted.name)
        else:
            raise InvalidRequest(
                f"resource type {wanted.kind} has no configs: expected 2 (topic), 4 (broker) or 32 (group)"
            )

    async def _check_broker(self, name: str) -> None:
        """Refuse ids of brokers that never existed: a typo must not apply to a broker added one day."""
        if not name or int(name) in self._reach.state().brokers:
            return
        if await self._reach.zk.exists(documents.incarnation_path(int(name))) is None:
            raise InvalidRequest(f"this cluster has never had a broker {name}")

    async def _write(self, wanted: Alteration, validate_only: bool) -> None:
        while True:
            try:
                found = await read_overrides(self._reach.zk, wanted.path, whole=True)
                settings = self._settings(wanted, found.names)
                if wanted.kind == Kind.GROUP and settings and not found.exists:
                    await self._check_room()
                if not validate_only and (settings or found.exists or wanted.kind != Kind.GROUP):
                    await self._reach.write(ops_of(wanted, found, settings))
                    logger.info("configs_altered", entity=wanted.entity, settings=wanted.changed)
                return
            except Unknown:  # it may have landed, or may yet: the same again changes nothing more
                await asyncio.sleep(RETRY_S)
            except MultiFailed:  # another client was quicker, or the topic is gone
                await self._check_resource(wanted)

    async def _check_room(self) -> None:
        """Raises `InvalidRequest` if groups with settings are too many: brokers keep them all in mind."""
        if len(await self._reach.zk.children(documents.GROUP_CONFIGS)) >= GROUPS_MAX:
            raise InvalidRequest(f"{GROUPS_MAX} groups have settings already, the limit of a cluster")

    def _settings(self, wanted: Alteration, found: Mapping[str, str]) -> dict[str, str]:
        registered = {id: broker.endpoints for id, broker in self._reach.state().brokers.items()}
        return settings_of(self._catalogue, wanted, found, registered)

    async def _told(self, topic: str) -> None:
        """Wait until all live brokers have been told what the znode holds now."""
        written = await read_overrides(self._reach.zk, documents.topic_config_path(topic))
        self._reach.configured([topic])

        def is_known(state: ClusterState) -> bool:
            known = state.topics.get(topic)
            return known is None or known.configs_at >= written.edition

        await self._reach.until(is_known)
        await self._reach.all_told()


def _is_broker_id(name: str) -> bool:
    """Whether a broker goes by this name: with a zero before it, no broker would ever read its settings."""
    is_short = len(name) <= len(str(INT32_MAX))  # int() refuses thousands of digits
    return is_short and name.isascii() and name.isdigit() and name == str(int(name))


def _check_group(name: str) -> None:
    if not name:
        raise InvalidRequest(
            "a group needs a name: there are no settings for all groups, only the brokers' own"
        )
    if len(documents.quoted(name)) > GROUP_NAME_MAX:
        raise InvalidRequest(
            f"the name of the group is longer than {GROUP_NAME_MAX} bytes when percent-encoded"
        )


def settings_of(
    catalogue: Catalogue,
    wanted: Alteration,
    found: Mapping[str, str],
    registered: Mapping[int, Sequence[documents.Endpoint]],
) -> dict[str, str]:
    """What the resource has then, for which `registered` tells where brokers are reached. Raises ApiError."""
    kind = Kind(wanted.kind)
    settings = wanted.applied_to(found, lambda name: catalogue.list_default(kind, name))
    for name in wanted.changed:  # a list that grows, though no single request is that long
        if not fits(settings[name]):
            raise InvalidConfig(f"{name} would be longer than {TEXT_MAX} bytes: nobody could be told of it")
    catalogue.check(kind, wanted.name, settings, wanted.changed)
    if settings != found:
        check_settings(settings)
    if kind is Kind.BROKER and wanted.name:
        changed = {name: settings[name] for name in wanted.changed}
        catalogue.check_addresses(int(wanted.name), changed, registered)
    return settings


def ops_of(wanted: Alteration, found: Overrides, settings: Mapping[str, str]) -> list[Op]:
    """The write, and the notification."""
    data = documents.ConfigDocument(config=dict(settings)).data()
    write: Op = SetData(wanted.path, data, found.version) if found.exists else Create(wanted.path, data)
    if wanted.kind == Kind.GROUP and not settings:
        write = Delete(wanted.path, found.version)
    notice = documents.ConfigChangeDocument(entity_path=wanted.entity).data()
    ops: list[Op] = [write, Create(documents.CONFIG_CHANGE_PREFIX, notice, sequential=True)]
    if wanted.kind == Kind.TOPIC:
        ops.append(Check(documents.topic_path(wanted.name), -1))  # settings do not outlive their topic
    return ops
