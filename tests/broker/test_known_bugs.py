"""Bugs that Kafka once had and that no other test here would find; docs/known-bugs.md names them all."""

import asyncio
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from strandline.base.types import BrokerId, Epoch
from strandline.broker.replicas.local_appends import append_local
from strandline.broker.roles import leader_and_isr as transitions
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages.fetch import ReplicaState
from strandline.replication.follower import AskEpochEnd, AskRecords
from tests.broker.replica_harness import TP, ask, batch, cluster, fetch, fetched, outcome, produce, until
from tests.patience import HANG_S


async def test_a_transition_that_failed_half_way_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """KAFKA-9307: what had failed was never tried again, for its epoch was known already."""

    async with cluster(tmp_path, 1) as stage:
        member = stage.members[1]

        def fails(*_: object) -> None:
            raise RuntimeError("in the middle of it")

        with monkeypatch.context() as patch:
            patch.setattr(transitions, "_save_all", fails)
            stage.epoch += 1
            with pytest.raises(RuntimeError):
                await member.parts.roles.obey_leader_and_isr(command(stage))
        client = await member.connect()
        assert outcome(await ask(client, produce(batch(b"a"))))[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER
        await member.parts.roles.obey_leader_and_isr(command(stage))
        assert outcome(await ask(client, produce(batch(b"a"))))[0] == ErrorCode.NONE
        await client.close()


def command(stage: Any) -> Any:
    from tests.broker.test_handlers_control import leader_and_isr

    return leader_and_isr(stage.epoch)


async def test_a_fetch_that_parts_moves_no_watermark(tmp_path: Path) -> None:
    """KAFKA-13141: a follower whose history differs holds nothing of ours, however far its log goes."""

    async with cluster(tmp_path, 2) as stage:
        await stage.members[2].server.stop()
        member = stage.members[1]
        for _ in range(2):  # epoch 1 has no record of ours
            stage.epoch += 1
            await stage.tell(member, 1, [1, 2], 0)
        client = await member.connect()
        pending = asyncio.ensure_future(ask(client, produce(batch(b"a"), timeout_ms=300)))
        await until(lambda: member.partition.log.end_offset == 1)
        me = ReplicaState(replica_id=2, replica_epoch=1, counts_starts=True)
        parting = fetch(
            1, replica_state=me, current_leader_epoch=member.partition.leader_epoch, last_fetched_epoch=0
        )
        answer = fetched(await ask(member.control, parting))
        assert answer.diverging_epoch is not None and answer.diverging_epoch.end_offset == 0
        assert outcome(await pending)[0] == ErrorCode.REQUEST_TIMED_OUT
        assert member.partition.high_watermark == 0
        await client.close()


async def test_the_same_leader_in_a_later_epoch_is_asked_where_histories_part(tmp_path: Path) -> None:
    """KAFKA-7164: a follower that missed an epoch in between kept what others had cut."""

    async with cluster(tmp_path, 2) as stage:
        await stage.elect(1, [1, 2])
        client = await stage.members[1].connect()
        assert outcome(await ask(client, produce(batch(b"a"))))[0] == ErrorCode.NONE
        follower = stage.members[2].partition
        assert isinstance(follower.following.question(), AskRecords)
        await stage.members[1].server.stop()
        later = Epoch(follower.leader_epoch + 2)
        follower.pause()
        follower.follow(BrokerId(1), later)
        assert isinstance(follower.following.question(), AskEpochEnd)
        await client.close()


async def test_an_offset_below_the_start_is_out_of_range_whatever_its_epoch(tmp_path: Path) -> None:
    """KAFKA-12996: the epoch was compared first, and a follower was told nothing at all."""

    async with cluster(tmp_path, 1) as stage:
        await stage.elect(1, [1])
        member = stage.members[1]
        client = await member.connect()
        for _ in range(3):
            assert outcome(await ask(client, produce(batch(b"a"))))[0] == ErrorCode.NONE
        await stage.elect(1, [1])
        member.partition.log.move_start(2)
        found = fetched(await ask(client, fetch(0, last_fetched_epoch=0)))
        assert found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        await client.close()


LONG_CHAIN = 3000  # more than calls within calls could bear


def read_back(member: Any, offset: int) -> bytes:
    """What a consumer is given from there."""
    partition = member.partition
    return bytes(partition.read(offset, 1 << 16, partition.leading.high_watermark, at_least_one=True))


@pytest.mark.parametrize(("members", "length"), [(1, LONG_CHAIN), (2, 100)])
async def test_whoever_is_acknowledged_may_produce_and_fetch_there_at_once(
    tmp_path: Path, members: int, length: int
) -> None:
    """KAFKA-7697: to complete a waiter took the partition's lock, while its holder waited for that.

    Group offsets are written so: the acknowledgement of one is what lets the next be appended.
    """

    async with cluster(tmp_path, members) as stage:
        await stage.elect(1, list(stage.members))
        member, loop, told = stage.members[1], asyncio.get_running_loop(), list[tuple[int, int]]()

        def acknowledged(code: ErrorCode, base_offset: int) -> None:
            told.append((code, base_offset))
            assert member.partition.high_watermark == base_offset + 1 == member.partition.log.end_offset
            assert b"v%d" % base_offset in read_back(member, base_offset)
            if len(told) < length:
                append()

        def append() -> None:
            value = bytearray(batch(b"v%d" % len(told)))
            append_local(member.replicas.get, TP, value, acknowledged, loop.time() + HANG_S)

        client = await member.connect()
        reader = asyncio.ensure_future(ask(client, fetch(0, max_wait_ms=4000, min_bytes=length * 60)))
        append()
        member.turn.wake()
        await until(lambda: len(told) == length)
        assert told == [(0, offset) for offset in range(length)]
        assert fetched(await reader).high_watermark > 0, "nor does a fetch that waits there keep it up"
        await client.close()


async def test_waiters_that_a_smaller_isr_completes_may_produce_there(tmp_path: Path) -> None:
    """KAFKA-13254: the ISR changed under the partition's lock, and what that completed wanted the lock."""

    async with cluster(tmp_path, 2) as stage:
        await stage.elect(1, [1, 2])
        member, loop, told = stage.members[1], asyncio.get_running_loop(), list[tuple[int, int]]()
        await stage.silence(2)

        def acknowledged(code: ErrorCode, base_offset: int) -> None:
            assert not code and member.partition.leading.isr.members == {1}
            told.append((code, base_offset))
            if len(told) < 20:
                append(b"after")

        def append(value: bytes) -> None:
            append_local(member.replicas.get, TP, bytearray(batch(value)), acknowledged, loop.time() + HANG_S)

        for _ in range(10):
            append(b"before")
        member.turn.wake()
        await until(lambda: len(told) == 29)
        assert sorted(base for _, base in told) == list(range(29)) and stage.state().isr == [1]


async def test_waiters_that_lost_leadership_completes_may_ask_again_at_once(tmp_path: Path) -> None:
    """KAFKA-13254 once more: they are refused, and nobody waits for anybody."""

    async with cluster(tmp_path, 2) as stage:
        await stage.elect(1, [1, 2])
        member, loop, told = stage.members[1], asyncio.get_running_loop(), list[ErrorCode]()
        await stage.silence(2)

        def refused(code: ErrorCode, _: int) -> None:
            told.append(code)
            if len(told) <= 3:
                append()

        def append() -> None:
            append_local(member.replicas.get, TP, bytearray(batch(b"a")), refused, loop.time() + HANG_S)

        for _ in range(3):
            append()
        await stage.elect(2, [2])
        await until(lambda: len(told) == 6)
        assert set(told) == {ErrorCode.NOT_LEADER_OR_FOLLOWER}


async def test_no_watermark_waits_for_a_broker_that_is_shutting_down(tmp_path: Path) -> None:
    """KAFKA-15021: it had all a moment ago and was about to join, so the leader waited until it was late."""

    lag = {"lag_time_max_ms": 60_000, "fetch_wait_max_ms": 100}
    async with cluster(tmp_path, 2, replication=lag) as stage:
        await stage.elect(1, [1, 2])
        leader, leaver = stage.members[1], stage.members[2]
        client = await leader.connect()
        assert outcome(await ask(client, produce(batch(b"a"))))[0] == ErrorCode.NONE
        stage.leaving = {2}
        await stage.elect(1, [1])  # as the controller does when a broker asks to be relieved
        progress = leader.partition.leading.progress_of(BrokerId(2))
        await until(lambda: progress.end_offset == 1)  # it follows on, and has all
        await stage.silence(leaver.id)
        began = asyncio.get_running_loop().time()
        for _ in range(5):
            assert outcome(await ask(client, produce(batch(b"b"))))[0] == ErrorCode.NONE
        assert asyncio.get_running_loop().time() - began < HANG_S
        assert stage.state().isr == [1], "nor has it been let in again"
        await client.close()


@pytest.mark.parametrize("order", [*permutations(range(3))])
async def test_an_epoch_of_a_leader_is_never_taken_for_a_version(
    tmp_path: Path, order: tuple[int, ...]
) -> None:
    """KAFKA-13790: commands arrive in any order. The latest epoch holds, with the version that came with it.

    One epoch has a higher version than the epoch after it: the topic's node was made anew by a tool.
    """

    async with cluster(tmp_path, 2) as stage:
        member = stage.members[1]
        commands = [(3, 8, [1, 2]), (4, 9, [1]), (5, 2, [1, 2])]
        highest = -1
        for epoch, version, isr in (commands[place] for place in (*order, *order)):
            stage.epoch = epoch
            code = await stage.tell(member, 1, isr, version)
            assert code == (ErrorCode.STALE_CONTROLLER_EPOCH if epoch < highest else ErrorCode.NONE)
            highest = max(highest, epoch)
            leader = member.partition.leading
            told = {3: (8, {1, 2}), 4: (9, {1}), 5: (2, {1, 2})}[highest]
            assert (leader.epoch, leader.version, leader.isr.members) == (highest, *told)
