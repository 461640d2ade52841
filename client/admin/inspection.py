"""Asks brokers about themselves, for `Admin`, by a request that only Strandline brokers know.

The request is not in ApiVersions, so its version is not negotiated. A broker that does not know it closes the
connection, so it uses one of its own.
Left to others: what the documents mean (docs/formats/inspection.md, cli/).
"""

from typing import Any

import msgpack

from ...protocol.errors import NetworkException, error_for
from ...protocol.messages.inspection import InspectRequest, InspectResponse
from ..network.cluster import Cluster

INSPECT_CHANNEL = "inspect"
VERSION = 0


async def inspect(cluster: Cluster, node: int, request: InspectRequest, deadline: float) -> dict[str, Any]:
    """The document with which broker `node` answers."""
    try:
        told: InspectResponse = await cluster.request(
            node, request, deadline, INSPECT_CHANNEL, version=VERSION
        )
    except OSError as error:
        raise NetworkException(f"broker {node} does not answer: {error}") from error
    if told.error_code:
        raise error_for(told.error_code, told.error_message)
    document: dict[str, Any] = msgpack.unpackb(told.document, strict_map_key=False)
    return document
