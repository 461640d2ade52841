"""The header of a request, versions 1 and 2, and of a response, versions 0 and 1.

v2 and v1 add a tag buffer, for requests and responses of flexible versions. A client id's length is
never a varint. Which version belongs to which request: apis.py.
"""

from ..schema import Int16, Int32, PlainString, message


@message(key=-1, versions=(1, 2), flexible=2)
class RequestHeader:
    """The header of every request."""

    request_api_key: Int16
    request_api_version: Int16
    correlation_id: Int32
    client_id: PlainString | None = None


@message(key=-1, versions=(0, 1), flexible=1)
class ResponseHeader:
    """The header of every response."""

    correlation_id: Int32
