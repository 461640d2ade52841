"""Looks inside a produced batch, where that is asked for: keys on compacted topics, all of it if configured.

Elsewhere a batch is judged by its header and its checksum alone (protocol/batches.py), which costs nothing
per record. What cannot be decoded, or would grow past the cap, is the producer's fault and is answered with
87.
"""

from ..protocol.errors import InvalidRecord
from ..protocol.primitives import Malformed
from ..protocol.records import iterate


def look_inside(records: memoryview, needs_keys: bool) -> None:
    """Refuse a batch whose records are not what its header says, or have no key where one is needed."""
    try:
        for index, record in enumerate(iterate(records, verify=False)):
            if needs_keys and record.key is None:
                raise InvalidRecord(f"record {index} has no key, which a compacted topic needs")
    except Malformed as error:
        raise InvalidRecord(str(error)) from error
