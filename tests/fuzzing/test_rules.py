"""The fuzzer complains: of a log that has other bytes, of answers that are none, of connections kept open."""

import asyncio
import mmap
import os
import struct
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from strandline.protocol.apis import APIS, Api
from strandline.protocol.connection import frame_response
from strandline.protocol.messages.groups import HeartbeatRequest, HeartbeatResponse
from strandline.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from tests.fuzzing.drawing import Drawing
from tests.fuzzing.judging import Judge
from tests.fuzzing.known import STILL, VICTIM, Known
from tests.fuzzing.ledger import Ledger
from tests.fuzzing.lines import Lines
from tests.fuzzing.model import Asked, read
from tests.fuzzing.progress import Progress
from tests.fuzzing.run import main
from tests.fuzzing.watch import Watch
from tests.listener import Listener
from tests.patience import HANG_S
from tests.protocol.damaged import batch

IDS = {STILL: UUID(int=1 << 100), VICTIM: UUID(int=1 << 101)}


def placed(base_offset: int, data: bytes) -> bytes:
    """A batch as a broker writes it: at its offset."""
    return struct.pack(">q", base_offset) + data[8:]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / f"{STILL}-0" / "00000000000000000000.log"
    path.parent.mkdir()
    path.write_bytes(b"")
    return path


def accept(ledger: Ledger, base_offset: int, data: bytes, error: int = 0) -> None:
    """A produce of one batch and its answer."""
    partition = PartitionProduceData(index=0, records=data)
    topic = TopicProduceData(name=STILL, partition_data=[partition])
    answer = PartitionProduceResponse(index=0, base_offset=base_offset, error_code=error)
    ledger.accepted(
        ProduceRequest(acks=1, timeout_ms=1, topic_data=[topic]),
        ProduceResponse(responses=[TopicProduceResponse(name=STILL, partition_responses=[answer])]),
    )


class TestTheLog:
    def test_has_what_was_accepted(self, log: Path) -> None:
        ledger, data = Ledger(), batch(Random(1), "none")
        for base in (0, 20):
            accept(ledger, base, data)
            accept(ledger, 99, data, error=87)
            log.write_bytes(log.read_bytes() + placed(base, data))
            ledger.check(log.parents[1])
        assert ledger.complaints == [] and ledger.accepted_batches == 2

    def test_has_bytes_of_a_refused_request(self, log: Path) -> None:
        ledger, data = Ledger(), batch(Random(1), "none")
        accept(ledger, 0, data, error=87)
        log.write_bytes(placed(0, data))
        ledger.check(log.parents[1])
        assert "not a batch that was accepted" in ledger.complaints[0]

    def test_has_another_batch_than_the_accepted_one(self, log: Path) -> None:
        ledger = Ledger()
        accept(ledger, 0, batch(Random(1), "none"))
        log.write_bytes(placed(0, batch(Random(2), "none")))
        ledger.check(log.parents[1])
        assert "not a batch that was accepted" in ledger.complaints[0]

    def test_lacks_an_accepted_batch(self, log: Path) -> None:
        ledger = Ledger()
        accept(ledger, 0, batch(Random(1), "none"))
        ledger.check(log.parents[1])
        assert "is not in the log" in ledger.complaints[0]

    @pytest.mark.parametrize("change", [lambda d: d[:-1] + b"?", lambda d: d[:-9]])
    def test_changes_later(self, log: Path, change: Callable[[bytes], bytes]) -> None:
        ledger, data = Ledger(), batch(Random(1), "none")
        accept(ledger, 0, data)
        log.write_bytes(placed(0, data))
        ledger.check(log.parents[1])
        log.write_bytes(change(log.read_bytes()))
        ledger.check(log.parents[1])
        assert "have changed" in ledger.complaints[0]


def heartbeat(correlation_id: int = 7) -> Asked:
    drawing = Drawing(Random(1), IDS)
    drawing.usual = drawing.difficult = [(Api.HEARTBEAT, 4)]
    return drawing.whole(correlation_id)


def answered(correlation_id: int = 7, code: int = 25) -> bytes:
    """The answer to a heartbeat, without its size."""
    parts = frame_response(Api.HEARTBEAT, 4, correlation_id, HeartbeatResponse(error_code=code))
    return b"".join(bytes(part) for part in parts)[4:]


class TestAnAnswer:
    @pytest.mark.parametrize(
        ("answer", "complaint"),
        [
            (answered(), ""),
            (answered(correlation_id=8), "the answer to another request"),
            (answered(code=-1), "nobody foresaw"),
            (answered() + b"\0", "bytes are left"),
            (answered()[:-1], "ends too early"),
        ],
    )
    def test_is_judged(self, answer: bytes, complaint: str) -> None:
        judge = Judge(Known(Random(1), IDS), Ledger())
        for _ in range(2):
            judge.look(heartbeat(), answer)
        assert all(complaint in each for each in judge.complaints) and len(judge.complaints) == 2 * bool(
            complaint
        )

    def test_is_decoded_once(self) -> None:
        judge = Judge(Known(Random(1), IDS), Ledger())
        for number in range(5):
            judge.look(heartbeat(number), answered(number))
        assert judge.decoded == 1 and judge.errors == {(Api.HEARTBEAT, 25)}


async def frames_of(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """The frames that come, with their sizes, until one is too short or too long."""
    while True:
        size = int.from_bytes(head := await reader.readexactly(4), "big", signed=True)
        if not 8 <= size < 1 << 27:
            return
        yield head + await reader.readexactly(size)


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, breaking: str) -> None:
    """Answers heartbeats as a broker does, with one rule broken."""
    number = 0
    async for frame in frames_of(reader):
        number += 1
        asked = read(frame)
        if asked is None or not isinstance(asked.request, HeartbeatRequest):
            if breaking != "stays open":
                return
        elif number == 4 and breaking == "ends":
            return
        elif number != 4 or breaking != "no answer":
            parts = frame_response(asked.api, asked.version, asked.correlation_id, HeartbeatResponse())
            writer.write(b"".join(bytes(part) for part in parts))


@pytest.mark.parametrize(
    ("breaking", "complaint"),
    [
        ("", ""),
        ("no answer", "the answer to another request"),
        ("ends", "no answer, the connection ended"),
        ("stays open", "it stayed open after a frame that is malformed"),
    ],
)
async def test_a_broker_that_breaks_a_rule_is_noticed(breaking: str, complaint: str) -> None:
    random = Random(1)
    drawing = Drawing(random, IDS)
    drawing.usual = drawing.difficult = [(Api.HEARTBEAT, v) for v in APIS[Api.HEARTBEAT].served]
    judge = Judge(drawing.known, Ledger())
    listener = Listener(lambda reader, writer: serve(reader, writer, breaking))
    wait_s = 2.0 if breaking == "stays open" else HANG_S
    lines = Lines(random, drawing, judge, await listener.listen(), wait_s)

    def enough() -> bool:
        return lines.sent.whole.total() > 1_000 and lines.sent.ended["malformed"] > 20

    def run() -> None:
        while not judge.complaints and not (enough() and not complaint):
            lines.round()
        lines.settle()
        lines.close()

    await asyncio.to_thread(run)
    listener.close()
    await asyncio.sleep(0)  # what was cut is closed in the loop's next turn
    async with asyncio.timeout(HANG_S):
        while len(asyncio.all_tasks()) > 1:
            await asyncio.sleep(0)
    assert bool(judge.complaints) == bool(complaint)
    assert all(complaint in each for each in judge.complaints[:1])


def process(log: Path, pid: int, alive: bool = True) -> Any:
    return SimpleNamespace(log=log, pid=pid, alive=alive)


class TestTheProcess:
    def test_has_written_a_traceback(self, tmp_path: Path) -> None:
        log = tmp_path / "log"
        log.write_text("fine\n")
        watch = Watch(process(log, os.getpid()))
        watch.look()
        assert not [each for each in watch.complaints if "traceback" in each]
        with log.open("a") as file:
            file.write("Traceback (most recent call last):\n")
        watch.look()
        assert any("traceback" in each for each in watch.complaints)

    def test_has_ended(self, tmp_path: Path) -> None:
        log = tmp_path / "log"
        log.write_text("the last words")
        broker = process(log, os.getpid())
        watch = Watch(broker)
        broker.alive = False
        watch.look()
        assert "the last words" in watch.complaints[0]

    def test_has_reserved_what_a_frame_claimed(self, tmp_path: Path) -> None:
        log = tmp_path / "log"
        log.write_text("")
        watch = Watch(process(log, os.getpid()))
        mmap.mmap(-1, (1 << 31) - 1).close()
        watch.look()
        assert any("reserved" in each for each in watch.complaints)


class TestProgress:
    def test_goes_on_and_adds_up(self, tmp_path: Path) -> None:
        path = tmp_path / "fuzzed.json"
        first, other = Progress(path, 1), Progress(path, 2)
        first.own.frames, first.own.rounds = 10, 3
        first.own.whole["FETCH v4"] = 9
        first.save()
        other.own.frames = 5
        other.save()
        assert other.frames == 15
        again = Progress(path, 1)
        assert (again.frames, again.own.rounds, again.own.whole) == (15, 3, {"FETCH v4": 9})

    @pytest.mark.parametrize(
        ("complaints", "told"), [(["it ended"], "it ended"), ([], "all of the 10 frames")]
    )
    def test_a_run_that_has_ended_is_told(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], complaints: list[str], told: str
    ) -> None:
        progress = Progress(tmp_path / "fuzzed.json", 1)
        progress.own.frames, progress.own.complaints = 10, complaints
        progress.save()
        with pytest.raises(SystemExit) as ended:
            main(10, 1, tmp_path / "fuzzed.json", HANG_S)
        assert told in capsys.readouterr().out and ended.value.code == bool(complaints)

    def test_a_file_of_something_else_is_named(self, tmp_path: Path) -> None:
        path = tmp_path / "fuzzed.json"
        path.write_text("[]")
        with pytest.raises(SystemExit, match="is not a file that `make fuzz` has written"):
            Progress(path, 1)
