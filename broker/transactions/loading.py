"""Rebuilds transactional ids from the records of a partition: the newest value of each key counts.

Takes the log in slices, from start to end, so that the caller can yield to the event loop in between.
Left to others: reading the log (internal_topics/loading.py), the formats (records.py), serving (shards.py).
"""

from collections.abc import Iterator
from dataclasses import field

import structlog

from ...base.values import dataclass
from ...protocol.batches import headers
from ...protocol.errors import ApiError
from ...protocol.primitives import Buffer, Malformed
from ...protocol.records import Record, iterate
from .records import read_key, read_value
from .state import Standing

logger = structlog.get_logger(__name__)

RECORDS_AT_ONCE = 500  # about ten milliseconds


@dataclass(slots=True)
class LoadedTransactions:
    """How every transactional id stands, as far as the log has been read."""

    standings: dict[str, Standing] = field(default_factory=dict)
    damaged: int = 0  # records or batches that could not be decoded and were skipped
    after: int = -1  # the offset after the last batch taken in

    def feed(self, batches: Buffer) -> Iterator[None]:
        """Take in complete batches. Yields where other tasks may run: after every RECORDS_AT_ONCE records,
        whether in one batch or in many, and at the end.
        """
        taken = 0
        for pos, header in headers(batches):
            self.after = header.next_offset
            if header.is_control:
                continue
            try:
                for record in iterate(batches[pos : pos + header.size]):
                    self._take(record)
                    taken += 1
                    if taken % RECORDS_AT_ONCE == 0:
                        yield
            except (Malformed, ApiError) as error:
                self.damaged += 1
                logger.error("transactions_batch_corrupt", base_offset=header.base_offset, reason=str(error))
        yield

    def _take(self, record: Record) -> None:
        if record.key is None:
            return
        try:
            transactional_id = read_key(record.key)
            if record.value is None:
                self.standings.pop(transactional_id, None)
            else:
                self.standings[transactional_id] = read_value(record.value)
        except Malformed as error:
            self.damaged += 1
            logger.error("transactions_record_corrupt", offset=record.offset, reason=str(error))
