"""A log directory that fails: what lay there is offline, noted, reported, and never begun anew elsewhere."""

import errno
from pathlib import Path
from uuid import UUID

import pytest

from strandline.broker.errors import StorageLost
from strandline.protocol.batches import read_header
from strandline.protocol.errors import ErrorCode, KafkaStorageError
from strandline.protocol.messages.control import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
)
from strandline.storage.config import TopicConfig
from strandline.storage.directories.incarnation import INCARNATION
from strandline.storage.directories.intact import Intactness
from strandline.storage.disk import LogDamaged
from strandline.storage.log.checkpoints import PARTITION_METADATA, read_partition_metadata
from tests.broker.replica_harness import batch, until
from tests.broker.storage_harness import EARLIER, TOPIC, TOPIC_ID, Box, box, run, tp


@pytest.mark.parametrize("call", ["append", "pread_now", "open", "sync", "rename"])
def test_a_failed_directory_is_offline_noted_reported_and_told(tmp_path: Path, call: str) -> None:
    async def story() -> None:
        async with box(tmp_path) as b:
            await b.lead(0, 1, 2, 3)
            for number in range(4):
                b.append(number, b"x")
            b.disk.fail(call, f"{b.dirs[0]}/t-*")
            await provoke(b, call)
            answers = await b.lead(0, 1, 2, 3, is_new=False)
            codes = [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NONE] * 2
            assert [answer.error_code for answer in answers] == codes
            for number in (0, 2) if call != "rename" else (2,):
                with pytest.raises(KafkaStorageError):
                    b.append(number, b"never")
            assert b.append(1, b"goes on") == 1
            await until(lambda: len(b.events()) == 1 and len(b.failed_dirs()) == 1)
            assert b.failed_dirs() == [b.incarnations.dir_ids[b.dirs[0]]]
            await until(lambda: b.remembered(1)["lost_note"])
            await until(lambda: b.incarnations.dirs == [b.dirs[1]])
            assert not b.failures

    run(story)


def delete(*numbers: int) -> StopReplicaRequest:
    states = [StopReplicaPartitionState(partition_index=n, delete_partition=True) for n in numbers]
    topic = StopReplicaTopicState(topic_name=TOPIC, partition_states=states)
    return StopReplicaRequest(controller_id=9, controller_epoch=1, broker_epoch=1, topic_states=[topic])


async def provoke(b: Box, call: str) -> None:
    partition = b.replicas.get(tp(0))
    if call == "append":
        with pytest.raises(KafkaStorageError):
            b.append(0, b"x")
    elif call == "pread_now":
        partition.log._tail.clear()
        with pytest.raises(KafkaStorageError):
            partition.read(0, 1000, partition.log.end_offset, at_least_one=True)
    elif call == "open":
        with pytest.raises(KafkaStorageError):  # no segment can be opened to go on in
            partition.log.configure(partition.log.config.model_copy(update={"segment_bytes": 14}))
            b.append(0, b"x")
    elif call == "sync":
        await b.parts.flushing.until_flushed(list(b.logs.logs.values()))
    else:
        for number in (0, 2):
            partition = b.replicas.get(tp(number))
        answer = await b.parts.roles.stop_replicas(delete(0))
        assert answer.partition_errors[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR


def test_what_lay_in_a_failed_directory_is_not_begun_anew_elsewhere(tmp_path: Path) -> None:
    async def story() -> None:
        async with box(tmp_path) as b:
            b.disk.fail("append", f"{b.dirs[0]}/*")
            await b.lead(0, 1)
            with pytest.raises(KafkaStorageError):
                b.append(0, b"x")
            old, new = await b.lead(4, is_new=False), await b.lead(5, is_new=True)
            assert (old[0].error_code, new[0].error_code) == (ErrorCode.KAFKA_STORAGE_ERROR, 0)
            assert b.logs.directory_of(tp(5)) == b.dirs[1]

    run(story)


def test_a_replica_in_a_failed_directory_cannot_be_deleted(tmp_path: Path) -> None:
    async def story() -> None:
        async with box(tmp_path) as b:
            await b.lead(0, 1)
            b.disk.fail("append", f"{b.dirs[0]}/*")
            with pytest.raises(KafkaStorageError):
                b.append(0, b"x")
            answer = await b.parts.roles.stop_replicas(delete(0, 1))
            codes = [one.error_code for one in answer.partition_errors]
            assert codes == [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NONE]

    run(story)


def test_a_replica_without_descriptors_to_begin_is_asked_for_until_it_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The controller takes who answered 56 for offline, and does not tell it again by itself."""
    monkeypatch.setattr("strandline.broker.upkeep.disk_failures.ASK_AGAIN_S", (0.01, 0.02))

    async def story() -> None:
        async with box(tmp_path) as b:
            short = b.disk.fail("open create", "*/t-0/*", errno.EMFILE)
            for asked in (1, 2, 3):
                (answer,) = await b.lead(0, leader=2, is_new=asked == 1)
                assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
                await until(lambda asked=asked: len(b.events()) == asked)  # type: ignore[misc]
            b.disk.heal(short)
            (answer,) = await b.lead(0, leader=2, is_new=False)
            assert (answer.error_code, b.replicas.get(tp(0)).log.end_offset) == (0, 0)
            assert not b.logs.places.offline and b.failed_dirs() == [] and not b.failures

    run(story)


def test_a_new_replica_that_could_not_be_made_is_none_of_a_directory_that_is_offline(tmp_path: Path) -> None:
    """It is told once that it is new. Told again it would be looked for where nobody can look."""

    async def story() -> None:
        async with box(tmp_path) as b:
            await b.lead(0)
            b.disk.fail("append", f"{b.dirs[0]}/*")
            with pytest.raises(KafkaStorageError):
                b.append(0, b"its directory fails")
            assert b.dirs[0] in b.logs.places.offline
            short = b.disk.fail("open create", "*/t-2/*", errno.EMFILE)
            (answer,) = await b.lead(2)
            assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            b.disk.heal(short)
            codes = [answer.error_code for answer in await b.lead(2, 4, is_new=False)]
            assert codes == [0, ErrorCode.KAFKA_STORAGE_ERROR], "the other one may lie there"
            assert b.logs.directory_of(tp(2)) == b.dirs[1]

    run(story)


def test_a_replica_that_cannot_forget_its_predecessor_is_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checkpoints that find no room make no directory full, so nobody waits for room there."""
    monkeypatch.setattr("strandline.broker.upkeep.disk_failures.ASK_AGAIN_S", (0.01, 0.02))

    async def story() -> None:
        async with box(tmp_path, "x") as b:
            await b.lead(0)
            b.append(0, b"x")
            b.logs.checkpoint_high_watermarks(lambda: {tp(0): 1})
            short = b.disk.fail("replace", "*-checkpoint", errno.ENOSPC)
            await b.parts.roles.stop_replicas(delete(0))
            (answer,) = await b.lead(0)
            assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            await until(lambda: len(b.events()) == 1)
            b.disk.heal(short)
            assert [e.error_code for e in await b.lead(0, is_new=False)] == [0]

    run(story)


def test_a_replica_without_descriptors_to_go_is_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its new name is not on the medium: whoever is told that it is deleted is told too early."""
    monkeypatch.setattr("strandline.broker.upkeep.disk_failures.ASK_AGAIN_S", (0.01, 0.02))

    async def story() -> None:
        async with box(tmp_path) as b:
            await b.lead(0)
            short = b.disk.fail("sync_dir", b.dirs[0], errno.EMFILE)
            for asked in (1, 2):
                answer = await b.parts.roles.stop_replicas(delete(0))
                assert answer.partition_errors[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
                await until(lambda asked=asked: len(b.events()) == asked)  # type: ignore[misc]
            b.disk.heal(short)
            answer = await b.parts.roles.stop_replicas(delete(0))
            assert answer.partition_errors[0].error_code == 0

    run(story)


def test_a_note_survives_a_new_session(tmp_path: Path) -> None:
    """The verdict of a registration while running knows nothing of what was lost since the start."""

    async def story() -> None:
        async with box(tmp_path) as b:
            await b.lead(0, 1)
            b.disk.fail("append", f"{b.dirs[0]}/*")
            with pytest.raises(KafkaStorageError):
                b.append(0, b"x")
            b.incarnations.give_up(b.dirs[0], OSError("EIO"))  # before the note is on the disk
            b.incarnations.write(Intactness(2, 1), flush_mode=False, keep_notes=True)
            assert b.remembered(1)["lost_note"] and b.remembered(1)["last_k"] == 2
            b.incarnations.write(Intactness(3, 3), flush_mode=False)
            assert not b.remembered(1)["lost_note"]

    run(story)


def test_a_damaged_log_is_one_replicas_matter(tmp_path: Path) -> None:
    async def story() -> None:
        async with box(tmp_path) as b:
            await b.lead(0, 2)
            b.replicas.get(tp(0)).disk_failed(LogDamaged(b.dirs[0], OSError(5, "bad batch")))
            await until(lambda: b.remembered(0)["doubts"] == ["t-0"])
            await until(lambda: b.registered == [([tp(0)], ["t-0"])])  # written down before it is registered
            assert b.append(2, b"goes on") == 0
            await until(lambda: len(b.events()) == 1)  # the controller asks, and elects another
            assert [e.error_code for e in await b.lead(0, 2)] == [ErrorCode.KAFKA_STORAGE_ERROR, 0]
            assert b.failed_dirs() == [] and not b.logs.places.offline

    run(story)


def test_a_log_of_another_topic_id_is_not_begun_anew_by_who_vouches_for_it(tmp_path: Path) -> None:
    """A flipped bit in partition.metadata, or a topic made anew: only the ISR can tell."""

    async def story() -> None:
        async with box(tmp_path) as b:
            for number in (0, 1):
                b.logs.create(tp(number), UUID(int=5), TopicConfig.of(b.config.storage))
            for _ in range(2):
                (answer,) = await b.lead(0, is_new=False, joined=EARLIER)
                assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert b.logs.get(tp(0)) is None
            await until(lambda: b.remembered(0)["doubts"] == ["t-0"])
            await until(lambda: len(b.events()) == 1)  # the controller asks, and takes it out of the ISR
            assert [e.error_code for e in await b.lead(0, leader=2, is_new=False)] == [0]
            assert b.replicas.get(tp(0)).log.end_offset == 0
            assert [e.error_code for e in await b.lead(1, is_new=False, joined=EARLIER + 1)] == [0]

    run(story)
    assert len(list(tmp_path.glob("*/t-?.*-stray"))) == 2, "their data is kept"


def test_a_log_without_a_topic_id_is_no_new_replica(tmp_path: Path) -> None:
    """Its topic was deleted while this broker was away, and made again: leader epochs begin at 0 each time,
    and nothing else would tell the old records from new ones.
    """

    async def story() -> None:
        async with box(tmp_path) as b:
            b.logs.create(tp(0), None, TopicConfig.of(b.config.storage))
            old = memoryview(bytearray(batch(b"of the old topic")))
            b.logs.logs[tp(0)].append(old, read_header(old), 0, 0)
            assert [e.error_code for e in await b.lead(0)] == [0]
            log = b.replicas.get(tp(0)).log
            assert (log.topic_id, log.end_offset) == (TOPIC_ID, 0)

    run(story)
    assert len(list(tmp_path.glob("*/t-0.*-stray"))) == 1, "its data is kept"


def test_a_topic_without_an_id_may_get_one(tmp_path: Path) -> None:
    """An old tool has made it, and an old controller has told of it; the next controller gives it an id."""

    async def story() -> None:
        async with box(tmp_path) as b:
            assert [e.error_code for e in await b.lead(0, topic_id=UUID(int=0))] == [0]
            log = b.replicas.get(tp(0)).log
            assert log.topic_id is None
            b.epoch -= 1  # nothing else changes
            assert [e.error_code for e in await b.lead(0, is_new=False)] == [0]
            assert log.topic_id == TOPIC_ID and b.replicas.name_of(TOPIC_ID) == TOPIC
            assert read_partition_metadata(b.disk, f"{log.directory}/{PARTITION_METADATA}") == TOPIC_ID

    run(story)


@pytest.mark.parametrize("room", [True, False])
def test_a_log_that_has_lost_its_topic_id_keeps_what_the_controller_says(tmp_path: Path, room: bool) -> None:
    """Otherwise no later start could tell it from that of a topic made anew."""

    async def story() -> None:
        async with box(tmp_path) as b:
            log = b.logs.create(tp(0), None, TopicConfig.of(b.config.storage))
            if not room:
                b.disk.fail("replace", f"*/{PARTITION_METADATA}", errno.ENOSPC)
            assert [e.error_code for e in await b.lead(0, is_new=False)] == [0]
            assert log.topic_id is not None
            kept = read_partition_metadata(b.disk, f"{log.directory}/{PARTITION_METADATA}")
            assert kept == (log.topic_id if room else None)
            assert b.append(0, b"goes on") == 0

    run(story)


def test_without_any_directory_the_broker_ends(tmp_path: Path) -> None:
    async def story() -> None:
        async with box(tmp_path) as b:
            await b.lead(0, 1)
            b.disk.fail("append", "*.log")
            for number in (0, 1):
                with pytest.raises(KafkaStorageError):
                    b.append(number, b"x")
            await until(lambda: b.failures != [])
            assert isinstance(b.failures[0], StorageLost)
            assert all(directory in str(b.failures[0]) for directory in b.dirs)
            assert len(b.failed_dirs()) == 2

    run(story)


def test_an_incarnation_is_written_over_where_there_is_no_room(tmp_path: Path) -> None:
    async def story() -> None:
        async with box(tmp_path) as b:
            b.disk.fail("replace", f"*/{INCARNATION}", errno.ENOSPC)
            b.incarnations.write(Intactness(22, 1), flush_mode=False)
            assert [b.remembered(place)["last_k"] for place in (0, 1)] == [22, 22]
            b.incarnations.note_doubt(None)
            assert b.remembered(0)["lost_note"]

    run(story)
