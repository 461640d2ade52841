"""Producers that ask for anything in any order, while brokers fail: in the end no transaction is open.

They share transactional ids, so each fences the others; they write with old epochs and wrong sequences, to
partitions that they have not added, end what they have not begun, and abort by hand. Whatever comes of that,
a transaction that has timed out is aborted everywhere: nothing holds back readers of committed records.
"""

import asyncio
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from strandline.base.types import TopicPartition
from strandline.broker.coordinator_partitions import partition_of
from strandline.broker.node import Node
from strandline.broker.transactions.state import AT_REST
from strandline.client.network.connection import Connection
from strandline.protocol.errors import ApiError, ErrorCode
from strandline.protocol.messages import group_offsets, transactions
from strandline.protocol.messages.groups import FindCoordinatorRequest
from strandline.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from strandline.protocol.messages.producers import InitProducerIdRequest
from strandline.protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from strandline.protocol.records import BatchBuilder
from strandline.simulation.cluster import BROKERS, START_WALL_MS
from strandline.simulation.families import FAMILIES
from strandline.simulation.trace import Violation
from strandline.simulation.world import HEAL_WITHIN_S, World

NAMES, GROUPS, TOPIC, PARTITIONS = ("ta", "tb", "tc"), ("ga", "gb"), "q", 3
INTERNAL_PARTITIONS = 2
ACTORS = 6
NOBODY = (5, 0)  # a producer id that was never given out
CLEAN_WITHIN_S = 60.0
DEEDS = {
    "init": 3, "bump": 1, "add": 12, "add_offsets": 4, "produce": 24, "commit_offsets": 8, "end": 10,
    "by_hand": 1,
}  # fmt: skip


class Unruly(World):
    """A world with such producers; what they were answered is counted in `told`."""

    def __init__(self, seed: int, family: str, *settings: str) -> None:
        super().__init__(seed, replace(FAMILIES[family], groups=0.0, copies=False))
        self.cluster.settings = (*self.cluster.settings, *settings)
        self.told: Counter[tuple[str, int]] = Counter()
        self.goes_on = True
        self.known: dict[str, list[tuple[int, int]]] = {name: [NOBODY] for name in NAMES}
        self.sequences: Counter[tuple[tuple[int, int], int]] = Counter()
        self.connections: dict[tuple[str, int], Connection] = {}

    async def story(self) -> None:
        await self.begin()
        await self.prepare()
        actors = [self.loop.create_task(self.act(f"actor-{number}")) for number in range(ACTORS)]
        await self.faults.chaos()
        await self.faults.end()
        await asyncio.sleep(5)
        self.goes_on = False
        await asyncio.gather(*actors)
        await self.errands.finish()
        await self.mover.home()
        await self.judging.wait_healed(HEAL_WITHIN_S)
        await self.workload.finish()
        until = self.loop.now + CLEAN_WITHIN_S
        while left := self.left():
            if self.loop.now > until:
                raise Violation(f"not at rest: {'; '.join(left)}")
            await asyncio.sleep(0.5)

    async def prepare(self) -> None:
        topic = CreatableTopic(name=TOPIC, num_partitions=PARTITIONS, replication_factor=len(BROKERS))
        created = None
        while created is None or created.topics[0].error_code not in (0, ErrorCode.TOPIC_ALREADY_EXISTS):
            created = await self.ask("admin", 1, CreateTopicsRequest(topics=[topic], timeout_ms=3000))
            await asyncio.sleep(0.1)
        for kind, key in enumerate((GROUPS[0], NAMES[0])):
            await self.ask("admin", 1, FindCoordinatorRequest(key_type=kind, coordinator_keys=[key]))

    def left(self) -> list[str]:
        """What is not at rest."""
        return [fault for node in self.cluster.nodes.values() for fault in _unfinished(node)]

    # What they do.

    async def act(self, who: str) -> None:
        dice = self.loop.random
        while self.goes_on:
            await asyncio.sleep(dice.choice((0, 0.01, 0.05, 0.3)))
            (deed,) = dice.choices(list(DEEDS), list(DEEDS.values()))
            name = dice.choice(NAMES)
            known = self.known[name]
            producer = known[-1] if dice.random() < 0.85 else dice.choice(known)
            self.told[deed, await getattr(self, deed)(who, name, producer)] += 1

    def leader(self, topic: str, partition: int) -> int:
        tp = TopicPartition(topic, partition)
        for id, node in self.cluster.nodes.items():
            replica = node.broker.replicas.find(tp)
            if replica is not None and replica.leading is not None:
                return id
        return self.loop.random.choice(BROKERS)

    def coordinator(self, name: str) -> int:
        if self.loop.random.random() < 0.05:
            return self.loop.random.choice(BROKERS)
        return self.leader("__transaction_state", partition_of(name, INTERNAL_PARTITIONS))

    async def ask(self, who: str, broker: int, request: Any) -> Any:
        """The answer; None if there is none."""
        known, now = self.connections.get((who, broker)), self.loop.now
        try:
            if known is None or known.is_lost:
                known = await Connection.open(f"b{broker}", 9092, client_id=who, deadline=now + 2)
                self.connections[who, broker] = known
            return await known.request(request, deadline=self.loop.now + 4)
        except (OSError, ApiError):
            return None

    async def init(self, who: str, name: str, producer: tuple[int, int], **has: int) -> int:
        timeout_ms = self.loop.random.choice((500, 2000, 8000))
        request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=timeout_ms, **has)
        answer = await self.ask(who, self.coordinator(name), request)
        if answer is None:
            return -1
        if not answer.error_code:
            self.known[name] = [*self.known[name][-3:], (answer.producer_id, answer.producer_epoch)]
        return int(answer.error_code)

    async def bump(self, who: str, name: str, producer: tuple[int, int]) -> int:
        return await self.init(who, name, producer, producer_id=producer[0], producer_epoch=producer[1])

    async def add(self, who: str, name: str, producer: tuple[int, int]) -> int:
        some = {self.loop.random.randrange(PARTITIONS) for _ in range(2)}
        request = transactions.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=producer[0],
            v3_and_below_producer_epoch=producer[1],
            v3_and_below_topics=[transactions.AddPartitionsToTxnTopic(name=TOPIC, partitions=sorted(some))],
        )
        answer = await self.ask(who, self.coordinator(name), request)
        if answer is None:
            return -1
        (topic,) = answer.results_by_topic_v3_and_below
        return int(topic.results_by_partition[0].partition_error_code)

    async def add_offsets(self, who: str, name: str, producer: tuple[int, int]) -> int:
        request = transactions.AddOffsetsToTxnRequest(
            transactional_id=name,
            producer_id=producer[0],
            producer_epoch=producer[1],
            group_id=self.loop.random.choice(GROUPS),
        )
        answer = await self.ask(who, self.coordinator(name), request)
        return -1 if answer is None else int(answer.error_code)

    async def end(self, who: str, name: str, producer: tuple[int, int]) -> int:
        request = transactions.EndTxnRequest(
            transactional_id=name,
            producer_id=producer[0],
            producer_epoch=producer[1],
            committed=self.loop.random.random() < 0.5,
        )
        answer = await self.ask(who, self.coordinator(name), request)
        return -1 if answer is None else int(answer.error_code)

    async def produce(self, who: str, name: str, producer: tuple[int, int]) -> int:
        dice, index = self.loop.random, self.loop.random.randrange(PARTITIONS)
        expected = self.sequences[producer, index]
        sequence = expected if dice.random() < 0.9 else dice.choice((0, expected + 1, max(expected - 1, 0)))
        builder = BatchBuilder(
            producer_id=producer[0],
            producer_epoch=producer[1],
            base_sequence=sequence,
            transactional=dice.random() < 0.97,
        )
        builder.append(START_WALL_MS + int(self.loop.now * 1000), b"k", b"v", [])
        data = PartitionProduceData(index=index, records=builder.build())
        request = ProduceRequest(
            transactional_id=name,
            acks=dice.choice((-1, -1, 1)),
            timeout_ms=2000,
            topic_data=[TopicProduceData(name=TOPIC, partition_data=[data])],
        )
        answer = await self.ask(who, self.leader(TOPIC, index), request)
        if answer is None:
            return -1
        code = answer.responses[0].partition_responses[0].error_code
        if not code:
            self.sequences[producer, index] = sequence + 1
        return int(code)

    async def commit_offsets(self, who: str, name: str, producer: tuple[int, int]) -> int:
        group, offset = self.loop.random.choice(GROUPS), self.loop.random.randrange(1000)
        index = self.loop.random.randrange(PARTITIONS)
        one = group_offsets.TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=offset)
        request = group_offsets.TxnOffsetCommitRequest(
            transactional_id=name,
            group_id=group,
            producer_id=producer[0],
            producer_epoch=producer[1],
            topics=[group_offsets.TxnOffsetCommitRequestTopic(name=TOPIC, partitions=[one])],
        )
        answer = await self.ask(who, self.leader(*_offsets_of(group)), request)
        return -1 if answer is None else int(answer.topics[0].partitions[0].error_code)

    async def by_hand(self, who: str, name: str, producer: tuple[int, int]) -> int:
        """As `kafka-transactions --abort` does."""
        topic, index = TOPIC, self.loop.random.randrange(PARTITIONS)
        if self.loop.random.random() < 0.3:
            topic, index = _offsets_of(self.loop.random.choice(GROUPS))
        marker = transactions.WritableTxnMarker(
            producer_id=producer[0],
            producer_epoch=producer[1],
            transaction_result=False,
            topics=[transactions.WritableTxnMarkerTopic(name=topic, partition_indexes=[index])],
            coordinator_epoch=0,
        )
        request = transactions.WriteTxnMarkersRequest(markers=[marker])
        answer = await self.ask(who, self.leader(topic, index), request)
        return -1 if answer is None else int(answer.markers[0].topics[0].partitions[0].error_code)


def _offsets_of(group: str) -> TopicPartition:
    return TopicPartition("__consumer_offsets", partition_of(group, INTERNAL_PARTITIONS))


def _unfinished(node: Node) -> list[str]:
    """Transactions that are open, undecided or untold on this broker, and offsets that wait for one."""
    found, broker = [], node.broker
    for tp, replica in broker.replicas.partitions.items():
        is_judged = replica.leading is not None and tp.topic in (TOPIC, "__consumer_offsets")
        if is_judged and replica.last_stable_offset != replica.log.end_offset:
            open_here = list(replica.log.producers.open_transactions())
            found.append(f"{tp} is stable up to {replica.last_stable_offset}, open: {open_here}")
    for each in broker.transactions.all_transactions():
        if each.standing is None or each.standing.state not in AT_REST or each.writing is not None:
            found.append(f"{each.transactional_id}: {each.standing}, being written: {each.writing}")
    for held in broker.groups.held_groups():
        if held.offsets.unsettled:
            found.append(f"{held.group.name}: unsettled {held.offsets.unsettled}")
    return found


def play(family: str, seed: int) -> None:
    world = Unruly(seed, family)
    outcome = world.run()
    assert outcome.violation is None, outcome.violation
    done = {deed for deed, code in world.told if code == ErrorCode.NONE}
    assert done >= DEEDS.keys() - {"bump", "by_hand"}, f"nothing of the rest was ever done: {world.told}"


def test_nothing_is_left_open() -> None:
    play("threads", 15)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("family", ["transactions", "threads", "disks", "failover"])
def test_nothing_is_left_open_whatever_fails(family: str, seed: int) -> None:
    play(family, seed)


def test_without_a_question_to_the_coordinator_much_is_left_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """So the test would notice."""
    monkeypatch.setattr("tests.simulation.test_unruly.CLEAN_WITHIN_S", 15.0)
    outcome = Unruly(15, "threads", "transaction.partition.verification.enable=false").run()
    assert outcome.violation is not None and "not at rest" in outcome.violation
