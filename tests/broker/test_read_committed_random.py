"""A reader of committed records beside random histories never sees too much, and in the end it saw all."""

import asyncio
from pathlib import Path
from random import Random

import pytest

from strandline.client.network.connection import Connection
from strandline.protocol.batches import headers
from strandline.protocol.markers import read_marker
from strandline.protocol.records import iterate
from tests.broker.replica_harness import ask, batch, produce
from tests.broker.transaction_harness import Scene, marker, scene, sent, transactional

PRODUCERS = (7, 8, 9, 10)
STEPS = 250


class Reader:
    """A consumer that filters as Kafka's clients do: by the aborted transactions that an answer names."""

    def __init__(self) -> None:
        self.position = 0
        self.seen: list[int] = []  # offsets

    async def read(self, play: Scene, bytes_max: int) -> None:
        """One fetch."""
        answer = await play.read(self.position, partition_max_bytes=bytes_max)
        assert answer.error_code == 0
        named = sorted((one.first_offset, one.producer_id) for one in answer.aborted_transactions)
        data, leaving_out = bytes(answer.records), set[int]()
        for at, header in headers(data):
            while named and named[0][0] <= header.last_offset:
                leaving_out.add(named.pop(0)[1])
            if header.is_control:
                end = read_marker(data, at, header)
                assert end is not None
                if not end.committed:
                    leaving_out.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in leaving_out):
                count = len(list(iterate(memoryview(data)[at : at + header.size])))
                offsets = range(header.base_offset, header.base_offset + count)
                self.seen += [offset for offset in offsets if offset >= self.position]
            self.position = header.next_offset


class History:
    """What is in the log, and what came of each record."""

    def __init__(self, play: Scene, coordinator: Connection, random: Random) -> None:
        self.play = play
        self.coordinator = coordinator
        self.random = random
        self.boundaries = [0]  # between batches: a follower has whole ones
        self.plain: list[int] = []
        self.open: dict[int, list[int]] = {}  # the offsets of each open transaction, by producer
        self.sequences = dict.fromkeys(PRODUCERS, 0)
        self.ended: list[tuple[int, bool, list[int]]] = []  # marker's offset, whether committed, its records
        self.markers: list[asyncio.Future[object]] = []

    @property
    def end(self) -> int:
        return int(self.play.partition.log.end_offset)

    async def write(self) -> None:
        """A plain batch, or one of a transaction."""
        values = [b"v" * self.random.randrange(200) for _ in range(self.random.randrange(1, 4))]
        offsets = list(range(self.end, self.end + len(values)))
        producer = self.random.choice((None, *PRODUCERS))
        if producer is None:
            await ask(self.play.client, produce(batch(*values), acks=1))
            self.plain += offsets
            self.boundaries.append(self.end)
            return
        records = transactional(*values, sequence=self.sequences[producer], producer_id=producer)
        answer = await ask(self.play.client, sent(records))
        assert answer.responses[0].partition_responses[0].error_code == 0
        self.sequences[producer] += len(values)
        self.open.setdefault(producer, []).extend(offsets)
        self.boundaries.append(self.end)

    async def finish(self, producer: int) -> None:
        """Write a marker; it is committed some time later."""
        committed, at = self.random.random() < 0.5, self.end
        soon = asyncio.get_running_loop().time() + 60
        ask_for = marker(committed=committed, producer_id=producer)
        self.markers.append(self.coordinator.submit(ask_for, deadline=soon))
        async with asyncio.timeout(20):
            while self.end == at:
                await asyncio.sleep(0)
        self.ended.append((at, committed, self.open.pop(producer)))
        self.boundaries.append(self.end)

    async def acknowledge(self, to: int) -> None:
        """The follower has everything before `to`."""
        if to > self.play.partition.leading.progress_of(2).end_offset:
            await self.play.acknowledge(to)

    def shown(self, watermark: int) -> set[int]:
        """What may be shown when the high watermark is there: all of it is decided and committed."""
        undecided = [offsets[0] for offsets in self.open.values()]
        undecided += [offsets[0] for at, _, offsets in self.ended if at >= watermark]
        stable = min([watermark, *undecided])
        kept = self.plain + [one for _, committed, offsets in self.ended if committed for one in offsets]
        return {offset for offset in kept if offset < stable}


@pytest.mark.parametrize("seed", range(4))
async def test_a_reader_never_sees_too_much_and_in_the_end_all(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    async with scene(tmp_path, **{"segment.bytes": "3000"}) as play:
        coordinator = await play.member.connect("PLAINTEXT")
        history, reader = History(play, coordinator, random), Reader()
        for _ in range(STEPS):
            match random.randrange(8):
                case 0 | 1 | 2 | 3:
                    await history.write()
                case 4 if history.open:
                    await history.finish(random.choice(list(history.open)))
                case 5:
                    await history.acknowledge(random.choice(history.boundaries[-8:]))
                case 6 | 7:
                    if random.random() < 0.5:
                        play.partition.log.forget_tail()
                    await reader.read(play, random.randrange(1, 4_000))
                    may = history.shown(play.partition.high_watermark)
                    assert reader.seen == sorted(may & set(range(reader.position)))
        for producer in list(history.open):
            await history.finish(producer)
        await history.acknowledge(history.end)
        for one in history.markers:
            await one
        while reader.position < history.end:
            await reader.read(play, 4_000)
        assert reader.seen == sorted(history.shown(history.end))
        await coordinator.close()
