"""Removes the batches of aborted transactions from fetched records, without decoding a batch.

Batch headers tell which batches are transactional, of which producer, and which are markers, so the
vectorised decoder need not know. Only readers with `isolation.level=read_committed` are told of aborts.
"""

from collections.abc import Iterable

from ...protocol.batches import crc_ok, headers
from ...protocol.messages.fetch import AbortedTransaction
from ...protocol.primitives import Buffer


def without_aborted(records: Buffer, aborted: Iterable[AbortedTransaction]) -> Buffer:
    """The same records if nothing was aborted, else a copy without aborted and control batches. What is
    damaged is not believed to be one of control: the decoder gets it, and says so."""
    waiting = sorted(((each.first_offset, each.producer_id) for each in aborted), reverse=True)
    if not waiting:
        return records
    view = memoryview(records)
    aborting: set[int] = set()
    kept: list[memoryview] = []
    for pos, header in headers(records):
        while waiting and waiting[-1][0] <= header.last_offset:
            aborting.add(waiting.pop()[1])
        if header.is_control and crc_ok(records, pos, header):
            aborting.discard(header.producer_id)
        elif not header.is_transactional or header.producer_id not in aborting:
            kept.append(view[pos : pos + header.size])
    return b"".join(kept)
