"""compression.type: what comes in another codec is compressed anew, in a thread, and nothing is overtaken."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from threading import Event, current_thread, main_thread
from typing import Any

import pytest

from strandline.base.options import InvalidOption
from strandline.broker.handlers import produce as produce_handler
from strandline.broker.replicas import recompression
from strandline.broker.replicas.recompression import Target, target_of
from strandline.client.network.connection import Connection, ConnectionLost
from strandline.protocol.batches import CODEC_MASK, HEADER_SIZE, crc_ok, headers, read_header, seal
from strandline.protocol.compression import Codec, compress, decompress
from strandline.protocol.errors import ErrorCode, InvalidTopic
from strandline.protocol.records import BatchBuilder, iterate
from strandline.storage.config import StorageConfig, TopicConfig
from tests.broker.replica_harness import ask, cluster, fetch, fetched, outcome, produce, until

CODEC_OF = {"uncompressed": Codec.NONE, **{codec.name.lower(): codec for codec in list(Codec)[1:]}}
Story = Callable[[Any, Connection], Awaitable[None]]


def batch(codec: int, *values: bytes, pid: int = -1, seq: int = -1) -> bytes:
    builder = BatchBuilder(codec, producer_id=pid, producer_epoch=0 if pid >= 0 else -1, base_sequence=seq)
    for place, value in enumerate(values):
        builder.append(1000 + place, b"key", value + b"." * 300, [("h", b"x")])  # worth compressing
    return bytes(builder.build())


def play(directory: Path, story: Story, members: int = 1, **storage: Any) -> None:
    async def run() -> None:
        async with cluster(directory, members, storage=storage) as stage:
            await stage.elect(1, list(range(1, members + 1)))
            client = await stage.members[1].connect()
            await story(stage, client)
            await client.close()
            assert not stage.members[1].failures

    asyncio.run(run())


async def stored(client: Connection) -> bytes:
    return bytes(fetched(await ask(client, fetch(0))).records or b"")


def codecs(data: bytes) -> list[int]:
    assert all(crc_ok(data, at, header) for at, header in headers(data))
    return [header.codec for _, header in headers(data)]


@pytest.mark.parametrize("kind", CODEC_OF)
@pytest.mark.parametrize("came", list(Codec))
def test_every_batch_is_kept_in_the_codec_of_its_topic(tmp_path: Path, came: Codec, kind: str) -> None:
    """And is otherwise what it was, at the leader and, byte for byte, at its follower."""
    sent = batch(came, b"a" * 500, b"b", b"", pid=7, seq=0)

    async def story(stage: Any, client: Connection) -> None:
        assert outcome(await ask(client, produce(sent))) == (0, 0)
        assert outcome(await ask(client, produce(batch(came, b"c", pid=7, seq=3)))) == (0, 3)
        data = await stored(client)
        assert codecs(data) == [CODEC_OF[kind]] * 2
        before, after = read_header(sent), read_header(data)
        same = {"batch_length": 0, "crc": 0, "attributes": 0, "leader_epoch": 0}
        assert after._replace(**same) == before._replace(**same)
        assert after.attributes & ~CODEC_MASK == before.attributes & ~CODEC_MASK
        assert list(iterate(data))[:3] == list(iterate(sent))
        await until(lambda: stage.members[2].partition.log.end_offset == 4)
        files = [(tmp_path / str(n) / "t-0" / f"{0:020d}.log").read_bytes() for n in (1, 2)]
        assert files[0] == files[1] == data

    play(tmp_path, story, 2, compression_type=kind)


def test_producer_keeps_what_came_and_no_thread_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recompression, "recoded", None)

    async def story(stage: Any, client: Connection) -> None:
        for place, codec in enumerate(Codec):
            assert outcome(await ask(client, produce(batch(codec, b"x")))) == (0, place)
        assert codecs(await stored(client)) == list(Codec)
        assert not stage.members[1].parts.shared.recoding.is_wanted

    play(tmp_path, story)


class Slow:
    """`recoded` in a thread that can be made to wait."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.began, self.may_end, self.times, self._real = Event(), Event(), 0, recompression.recoded
        monkeypatch.setattr(recompression, "recoded", self)

    def __call__(self, records: bytes, target: Target) -> memoryview:
        assert current_thread() is not main_thread()
        self.times += 1
        self.began.set()
        assert self.may_end.wait(20)
        return self._real(records, target)


async def begun(client: Connection, slow: Slow, records: bytes) -> "asyncio.Future[Any]":
    asking = asyncio.ensure_future(ask(client, produce(records)))
    assert await asyncio.to_thread(slow.began.wait, 20)
    return asking


def test_what_follows_on_a_connection_waits_and_others_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second batch is in the right codec: it would be out of order if it overtook the first one."""
    slow = Slow(monkeypatch)

    async def story(stage: Any, client: Connection) -> None:
        first = await begun(client, slow, batch(Codec.LZ4, b"1", pid=7, seq=0))
        second = asyncio.ensure_future(ask(client, produce(batch(Codec.ZSTD, b"2", pid=7, seq=1))))
        other = await stage.members[1].connect()
        assert outcome(await ask(other, produce(batch(Codec.ZSTD, b"other")))) == (0, 0)
        assert not first.done() and not second.done()
        slow.may_end.set()
        assert [outcome(await each) for each in (first, second)] == [(0, 1), (0, 2)]
        await other.close()

    play(tmp_path, story, compression_type="zstd")


@pytest.mark.parametrize("kind", ["zstd", "gzip", "producer"])
def test_who_fetches_as_before_zstd_is_told_that_the_topic_is_of_it(tmp_path: Path, kind: str) -> None:
    """KafkaApis: UNSUPPORTED_COMPRESSION_TYPE before Fetch 10, instead of batches that cannot be opened."""

    async def story(stage: Any, client: Connection) -> None:
        assert outcome(await ask(client, produce(batch(Codec.NONE, b"x")))) == (0, 0)
        for version in (9, 10, 16):
            found = fetched(await ask(client, fetch(0), version))
            refused = kind == "zstd" and version == 9
            assert found.error_code == (ErrorCode.UNSUPPORTED_COMPRESSION_TYPE if refused else 0)
            assert bool(found.records) is not refused

    play(tmp_path, story, compression_type=kind)


def test_what_was_sent_before_is_not_worked_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Slow(monkeypatch)
    slow.may_end.set()

    async def story(stage: Any, client: Connection) -> None:
        sent = batch(Codec.GZIP, b"1", pid=7, seq=0)
        for _ in range(3):
            assert outcome(await ask(client, produce(sent))) == (0, 0)
        early = outcome(await ask(client, produce(batch(Codec.GZIP, b"3", pid=7, seq=2))))
        assert early[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert slow.times == 1

    play(tmp_path, story, compression_type="snappy")


def test_leadership_is_asked_again_when_the_thread_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Slow(monkeypatch)

    async def story(stage: Any, client: Connection) -> None:
        asking = await begun(client, slow, batch(Codec.LZ4, b"1"))
        stage.members[1].partition.resign()
        slow.may_end.set()
        assert outcome(await asking)[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert stage.members[1].partition.log.end_offset == 0

    play(tmp_path, story, compression_type="zstd")


def test_a_peer_that_has_gone_meanwhile_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Slow(monkeypatch)

    async def story(stage: Any, client: Connection) -> None:
        connections = stage.members[1].server.admission.connections
        before, goes = len(connections), await stage.members[1].connect()
        asking = await begun(goes, slow, batch(Codec.LZ4, b"1"))
        await goes.close()
        with pytest.raises(ConnectionLost):
            await asking
        slow.may_end.set()
        await until(lambda: len(connections) == before)
        assert not stage.members[1].parts.shared.recoding._under_way
        assert outcome(await ask(client, produce(batch(Codec.ZSTD, b"2"))))[0] == 0

    play(tmp_path, story, compression_type="zstd")


def test_a_request_that_is_refused_after_its_wait_is_refused_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, recode = [], produce_handler._recode

    def second_time(*given: Any) -> None:
        looks.append(given)
        if len(looks) == 2:
            raise InvalidTopic("of late")
        recode(*given)

    monkeypatch.setattr(produce_handler, "_recode", second_time)

    async def story(stage: Any, client: Connection) -> None:
        sent = batch(Codec.LZ4, b"1")
        assert outcome(await ask(client, produce(sent)))[0] == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert len(looks) == 2
        assert outcome(await ask(client, produce(sent))) == (0, 0)

    play(tmp_path, story, compression_type="zstd")


def damaged(how: str) -> bytes:
    data = bytearray(batch(Codec.GZIP, b"x" * 100))
    data[-5] ^= 0xFF
    if how != "checksum":
        seal(data, 0, len(data))
    return bytes(data)


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (damaged("checksum"), ErrorCode.CORRUPT_MESSAGE),
        (damaged("section"), ErrorCode.INVALID_RECORD),
        (batch(Codec.GZIP, b"x" * 5000), ErrorCode.MESSAGE_TOO_LARGE),  # once it is opened
    ],
)
def test_what_cannot_be_made_over_is_refused(tmp_path: Path, sent: bytes, code: ErrorCode) -> None:
    async def story(stage: Any, client: Connection) -> None:
        assert outcome(await ask(client, produce(sent)))[0] == code
        assert outcome(await ask(client, produce(batch(Codec.GZIP, b"good")))) == (0, 0)

    play(tmp_path, story, compression_type="uncompressed", message_bytes_max=2000)


def test_old_producers_may_write_to_a_topic_that_is_kept_in_zstd(tmp_path: Path) -> None:
    async def story(stage: Any, client: Connection) -> None:
        assert outcome(await ask(client, produce(batch(Codec.LZ4, b"x")), version=3)) == (0, 0)
        theirs = outcome(await ask(client, produce(batch(Codec.ZSTD, b"x")), version=3))
        assert theirs[0] == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        assert codecs(await stored(client)) == [Codec.ZSTD]

    play(tmp_path, story, compression_type="zstd")


def topic(**names: str) -> TopicConfig:
    told = {name.replace("_", "."): text for name, text in names.items()}
    return TopicConfig.from_names(told, StorageConfig())


def test_levels_are_those_of_kafka() -> None:
    assert target_of(topic()) is None
    for kind, level, meant in (
        ("gzip", "-1", None), ("gzip", "9", 9), ("lz4", "9", None), ("lz4", "3", 3), ("lz4", "17", 12),
        ("zstd", "3", 3), ("zstd", "-7", -7),
    ):  # fmt: skip
        names = {"compression_type": kind, f"compression_{kind}_level": level}
        target = target_of(topic(**names))
        assert target == Target(CODEC_OF[kind], meant)
        data = b"some of the same, some of the same" * 50
        assert decompress(target.codec, compress(target.codec, data, target.level)) == data
    for kind, level in (("gzip", "0"), ("gzip", "10"), ("lz4", "0"), ("lz4", "18"), ("zstd", "23")):
        with pytest.raises(InvalidOption):
            topic(**{f"compression_{kind}_level": level})


def test_harder_levels_give_less() -> None:
    text = b"".join(b"%d:%d;" % (n % 97, n * n % 1013) for n in range(5000))
    sent = batch(Codec.NONE, text)
    for codec, quick, thorough in ((Codec.GZIP, 1, 9), (Codec.LZ4, None, 9), (Codec.ZSTD, -5, 19)):
        sizes = [len(recompression.recoded(sent, Target(codec, level))) for level in (quick, thorough)]
        assert sizes[0] > sizes[1] > HEADER_SIZE
