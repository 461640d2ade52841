"""ApiVersions 0-4: which requests this broker understands, in which versions.

v1 throttle time · v3 flexible, the client's name · v4 as v3. No features are sent: clients would change
their ways. A version that we do not know is answered in version 0 with error 35 and our own range
(table.py asks here).
"""

from typing import TYPE_CHECKING

from ...protocol.apis import APIS, Api
from ...protocol.errors import ApiError, ErrorCode
from ...protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from ..network.exchange import Exchange, HandlerEntry

if TYPE_CHECKING:
    from ..context import BrokerContext

OFFERED = [
    ApiVersion(api_key=api, min_version=spec.advertised[0], max_version=spec.advertised[-1])
    for api, spec in sorted(APIS.items())
    if spec.advertised
]
OURS = [row for row in OFFERED if row.api_key == Api.API_VERSIONS]
ANSWER = ApiVersionsResponse(api_keys=OFFERED)


def handle(broker: "BrokerContext", exchange: Exchange, request: ApiVersionsRequest) -> ApiVersionsResponse:
    """The same answer for everybody, on every listener."""
    return ANSWER


def refuse(request: ApiVersionsRequest, error: ApiError) -> ApiVersionsResponse:
    """Nothing but the code."""
    return ApiVersionsResponse(error_code=error.code, api_keys=OURS)


def unknown_version() -> ApiVersionsResponse:
    """For a client that is newer than we are: it asks again in a version that is named here."""
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=OURS)


HANDLERS = {Api.API_VERSIONS: HandlerEntry(handle, refuse)}
