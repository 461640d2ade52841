"""Writes whose outcome is never left unknown: late is not lost, and whoever leads no more says so."""

import asyncio
from pathlib import Path

import pytest

from strandline.broker.replicas.purgatory import Deadlines
from strandline.broker.replicas.sure_appends import append_surely, when_committed
from strandline.protocol.errors import ErrorCode, NotEnoughReplicas, NotLeaderOrFollower
from strandline.protocol.messages.control import TopicConfigEntry
from tests.broker.replica_harness import TP, batch, until
from tests.broker.transaction_harness import Scene, scene


class Writer:
    """Writes to the scene's partition, and keeps what it hears."""

    def __init__(self, scene: Scene) -> None:
        self.find = scene.member.replicas.get
        self.heard: list[str] = []

    def write(self, late_in_s: float = 60.0) -> None:
        late_at = asyncio.get_running_loop().time() + late_in_s
        append_surely(self.find, TP, bytearray(batch(b"v")), self.outcome, self.late, late_at)

    def follow(self, offset: int) -> None:
        when_committed(self.find, TP, offset, self.outcome)

    def outcome(self, code: ErrorCode) -> None:
        self.heard.append(code.name)

    def late(self) -> None:
        self.heard.append("late")


async def test_a_record_that_is_late_is_committed_all_the_same(tmp_path: Path) -> None:
    async with scene(tmp_path) as here:
        writer = Writer(here)
        writer.write(late_in_s=0.01)
        await until(lambda: writer.heard == ["late"])
        await here.acknowledge(1)
        await until(lambda: writer.heard == ["late", "NONE"])
        writer.write()
        await here.acknowledge(2)
        await until(lambda: writer.heard == ["late", "NONE", "NONE"])
        assert not len(here.partition.shared.deadlines), "nothing is left to expire"


async def test_whoever_leads_no_more_says_so_once(tmp_path: Path) -> None:
    async with scene(tmp_path) as here:
        writer = Writer(here)
        writer.write(late_in_s=0.01)
        await until(lambda: writer.heard == ["late"])
        writer.write()
        await here.stage.elect(2, (1, 2))
        assert writer.heard == ["late", "NOT_LEADER_OR_FOLLOWER", "NOT_LEADER_OR_FOLLOWER"]
        with pytest.raises(NotLeaderOrFollower):
            writer.write()


async def test_the_same_leader_in_a_new_epoch_goes_on_waiting(tmp_path: Path) -> None:
    async with scene(tmp_path) as here:
        writer = Writer(here)
        writer.write()
        await here.stage.elect(1, (1, 2))
        assert writer.heard == []
        here.stage.members[2].parts.fetchers.drop(here.stage.members[2].partition)
        await here.acknowledge(1)
        await until(lambda: writer.heard == ["NONE"])


async def test_a_refused_record_is_not_in_the_log(tmp_path: Path) -> None:
    async with scene(tmp_path, (1,), **{"min.insync.replicas": "2"}) as here:
        writer = Writer(here)
        with pytest.raises(NotEnoughReplicas):
            writer.write()
        assert writer.heard == [] and here.partition.log.end_offset == 0


async def test_a_record_that_too_few_replicas_have_waits_for_more(tmp_path: Path) -> None:
    """Whoever hears that it is committed relies on it, also when the only broker that has it is gone."""
    enough = {"min.insync.replicas": "2"}
    configs = [TopicConfigEntry(name=name, value=value) for name, value in enough.items()]
    async with scene(tmp_path, **enough) as here:

        async def in_sync(*isr: int) -> None:
            await here.stage.elect(1, isr, configs)
            here.stage.members[2].parts.fetchers.drop(here.stage.members[2].partition)

        writer = Writer(here)
        writer.write(late_in_s=0.01)
        await until(lambda: writer.heard == ["late"])
        for _ in range(2):  # in a second epoch, too
            await in_sync(1)
            await until(lambda: here.partition.high_watermark == 1)
            await here.read()  # some turns later
            assert writer.heard == ["late"]
            with pytest.raises(NotEnoughReplicas):
                writer.write()
        await in_sync(1, 2)
        await until(lambda: writer.heard == ["late", "NONE"])
        writer.write()
        await in_sync(1)
        await until(lambda: here.partition.high_watermark == 2)
        await here.stage.elect(2, (1, 2), configs)
        assert writer.heard == ["late", "NONE", "NOT_LEADER_OR_FOLLOWER"]


async def test_too_many_wait_for_a_time(tmp_path: Path) -> None:
    """Then whoever waits is answered at once; the record is committed as ever."""
    async with scene(tmp_path) as here:
        here.partition.shared.deadlines = Deadlines(asyncio.get_running_loop())
        here.partition.shared.deadlines.stop()
        writer = Writer(here)
        writer.write()
        assert writer.heard == ["late"]
        await here.acknowledge(1)
        await until(lambda: writer.heard == ["late", "NONE"])


async def test_waiting_for_what_is_there(tmp_path: Path) -> None:
    async with scene(tmp_path) as here:
        writer = Writer(here)
        writer.follow(0)
        assert writer.heard == ["NONE"]
        writer.write()
        writer.follow(1)
        await here.acknowledge(0)
        assert writer.heard == ["NONE"]
        await here.acknowledge(1)
        await until(lambda: writer.heard == ["NONE"] * 3)
