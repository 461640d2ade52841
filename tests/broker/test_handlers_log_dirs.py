"""DescribeLogDirs: sizes, what is asked for, and directories that are offline or full."""

import errno
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from strandline.broker.handlers import log_dirs
from strandline.protocol.errors import ErrorCode, KafkaStorageError
from strandline.protocol.messages.log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from strandline.protocol.schema import decode, encode
from tests.broker.storage_harness import TOPIC, Box, box, run, tp

NO_MOVES = SimpleNamespace(coming=lambda: ())


async def describe(b: Box, topics: list[DescribableLogDirTopic] | None = None) -> DescribeLogDirsResponse:
    broker = cast(Any, SimpleNamespace(replicas=b.replicas, logs=b.logs, moves=NO_MOVES))
    return await log_dirs.handle(broker, cast(Any, None), DescribeLogDirsRequest(topics=topics))


def sizes(response: DescribeLogDirsResponse) -> list[dict[int, int]]:
    return [
        {p.partition_index: p.partition_size for topic in one.topics for p in topic.partitions}
        for one in response.results
    ]


def test_each_directory_tells_what_its_replicas_take(tmp_path: Path) -> None:
    async def story() -> None:
        async with box(tmp_path) as b:
            await b.lead(0, 1, 2)
            b.append(0, b"x" * 1000)
            held = {n: b.replicas.get(tp(n)).log.size for n in range(3)}
            answer = await describe(b)
            assert [one.log_dir for one in answer.results] == b.dirs
            assert sizes(answer) == [{0: held[0], 2: 0}, {1: 0}] and held[0] > 1000
            assert all(one.total_bytes >= one.usable_bytes > 0 for one in answer.results)
            asked = await describe(b, [DescribableLogDirTopic(topic=TOPIC, partitions=[1, 77])])
            assert sizes(asked) == [{}, {1: 0}]
            for version in range(5):
                data = b"".join(map(bytes, encode(answer, version)))
                read, _ = decode(DescribeLogDirsResponse, version, memoryview(data))
                assert sizes(read) == sizes(answer)

    run(story)


@pytest.mark.parametrize(("error", "told"), [(errno.EIO, (56, False)), (errno.ENOSPC, (0, True))])
def test_a_directory_in_trouble_says_so(tmp_path: Path, error: int, told: tuple[int, bool]) -> None:
    async def story() -> None:
        async with box(tmp_path) as b:
            await b.lead(0, 1)
            b.disk.fail("append", f"{b.dirs[0]}/*", error)
            b.disk.free_bytes = lambda path: 0  # type: ignore[method-assign]
            with pytest.raises(KafkaStorageError):
                b.append(0, b"x")
            first, second = (await describe(b)).results
            assert (first.error_code, first.is_full) == told
            assert (first.topics == []) == (first.error_code == ErrorCode.KAFKA_STORAGE_ERROR)
            assert (second.error_code, second.is_full) == (0, False)

    run(story)
