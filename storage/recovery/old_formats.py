"""Message formats v0 and v1, of Kafka before 0.11: recognised, so that they are not taken for damage.

A message is an offset (8 bytes), a size (4), a CRC-32 of the rest (4), then the magic byte, at the same place
as in a batch of format v2. A topic's segments begin with the oldest format that it has had.
Left to others: what is refused because of it (directories/open_logs.py, recover_log.py).
"""

from contextlib import closing
from struct import Struct
from zlib import crc32

from ..disk import Disk, File, ReadOnlyFile
from ..segment.file_names import CLEANED, LOG, SWAP, is_segment_file

HEAD = Struct(">qiIb")  # offset, size of what follows, CRC-32, magic
CRC_FROM = 16  # the checksum covers everything from the magic byte on
SIZE_AT_LEAST = 14  # CRC, magic, attributes, lengths of key and value
SIZE_FROM = 12
OLD = (0, 1)
MARKS = ("", SWAP, CLEANED)


class OldFormat(Exception):
    """A log holds messages of a format that this broker does not read; it has been left as it was."""

    def __init__(self, path: str, magic: int) -> None:
        super().__init__(
            f"{path} holds messages of format v{magic}, written by Kafka before 0.11; this broker "
            "reads only v2 and has not changed the log. Copy the topic to format v2 with the "
            "Kafka that wrote it (MirrorMaker, or a consumer and a producer), or move the log "
            "out of the log directory"
        )
        self.path = path
        self.magic = magic


def old_message_at(file: File | ReadOnlyFile, position: int) -> int | None:
    """The format, 0 or 1, of the message at `position` whose checksum matches; None if there is none."""
    head = file.pread(position, HEAD.size)
    if len(head) < HEAD.size:
        return None
    _, size, crc, magic = HEAD.unpack(head)
    if magic not in OLD or not SIZE_AT_LEAST <= size <= file.size() - position - SIZE_FROM:
        return None
    covered = file.pread(position + CRC_FROM, SIZE_FROM + size - CRC_FROM)
    return int(magic) if crc32(covered) == crc else None


def find_old_format(disk: Disk, directory: str) -> OldFormat | None:
    """The error for the first segment of the log that begins with an old message. Changes nothing."""
    for name in disk.listdir(directory):
        if any(is_segment_file(name, LOG + mark) for mark in MARKS):
            path = f"{directory}/{name}"
            with closing(disk.open(path)) as file:
                magic = old_message_at(file, 0)
            if magic is not None:
                return OldFormat(path, magic)
    return None
