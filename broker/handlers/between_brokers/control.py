"""The controller's commands: LeaderAndIsr 5-7, StopReplica 3-4, UpdateMetadata 7-8; between brokers only.

Left to others: fencing stale commands (roles/controller_fence.py), roles (roles/leader_and_isr.py), the
picture (metadata/cache.py).
"""

from typing import TYPE_CHECKING

from ....base.types import BrokerId
from ....protocol.apis import Api
from ....protocol.errors import ApiError
from ....protocol.messages.control import (
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    StopReplicaRequest,
    StopReplicaResponse,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)
from ...network.exchange import Exchange, HandlerEntry

if TYPE_CHECKING:
    from ...context import BrokerContext


async def handle_leader_and_isr(
    broker: "BrokerContext", exchange: Exchange, request: LeaderAndIsrRequest
) -> LeaderAndIsrResponse:
    """Become leader or follower of each partition, as told."""
    return await broker.roles.obey_leader_and_isr(request)


async def handle_stop_replica(
    broker: "BrokerContext", exchange: Exchange, request: StopReplicaRequest
) -> StopReplicaResponse:
    """Stop replicas, and delete those that are to be deleted."""
    return await broker.roles.stop_replicas(request)


def handle_update_metadata(
    broker: "BrokerContext", exchange: Exchange, request: UpdateMetadataRequest
) -> UpdateMetadataResponse:
    """Replace the picture of the cluster by a new one."""
    if refused := broker.roles.admit(request):
        return UpdateMetadataResponse(error_code=refused)
    before, by_kafkas = broker.metadata, broker.roles.gate.is_kafkas
    broker.cache.picture = picture = before.updated(request, by_kafkas)
    away = {BrokerId(one.id) for one in request.live_brokers if one.is_leaving or one.is_suspected}
    broker.shared.brokers_are(frozenset(map(BrokerId, picture.brokers)), frozenset(away))
    listener = broker.config.inter_broker_listener
    addresses = ((BrokerId(b), picture.address(b, listener)) for b in picture.brokers)
    broker.fetchers.know((b, a.host, a.port) for b, a in addresses if a is not None)
    for topic in request.topic_states:
        broker.settings.told(topic, by_kafkas)
    broker.settings.forget_others(picture.topics.keys())
    if gone := picture.gone_since(before, request):
        broker.groups.partitions_deleted(gone)
    broker.held.pictured(before, request)
    return UpdateMetadataResponse()


def refuse_leader_and_isr(request: LeaderAndIsrRequest, error: ApiError) -> LeaderAndIsrResponse:
    """The whole command is refused."""
    return LeaderAndIsrResponse(error_code=error.code)


def refuse_stop_replica(request: StopReplicaRequest, error: ApiError) -> StopReplicaResponse:
    """The whole command is refused."""
    return StopReplicaResponse(error_code=error.code)


def refuse_update_metadata(request: UpdateMetadataRequest, error: ApiError) -> UpdateMetadataResponse:
    """The whole command is refused."""
    return UpdateMetadataResponse(error_code=error.code)


HANDLERS = {
    Api.LEADER_AND_ISR: HandlerEntry(handle_leader_and_isr, refuse_leader_and_isr),
    Api.STOP_REPLICA: HandlerEntry(handle_stop_replica, refuse_stop_replica),
    Api.UPDATE_METADATA: HandlerEntry(handle_update_metadata, refuse_update_metadata),
}
