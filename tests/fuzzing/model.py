"""What the broker must make of a frame: a request, which it answers, or bytes that end the connection.

It is the rule of broker/network/connection.py once more, with the same decoder: whatever the decoder takes
for a request must be answered in form, whatever it calls malformed must not.
Left to others: what an answer must be (judging.py).
"""

from dataclasses import dataclass
from typing import Any

from strandline.protocol.apis import APIS, Api
from strandline.protocol.connection import SIZE, parse_head
from strandline.protocol.messages.api_versions import ApiVersionsRequest
from strandline.protocol.primitives import Malformed
from strandline.protocol.schema import decode

SERVED = {(api, version) for api, entry in APIS.items() for version in entry.served}
TRAILING_BYTES_MAX = {Api.METADATA: 3}  # librdkafka's


@dataclass(slots=True)
class Asked:
    """A request on its way. `request` is there if it was decoded here; `frame` begins with its size."""

    frame: bytes
    api: Api
    version: int
    correlation_id: int
    request: Any = None

    def decoded(self) -> Any:
        """The request as the broker reads it."""
        if self.request is None:
            self.request = getattr(read(self.frame), "request", None)
        return self.request


def read(frame: bytes) -> Asked | None:
    """The request that `frame` is; None if it must end the connection."""
    body = frame[SIZE.size :]
    try:
        head = parse_head(body)
        pair = (head.api_key, head.version)
        if pair not in SERVED:
            if head.api_key != Api.API_VERSIONS:
                return None
            # A broker that does not know the version answers with its own range.
            return Asked(frame, Api.API_VERSIONS, head.version, head.correlation_id, ApiVersionsRequest())
        entry = APIS[Api(head.api_key)]
        request, end = decode(entry.request, head.version, memoryview(body), head.body_at)
    except Malformed:
        return None
    if end != len(body) and len(body) - end > TRAILING_BYTES_MAX.get(entry.api, 0):
        return None
    return Asked(frame, entry.api, head.version, head.correlation_id, request)
