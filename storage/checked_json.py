"""Our own JSON documents: one object, whose last key is a checksum of everything before it.

A number with a flipped bit is still a number. Kafka's small files have no guard against that, ours do. A
document without a checksum, as earlier versions wrote it, is accepted.
Left to others: the documents' content (directories/incarnation.py, log/checkpoints.py).
"""

import re

from crc32c import crc32c
from pydantic import BaseModel

_SEALED = re.compile(rb'(\{.*),"crc":"([0-9a-f]{8})"\}\s*', re.DOTALL)


class WrongChecksum(ValueError):
    """The document is not what was written."""


def dump(document: BaseModel) -> bytes:
    """The bytes of a file. The CRC-32C covers everything up to the comma before its key."""
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
