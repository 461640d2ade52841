"""Reads records of one partition for the page, as any consumer would: a Fetch to its leader.

So a page sees nothing past the high watermark, and in read_committed nothing of open or aborted transactions.
With read_uncommitted control records and aborted ones are there, marked. What is below the last stable offset
is fetched as read_committed in both cases, because only then the leader tells which transactions aborted.
Records are decompressed, and the answer is written, in a thread. Bytes that are fetched and shown, records,
and time are bounded.
Left to others: what is asked (api.py), how values look (page/records.js).
"""

import asyncio
import codecs
import json
from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING, Any

from ...base.types import TopicPartition
from ...base.values import dataclass
from ...client.consumer.positions import surveyed
from ...client.network.connection import Connection
from ...protocol.apis import Api
from ...protocol.batches import BatchHeader, headers
from ...protocol.compression import Codec
from ...protocol.errors import ApiError, error_for
from ...protocol.markers import read_marker
from ...protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from ...protocol.messages.offsets import (
    EARLIEST,
    LATEST,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ...protocol.primitives import Buffer, Malformed, Slices
from ...protocol.records import Record, open_batch, records_of

if TYPE_CHECKING:
    from ..context import BrokerContext

READ_S = 4.0  # shorter than the server's own deadline, so that the reason is told
FETCH_BYTES = 1 << 20  # the first batch comes whole, if it is larger
FRAME_BYTES_MAX = 64 << 20
FETCHES_MAX = 8  # for one answer
SHOWN_BYTES_MAX = 1 << 20
OPENED_BYTES_MAX = 32 << 20  # of one batch after decompression
VALUE_BYTES_MAX = 8 << 10  # of a key, a value, a header; further bytes are counted
NAME_MAX = 256  # characters of the name of a header
HEADERS_MAX = 50
LIMIT_MAX = 500
VERSIONS: dict[int, int] = {Api.FETCH: 12, Api.LIST_OFFSETS: 7}
READ_UNCOMMITTED, READ_COMMITTED = 0, 1


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which records: from an offset, from a time (ms since 1970), or else the last ones."""

    tp: TopicPartition
    limit: int = 50
    committed: bool = True
    offset: int | None = None
    time_ms: int | None = None


@dataclass(slots=True)
class Shown:
    """Records as they are shown, and what was left out; the next read goes on at `next`."""

    next: int
    rows: list[dict[str, Any]] = field(default_factory=list)
    shown_bytes: int = 0
    control: int = 0
    aborted: int = 0

    @property
    def is_full(self) -> bool:
        return self.shown_bytes >= SHOWN_BYTES_MAX


async def read_records(broker: "BrokerContext", wanted: Wanted) -> bytes:
    """The document for the page, as JSON. Raises ApiError, OSError, Malformed."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + READ_S
    state = broker.metadata.partition(*wanted.tp)
    address = (
        None if state is None else broker.metadata.address(state.leader, broker.config.inter_broker_listener)
    )
    if state is None or address is None:
        raise ConnectionError(f"{wanted.tp} has no leader now" if state else f"{wanted.tp} does not exist")
    connection = await Connection.open(
        address.host, address.port, client_id=f"broker-{broker.id}-web", deadline=deadline,
        versions=VERSIONS, frame_bytes_max=FRAME_BYTES_MAX,
    )  # fmt: skip
    try:
        document = {"leader": state.leader, **await _read(connection, wanted, deadline)}
    finally:
        await connection.close()
    return await loop.run_in_executor(None, encoded, document)


async def _read(connection: Connection, wanted: Wanted, deadline: float) -> dict[str, Any]:
    begin, end = await _range(connection, wanted, deadline)
    shown = Shown(begin)
    data: PartitionData | None = None
    for _ in range(FETCHES_MAX):
        data = await _fetch(connection, wanted.tp, shown.next, READ_COMMITTED, deadline)
        if not wanted.committed and not data.records:
            data = await _fetch(connection, wanted.tp, shown.next, READ_UNCOMMITTED, deadline)
        if not data.records:
            break
        await asyncio.get_running_loop().run_in_executor(None, partial(show, data, wanted, shown))
        if len(shown.rows) >= wanted.limit or shown.is_full or shown.next >= end:
            break
    assert data is not None, "there is at least one fetch"
    visible = data.last_stable_offset if wanted.committed else data.high_watermark
    return {
        "topic": wanted.tp.topic,
        "partition": wanted.tp.partition,
        "isolation": "read_committed" if wanted.committed else "read_uncommitted",
        "start": data.log_start_offset,
        "watermark": data.high_watermark,
        "stable": data.last_stable_offset,
        "from": begin,
        "next": shown.next,
        "at_end": shown.next >= visible,
        "left_out": {"control": shown.control, "aborted": shown.aborted},
        "records": shown.rows,
    }


async def _range(connection: Connection, wanted: Wanted, deadline: float) -> tuple[int, int]:
    """Where to begin, and where consumers end now."""
    isolation = READ_COMMITTED if wanted.committed else READ_UNCOMMITTED
    ask = partial(_offset, connection, wanted.tp, isolation, deadline)
    end, start = await ask(LATEST), await ask(EARLIEST)
    if wanted.offset is not None:
        return max(wanted.offset, start), end
    if wanted.time_ms is not None:
        found = await ask(wanted.time_ms)
        return (found if found >= 0 else end), end
    return max(end - wanted.limit, start), end


async def _offset(
    connection: Connection, tp: TopicPartition, isolation: int, deadline: float, time: int
) -> int:
    asked = ListOffsetsPartition(partition_index=tp.partition, timestamp=time)
    response: ListOffsetsResponse = await connection.request(
        ListOffsetsRequest(
            isolation_level=isolation, topics=[ListOffsetsTopic(name=tp.topic, partitions=[asked])]
        ),
        deadline=deadline,
    )
    (found,) = response.topics[0].partitions
    if found.error_code:
        raise error_for(found.error_code)
    return found.offset


async def _fetch(
    connection: Connection, tp: TopicPartition, offset: int, isolation: int, deadline: float
) -> PartitionData:
    asked = FetchPartition(partition=tp.partition, fetch_offset=offset, partition_max_bytes=FETCH_BYTES)
    response: FetchResponse = await connection.request(
        FetchRequest(
            max_wait_ms=0, min_bytes=0, max_bytes=FETCH_BYTES, isolation_level=isolation,
            topics=[FetchTopic(topic=tp.topic, partitions=[asked])],
        ),
        deadline=deadline,
    )  # fmt: skip
    if response.error_code:
        raise error_for(response.error_code)
    (found,) = response.responses[0].partitions
    if found.error_code:
        raise error_for(found.error_code)
    return found


def show(data: PartitionData, wanted: Wanted, shown: Shown) -> None:
    """Add what was fetched to `shown`. Blocks while it decompresses. Raises Malformed, ApiError."""
    fetched = data.records or b""
    assert not isinstance(fetched, Slices), "what came over a connection is in one piece"
    aborted = [(one.producer_id, one.first_offset) for one in data.aborted_transactions or ()]
    visible = {at for at, _ in surveyed(fetched, shown.next, aborted).batches}
    for at, header in headers(fetched):
        if header.next_offset <= shown.next:
            continue
        hidden = at not in visible
        if hidden and wanted.committed:
            shown.control += header.is_control
            shown.aborted += 0 if header.is_control else header.record_count
        elif header.is_control:
            shown.rows.append(_marker(fetched, at, header))
        elif not _add(fetched, at, header, "aborted" if hidden else _fate(header, data), wanted, shown):
            return
        shown.next = header.next_offset
        if len(shown.rows) >= wanted.limit or shown.is_full:
            return


def _fate(header: BatchHeader, data: PartitionData) -> str | None:
    """What became of the transaction of this batch, None if it is of none."""
    if not header.is_transactional:
        return None
    return "open" if header.base_offset >= data.last_stable_offset else "committed"


def _add(
    fetched: Buffer, at: int, header: BatchHeader, fate: str | None, wanted: Wanted, shown: Shown
) -> bool:
    """Add the records of a batch; False if there is no room for all of them."""
    opened = open_batch(fetched, at, header, verify=True, cap=OPENED_BYTES_MAX)
    for record in records_of(opened, header):
        if record.offset < shown.next:
            continue
        if len(shown.rows) >= wanted.limit or shown.is_full:
            return False
        row = _row(record, header, fate)
        shown.rows.append(row)
        shown.shown_bytes += _bytes_shown(record)
        shown.next = record.offset + 1
    return True


def _row(record: Record, header: BatchHeader, fate: str | None) -> dict[str, Any]:
    return {
        "offset": record.offset,
        "timestamp_ms": record.timestamp,
        "timestamp_type": "LogAppendTime" if header.is_log_append_time else "CreateTime",
        "key": as_shown(record.key),
        "value": as_shown(record.value),
        "headers": [[name[:NAME_MAX], as_shown(value)] for name, value in record.headers[:HEADERS_MAX]],
        "more_headers": max(len(record.headers) - HEADERS_MAX, 0),
        "transaction": fate,
        "codec": _codec(header.codec),
        "leader_epoch": header.leader_epoch,
        "producer_id": header.producer_id,
    }


def _codec(codec: int) -> str:
    try:
        return Codec(codec).name.lower()
    except ValueError:
        return str(codec)


def _marker(fetched: Buffer, at: int, header: BatchHeader) -> dict[str, Any]:
    marker = read_marker(fetched, at, header)
    return {
        "offset": header.base_offset,
        "timestamp_ms": header.max_timestamp,
        "control": "other" if marker is None else "commit" if marker.committed else "abort",
        "producer_id": header.producer_id,
        "leader_epoch": header.leader_epoch,
    }


def _bytes_shown(record: Record) -> int:
    headers = record.headers[:HEADERS_MAX]
    parts: Sequence[bytes | None] = (record.key, record.value, *(value for _, value in headers))
    names = sum(min(len(name), NAME_MAX) for name, _ in headers)
    return 100 + names + sum(min(len(part or b""), VALUE_BYTES_MAX) for part in parts)


def as_shown(data: bytes | None) -> Mapping[str, Any] | None:
    """Bytes as text if they are text in UTF-8, else as hex; `bytes` is how many there are in all."""
    if data is None:
        return None
    part = bytes(data[:VALUE_BYTES_MAX])
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(part, final=len(part) == len(data))
    except UnicodeDecodeError:
        return {"hex": part.hex(), "bytes": len(data)}
    if any(character < " " and character not in "\t\n\r" for character in text):
        return {"hex": part.hex(), "bytes": len(data)}
    return {"text": text, "bytes": len(data)}


def encoded(document: Mapping[str, Any]) -> bytes:
    """The document as JSON, for a thread: records are written one by one, so that the event loop, which needs
    the interpreter too, gets it in between.
    """
    about = json.dumps({name: value for name, value in document.items() if name != "records"})
    rows = ",\n".join(map(json.dumps, document["records"]))
    return f'{about[:-1]}, "records": [\n{rows}\n]}}\n'.encode()


def why_unread(error: ApiError | OSError | Malformed) -> str:
    """A reason for people."""
    if isinstance(error, ApiError):
        return f"{error.code.name}: {error.message}"
    if isinstance(error, Malformed):
        return f"the records cannot be decoded: {error}"
    return str(error) or "the leader did not answer in time"
