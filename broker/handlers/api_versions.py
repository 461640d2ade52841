"""ApiVersions 0-4: which requests this broker understands, in which versions.

v1 throttle time · v3 flexible, the client's name · v4 as v3. No features are sent: clients would behave
differently. SaslHandshake 0-1: there is no mechanism. It is not offered, so that clients which look for it
say what is so; those of Java and sarama ask all the same, and took a closed connection for a dead broker.
Left to others: the ranges, and the answer to a version that we do not know (network/api_ranges.py).
"""

from typing import TYPE_CHECKING

from ...protocol.apis import Api
from ...protocol.errors import ApiError, ErrorCode
from ...protocol.messages.api_versions import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from ..network.api_ranges import BETWEEN_BROKERS, OFFERED, refused
from ..network.exchange import Exchange, HandlerEntry

if TYPE_CHECKING:
    from ..context import BrokerContext

ANSWER = ApiVersionsResponse(api_keys=OFFERED)
ANSWER_TO_BROKERS = ApiVersionsResponse(api_keys=BETWEEN_BROKERS)


def handle(broker: "BrokerContext", exchange: Exchange, request: ApiVersionsRequest) -> ApiVersionsResponse:
    """What clients may ask; on the listener of brokers, also what brokers ask each other: those of Apache
    Kafka look here before they ask the controller.
    """
    return ANSWER_TO_BROKERS if exchange.internal else ANSWER


def refuse(request: ApiVersionsRequest, error: ApiError) -> ApiVersionsResponse:
    """Only the error code."""
    return refused(error.code)


def handshake(
    broker: "BrokerContext", exchange: Exchange, request: SaslHandshakeRequest
) -> SaslHandshakeResponse:
    """Clients take this for final: it is not a matter of names and passwords."""
    return SaslHandshakeResponse(error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=[])


def refuse_handshake(request: SaslHandshakeRequest, error: ApiError) -> SaslHandshakeResponse:
    """Only the error code."""
    return SaslHandshakeResponse(error_code=error.code, mechanisms=[])


HANDLERS = {
    Api.API_VERSIONS: HandlerEntry(handle, refuse),
    Api.SASL_HANDSHAKE: HandlerEntry(handshake, refuse_handshake),
}
