"""What `produce` and `consume` meet amid their work: an input that fails, a partition that is gone."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from strandline.base.types import TopicPartition
from strandline.cli.console import Failure
from strandline.cli.records.consume import BEGINNING, Reading
from strandline.cli.records.input import Shape, _pieces_of
from tests.patience import HANG_S


def test_an_input_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    """`strandline produce t < directory`: the shell opens it, and the first read fails."""

    async def story() -> None:
        async with asyncio.timeout(HANG_S):
            async for _ in _pieces_of(directory, Shape()):
                pass

    directory = os.open(tmp_path, os.O_RDONLY)
    try:
        with pytest.raises(Failure, match="the input cannot be read: Is a directory"):
            asyncio.run(story())
    finally:
        os.close(directory)


def test_a_member_whose_partition_goes_to_another_one_reads_on() -> None:
    """While it waits for one position, another partition is revoked."""

    class Rebalancing:
        def assignment(self) -> set[TopicPartition]:
            return {TopicPartition("t", 0), TopicPartition("t", 1)}

        async def position(self, partition: TopicPartition) -> int:
            raise ValueError(f"{partition} is not assigned to this consumer")

    consumer: Any = Rebalancing()
    reading = Reading("t", None, BEGINNING, "g", None, False, False)
    assert not asyncio.run(reading._at_end(consumer, {}))
