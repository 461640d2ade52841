"""Bugs that Kafka once had and that no other test here would find; docs/known-bugs.md names them all."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from strandline.broker import transitions
from strandline.protocol.errors import ErrorCode
from strandline.protocol.kinds import BrokerId, Epoch
from strandline.protocol.messages.fetch import ReplicaState
from strandline.replication.follower import AskEpochEnd, AskRecords

sys.path.insert(0, str(Path(__file__).parent))
from replica_stage import ask, batch, cluster, fetch, fetched, outcome, produce, until


def test_a_transition_that_failed_half_way_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """KAFKA-9307: what had failed was never tried again, for its epoch was known already."""

    async def story() -> None:
        async with cluster(tmp_path, 1) as stage:
            member = stage.members[1]

            def fails(*_: object) -> None:
                raise RuntimeError("in the middle of it")

            with monkeypatch.context() as patch:
                patch.setattr(transitions, "_save_all", fails)
                stage.epoch += 1
                with pytest.raises(RuntimeError):
                    await member.replicas.obey_leader_and_isr(command(stage))
            client = await member.connect()
            assert outcome(await ask(client, produce(batch(b"a"))))[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER
            await member.replicas.obey_leader_and_isr(command(stage))
            assert outcome(await ask(client, produce(batch(b"a"))))[0] == ErrorCode.NONE
            await client.close()

    asyncio.run(story())


def command(stage: Any) -> Any:
    from test_handlers_control import leader_and_isr

    return leader_and_isr(stage.epoch)


def test_a_fetch_that_parts_moves_no_watermark(tmp_path: Path) -> None:
    """KAFKA-13141: a follower whose history differs holds nothing of ours, however far its log goes."""

    async def story() -> None:
        async with cluster(tmp_path, 2) as stage:
            await stage.members[2].server.stop()
            member = stage.members[1]
            for _ in range(2):  # epoch 1 has no record of ours
                stage.epoch += 1
                await stage.tell(member, 1, [1, 2], 0)
            client = await member.connect()
            pending = asyncio.ensure_future(ask(client, produce(batch(b"a"), timeout_ms=300)))
            await until(lambda: member.partition.log.end_offset == 1)
            me = ReplicaState(replica_id=2, replica_epoch=1)
            parting = fetch(
                1, replica_state=me, current_leader_epoch=member.partition.leader_epoch, last_fetched_epoch=0
            )
            answer = fetched(await ask(member.control, parting))
            assert answer.diverging_epoch is not None and answer.diverging_epoch.end_offset == 0
            assert outcome(await pending)[0] == ErrorCode.REQUEST_TIMED_OUT
            assert member.partition.high_watermark == 0
            await client.close()

    asyncio.run(story())


def test_the_same_leader_in_a_later_epoch_is_asked_where_histories_part(tmp_path: Path) -> None:
    """KAFKA-7164: a follower that missed an epoch in between kept what others had cut."""

    async def story() -> None:
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

    asyncio.run(story())


def test_an_offset_below_the_start_is_out_of_range_whatever_its_epoch(tmp_path: Path) -> None:
    """KAFKA-12996: the epoch was compared first, and a follower was told nothing at all."""

    async def story() -> None:
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

    asyncio.run(story())
