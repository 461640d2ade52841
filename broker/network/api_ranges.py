"""Which requests this broker understands, in which versions: what ApiVersions answers.

A version of ApiVersions itself that we do not know is answered in version 0 with error 35 and our own range,
so that a newer client asks again in a version that is named there.
"""

from ...protocol.apis import APIS, Api
from ...protocol.errors import ErrorCode
from ...protocol.messages.api_versions import ApiVersion, ApiVersionsResponse

OFFERED = [
    ApiVersion(api_key=api, min_version=spec.advertised[0], max_version=spec.advertised[-1])
    for api, spec in sorted(APIS.items())
    if spec.advertised
]
OURS = [row for row in OFFERED if row.api_key == Api.API_VERSIONS]


def refused(code: int) -> ApiVersionsResponse:
    """Nothing but the code, and in which versions this can be asked."""
    return ApiVersionsResponse(error_code=code, api_keys=OURS)


def unknown_version() -> ApiVersionsResponse:
    """For a client that is newer than we are."""
    return refused(ErrorCode.UNSUPPORTED_VERSION)
