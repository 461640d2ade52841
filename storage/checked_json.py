"""JSON documents of our own: one object, with a checksum of all before it as its last key.

A flipped bit in a number is still a number; Kafka's small files have no guard against that, ours have. A
document without a checksum, as earlier versions wrote it, is taken as it is.
Left to others: what stands in the documents (directories/incarnation.py, log/checkpoints.py).
"""

import re

from crc32c import crc32c
from pydantic import BaseModel

_SEALED = re.compile(rb'(\{.*),"crc":"([0-9a-f]{8})"\}\s*', re.DOTALL)


class WrongChecksum(ValueError):
    """The document is not what was written."""


def dump(document: BaseModel) -> bytes:
    """The bytes of a file. The CRC-32C covers what stands before the comma in front of its key."""
    body = document.model_dump_json().encode()[:-1]
    return b'%s,"crc":"%08x"}' % (body, crc32c(body))


def load(data: bytes) -> bytes:
    """The JSON without its checksum; WrongChecksum if that does not match."""
    found = _SEALED.fullmatch(data)
    if found is None:
        return data
    if crc32c(found[1]) != int(found[2], 16):
        raise WrongChecksum("the checksum does not match")
    return found[1] + b"}"
