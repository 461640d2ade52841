"""What `status` counts, from what brokers and the controller say; no cluster is needed for that."""

import re
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rich.console import Console

from strandline.base.types import TopicPartition
from strandline.cli.status import drawn, picture, watched
from strandline.client.admin.descriptions import ClusterDescription, PartitionDescription, TopicDescription
from strandline.client.admin.reassignments import PartitionReassignment
from strandline.client.sync import Admin
from strandline.protocol.errors import NetworkException
from strandline.protocol.primitives import NO_UUID


class Told:
    """An `Admin` with one partition t-0. `adding` is what the controller says; None: it does not answer.

    Without a `mark` its leader cannot tell the high watermark.
    """

    def __init__(self, replicas: str, isr: str, adding: str | None, mark: int | None = 7) -> None:
        self.replicas, self.isr = ids(replicas), ids(isr)
        self.adding = None if adding is None else ids(adding)
        self.mark = mark
        self.asked_for_moves = 0

    def describe_cluster(self) -> ClusterDescription:
        return ClusterDescription("c", 1, ())

    def describe_topics(self) -> list[TopicDescription]:
        one = PartitionDescription(0, self.isr[0], 3, self.replicas, self.isr, (), 0)
        return [TopicDescription("t", NO_UUID, False, (one,))]

    def describe_configs(self, topic: str) -> list[Any]:
        return []

    def list_known_offsets(
        self, times: dict[TopicPartition, int], timeout_ms: int
    ) -> dict[TopicPartition, Any]:
        return {place: SimpleNamespace(offset=self.mark) for place in times if self.mark is not None}

    def describe_known_log_dirs(self, brokers: list[int], timeout_ms: int) -> dict[int, list[Any]]:
        return {}

    def list_partition_reassignments(self, timeout_ms: int) -> dict[TopicPartition, PartitionReassignment]:
        self.asked_for_moves += 1
        if self.adding is None:
            raise NetworkException("nobody there")
        moves = {TopicPartition("t", 0): PartitionReassignment(self.replicas, self.adding, ())}
        return moves if self.adding else {}


def ids(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split()))


@pytest.mark.parametrize(
    ("replicas", "isr", "adding", "lacks"),
    [
        ("1 2 3", "1 2 3", "", False),
        ("1 2 3", "1 2", "", True),
        ("1 2 3", "1 2", None, True),  # the controller is away: as far as is known
        ("1 2 3 4 5", "1 2 3", "4 5", False),  # it moves, and holds what it held
        ("1 2 3 4 5", "1 2", "4 5", True),
        ("1 2 3 4 5", "1 2 4", "4 5", False),  # Kafka counts heads: one of the new has taken a place
    ],
)
def test_a_replica_that_a_move_brings_is_not_missed(
    replicas: str, isr: str, adding: str | None, lacks: bool
) -> None:
    """As `UnderReplicatedPartitions` counts, and Kafka: so many in sync as there were replicas before."""
    told = Told(replicas, isr, adding)
    seen = picture(cast(Admin, told))
    assert (seen["under_replicated"], seen["partitions"][0]["under_replicated"]) == (lacks, lacks)
    assert seen["partitions"][0]["osr"] == [one for one in told.replicas if one not in told.isr]
    assert told.asked_for_moves == (len(told.isr) < len(told.replicas)), "asked for only where it matters"


def test_a_high_watermark_that_its_leader_cannot_tell_is_left_open() -> None:
    """A new leader may have to wait for the end of a session; all else is known and shown."""
    seen = picture(cast(Admin, Told("1 2 3", "1 2 3", "", mark=None)))
    assert seen["partitions"][0]["high_watermark"] is None and seen["offline"] == 0
    shown = Console(width=120)
    with shown.capture() as captured:
        shown.print(drawn(seen))
    line = r"^t +0 +1 +3 +1,2,3 +1,2,3 +- +its leader does not tell *$"
    assert re.search(line, captured.get(), re.MULTILINE)


def test_what_is_watched_goes_to_a_file_as_it_comes(capsys: pytest.CaptureFixture[str]) -> None:
    """There is no screen to draw on: nothing was written before the end, and that is a signal."""
    looks, seen = iter(("one", "two", "three")), []

    def is_enough(_: float) -> bool:
        seen.append(capsys.readouterr().out.split())
        return len(seen) == 3

    watched(lambda: next(looks), is_enough)
    assert seen == [["one"], ["two"], ["three"]]
