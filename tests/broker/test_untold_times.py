"""Batches whose header does not tell the largest time of their records: sarama up to 1.45.0 sends -1 there.

Kafka writes it into each batch. Retention, rolls and lookups by time go by it: what such a producer writes
would be deleted with an older batch of another one, and be found by no time.
"""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from strandline.client.network.connection import Connection
from strandline.protocol.batches import MAX_TIMESTAMP_AT, TIMESTAMP, read_header, seal
from strandline.protocol.compression import Codec
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages.control import TopicConfigEntry
from strandline.protocol.messages.offsets import LARGEST_TIMESTAMP
from strandline.protocol.records import BatchBuilder
from strandline.storage.log.retention import expired, with_ends
from tests.broker.replica_harness import Cluster, ask, cluster, fetch, fetched, list_offsets, outcome, produce

Story = Callable[[Cluster, Connection], Coroutine[Any, Any, None]]
HOUR_MS = 3_600_000


def run(directory: Path, story: Story, **configs: str) -> None:
    async def play() -> None:
        async with cluster(directory, 1) as stage:
            await stage.elect(1, (1,), [TopicConfigEntry(name=n, value=v) for n, v in configs.items()])
            client = await stage.members[1].connect()
            await story(stage, client)
            await client.close()

    asyncio.run(play())


def telling(largest: int, *times: int, codec: Codec = Codec.NONE) -> bytes:
    """A batch of records of these times whose header says this of them."""
    builder = BatchBuilder(codec)
    for time in times:
        builder.append(time, b"k", b"value", [])
    batch = bytearray(builder.build())
    TIMESTAMP.pack_into(batch, MAX_TIMESTAMP_AT, largest)
    seal(batch, 0, len(batch))
    return bytes(batch)


async def found(client: Connection, time: int) -> tuple[int, int, int]:
    (only,) = (await ask(client, list_offsets(time))).topics[0].partitions
    return only.error_code, only.offset, only.timestamp


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.ZSTD])
@pytest.mark.parametrize("count", [1, 1200])
@pytest.mark.parametrize("largest", [-1, 999])
def test_the_largest_time_is_found_among_the_records(
    tmp_path: Path, codec: Codec, count: int, largest: int
) -> None:
    async def story(stage: Cluster, client: Connection) -> None:
        times = [1000, 5000, *([3000] * count)]
        assert outcome(await ask(client, produce(telling(largest, *times, codec=codec)))) == (0, 0)
        stored = bytes(fetched(await ask(client, fetch(0))).records)
        assert read_header(stored).max_timestamp == 5000
        assert await found(client, 2000) == (0, 1, 5000)
        assert await found(client, 5001) == (0, -1, -1)
        assert await found(client, LARGEST_TIMESTAMP) == (0, 1, 5000)

    run(tmp_path, story)


def test_new_records_are_as_young_as_they_are(tmp_path: Path) -> None:
    """The segment would be as old as its one batch that tells its time, and go with that."""

    async def story(stage: Cluster, client: Connection) -> None:
        now = stage.members[1].partition.shared.clock.wall_ms()
        for batch in (telling(now - 5 * HOUR_MS, now - 5 * HOUR_MS), telling(-1, now)):
            assert outcome(await ask(client, produce(batch)))[0] == 0
        log = stage.members[1].partition.log
        segments, end = with_ends(log.segments, log.end_offset), log.end_offset
        assert expired(segments, log.size, log.config, now, log.start_offset, end, count_max=9) == 0

    run(tmp_path, story, **{"retention.ms": str(HOUR_MS)})


def test_what_is_told_truly_is_taken_as_it_is(tmp_path: Path) -> None:
    async def story(stage: Cluster, client: Connection) -> None:
        for batch in (telling(5000, 1000, 5000), telling(-1, -1), telling(-1, -1, -1)):
            assert outcome(await ask(client, produce(batch)))[0] == 0
            log = stage.members[1].partition.log
            begin = log.end_offset - read_header(batch).record_count
            stored = bytes(fetched(await ask(client, fetch(begin))).records)
            assert stored[MAX_TIMESTAMP_AT : MAX_TIMESTAMP_AT + 8] == batch[MAX_TIMESTAMP_AT:][:8]

    run(tmp_path, story)


def test_bounds_hold_for_times_that_are_not_told(tmp_path: Path) -> None:
    async def story(stage: Cluster, client: Connection) -> None:
        now = stage.members[1].partition.shared.clock.wall_ms()
        for times, code in (((now,), 0), ((now, now + HOUR_MS), 32), ((now - HOUR_MS,), 32)):
            assert outcome(await ask(client, produce(telling(-1, *times))))[0] == code

    minute = {"message.timestamp.before.max.ms": "60000", "message.timestamp.after.max.ms": "60000"}
    run(tmp_path, story, **minute)


def test_records_that_cannot_be_read_are_refused_then(tmp_path: Path) -> None:
    async def story(stage: Cluster, client: Connection) -> None:
        broken = bytearray(telling(-1, 1000))
        broken[61] = 0x7F  # the record's length
        seal(broken, 0, len(broken))
        assert outcome(await ask(client, produce(bytes(broken)))) == (ErrorCode.INVALID_RECORD, -1)
        far = bytearray(telling(-1, 1000, 1001))
        TIMESTAMP.pack_into(far, MAX_TIMESTAMP_AT - 8, (1 << 63) - 1)
        seal(far, 0, len(far))
        assert outcome(await ask(client, produce(bytes(far)))) == (0, 0), "their sum is no number"

    run(tmp_path, story)
