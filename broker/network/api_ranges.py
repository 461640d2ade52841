"""Which requests this broker understands, in which versions: the content of an ApiVersions response.

If we do not know the version of an ApiVersions request, we answer in version 0 with error 35
(UNSUPPORTED_VERSION) and our own range, so that a newer client asks again in a version we know.
"""

from ...protocol.apis import APIS, Api, ApiSpec
from ...protocol.errors import ErrorCode
from ...protocol.messages.api_versions import ApiVersion, ApiVersionsResponse

OFFERED = [
    ApiVersion(api_key=api, min_version=spec.advertised[0], max_version=spec.advertised[-1])
    for api, spec in sorted(APIS.items())
    if spec.advertised
]


def _between_brokers(spec: ApiSpec) -> ApiVersion:
    """What clients may ask, and what only brokers do. By the latest version of AddPartitionsToTxn a leader of
    Kafka's sees whether a coordinator can be asked about a transaction; if not, it asks nobody.
    """
    ranges = [each for each in (spec.advertised, spec.internal) if each]
    first, last = min(each[0] for each in ranges), max(each[-1] for each in ranges)
    return ApiVersion(api_key=spec.api, min_version=first, max_version=last)


BETWEEN_BROKERS = [
    _between_brokers(spec)
    for _, spec in sorted(APIS.items())
    if spec.advertised or not spec.served  # else it is for our own tools
]
OURS = [row for row in OFFERED if row.api_key == Api.API_VERSIONS]


def refused(code: int) -> ApiVersionsResponse:
    """Only the error code, and the versions of ApiVersions that we serve."""
    return ApiVersionsResponse(error_code=code, api_keys=OURS)


def unknown_version() -> ApiVersionsResponse:
    """The answer to a client that is newer than we are."""
    return refused(ErrorCode.UNSUPPORTED_VERSION)
