"""Which requests this broker understands, in which versions: the content of an ApiVersions response.

If we do not know the version of an ApiVersions request, we answer in version 0 with error 35
(UNSUPPORTED_VERSION) and our own range, so that a newer client asks again in a version we know.
"""

from ...protocol.apis import APIS, Api
from ...protocol.errors import ErrorCode
from ...protocol.messages.api_versions import ApiVersion, ApiVersionsResponse

OFFERED = [
    ApiVersion(api_key=api, min_version=spec.advertised[0], max_version=spec.advertised[-1])
    for api, spec in sorted(APIS.items())
    if spec.advertised
]
BETWEEN_BROKERS = sorted(
    [
        *OFFERED,
        *(
            ApiVersion(api_key=api, min_version=spec.internal[0], max_version=spec.internal[-1])
            for api, spec in APIS.items()
            if spec.internal and not spec.served
        ),
    ],
    key=lambda row: row.api_key,
)
OURS = [row for row in OFFERED if row.api_key == Api.API_VERSIONS]


def refused(code: int) -> ApiVersionsResponse:
    """Only the error code, and the versions of ApiVersions that we serve."""
    return ApiVersionsResponse(error_code=code, api_keys=OURS)


def unknown_version() -> ApiVersionsResponse:
    """The answer to a client that is newer than we are."""
    return refused(ErrorCode.UNSUPPORTED_VERSION)
