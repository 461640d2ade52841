"""ApiVersions 0-4: which requests this broker understands, in which versions.

v1 throttle time · v3 flexible, the client's name · v4 as v3. No features are sent: clients would behave
differently.
Left to others: the ranges, and the answer to a version that we do not know (network/api_ranges.py).
"""

from typing import TYPE_CHECKING

from ...protocol.apis import Api
from ...protocol.errors import ApiError
from ...protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
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


HANDLERS = {Api.API_VERSIONS: HandlerEntry(handle, refuse)}
