"""Inspect 0, our own: what a broker knows of itself, for `strandline why`, `lost` and `status`.

The key lies far from Kafka's and is not in ApiVersions: no client is told of it, and a broker that does not
know it closes the connection. An answer is one document in msgpack, so that it may say more tomorrow; what
is in it stands in docs/formats/inspection.md. v0 only; a change of meaning is a new version.
"""

from ..schema import Bytes, Int16, Int32, Int64, String, message, tagged


@message(key=20_000, versions=(0, 0), flexible=0)
class InspectRequest:
    """`about`: partition, metrics, overview, process, web, recorder, removals, removed; the rest: of what."""

    about: String
    topic: String = ""
    partition: Int32 = -1
    name: String = ""
    position: Int64 = 0
    limit: Int32 = 0
    questions: Bytes = tagged(0, default=b"")  # of the overview: msgpack


@message(key=20_000, versions=(0, 0), flexible=0)
class InspectResponse:
    """The document, empty with an error."""

    error_code: Int16 = 0
    error_message: String | None = None
    document: Bytes = b""
