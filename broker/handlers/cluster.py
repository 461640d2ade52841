"""DescribeCluster 0-1: the brokers, and which of them is the controller.

v1 endpoint type
"""

from typing import TYPE_CHECKING

from ...protocol.apis import Api
from ...protocol.errors import ApiError, ErrorCode, error_for
from ...protocol.messages.cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from ...protocol.messages.metadata import UNKNOWN_OPERATIONS
from ..network.exchange import Exchange, HandlerEntry
from .metadata import CLUSTER_OPERATIONS, live_brokers

if TYPE_CHECKING:
    from ..context import BrokerContext

BROKERS_ENDPOINT, CONTROLLERS_ENDPOINT = 1, 2


def describe_cluster(
    broker: "BrokerContext", exchange: Exchange, request: DescribeClusterRequest
) -> DescribeClusterResponse:
    """The same as Metadata, without topics."""
    if request.endpoint_type == CONTROLLERS_ENDPOINT:
        raise error_for(ErrorCode.MISMATCHED_ENDPOINT_TYPE, "this is a broker's endpoint: expected type 1")
    if request.endpoint_type != BROKERS_ENDPOINT:
        raise error_for(
            ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            f"there is no endpoint of type {request.endpoint_type}: expected 1, brokers",
        )
    picture = broker.metadata
    return DescribeClusterResponse(
        cluster_id=broker.cluster_id,
        controller_id=picture.controller_id,
        brokers=[
            DescribeClusterBroker(broker_id=b.node_id, host=b.host, port=b.port, rack=b.rack)
            for b in live_brokers(picture, exchange.listener.name)
        ],
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else UNKNOWN_OPERATIONS
        ),
    )


def refuse_describe_cluster(request: DescribeClusterRequest, error: ApiError) -> DescribeClusterResponse:
    """Nothing but the error."""
    return DescribeClusterResponse(error_code=error.code, error_message=error.message, cluster_id="")


HANDLERS = {
    Api.DESCRIBE_CLUSTER: HandlerEntry(describe_cluster, refuse_describe_cluster),
}
