"""Members of a group that copy what they read, exactly once (KIP-447), as random histories (group_runs.py).

Each has a transactional id of its own, and sends the offsets with its group's metadata. Aborting, it seeks
back to what the group has committed, in the partitions that it has then. In the end every record has been
copied once, as readers of committed records see it.
"""

import asyncio
from collections.abc import Mapping
from random import Random
from typing import Any

from strandline.base.types import TopicPartition
from strandline.client.admin.admin import Admin
from strandline.client.consumer.consumer import Consumer
from strandline.client.producer.producer import Producer
from strandline.client.producer.transaction_rules import State
from strandline.client.producer.transactions import TransactionAborted
from strandline.protocol.errors import ApiError, RequestTimedOut
from strandline.simulation.cluster import BOOTSTRAP
from strandline.simulation.environment.host import Host
from tests.simulation.group_histories import OPTIONS, TOPIC, GroupWorld, Member

COPIES = "copies"
OPEN = (State.IN_TRANSACTION, State.ABORTABLE_ERROR)
REFUSALS = (ApiError, TransactionAborted, LookupError, TimeoutError)


class Copier(Member):
    """Reads, copies and commits in one transaction after the other."""

    async def life(self) -> None:
        self.consumer = Consumer(
            BOOTSTRAP, topics=[TOPIC], enable_auto_commit=False, group_instance_id=self.seat,
            partition_assignment_strategy=self.world.strategy, max_poll_records=self.draw.choice((3, 7, 500)),
            random=Random(self.draw.getrandbits(64)), **OPTIONS,
        )  # fmt: skip
        async with self.consumer:
            while not self.leaves:
                producer = Producer(
                    BOOTSTRAP,
                    transactional_id=self.host.name,
                    transaction_timeout_ms=5_000,
                    max_block_ms=8_000,
                    request_timeout_ms=3_000,
                    clock=self.world.cluster.clock,
                    random=Random(self.draw.getrandbits(64)),
                )
                try:
                    async with producer:
                        while not self.leaves:
                            await self.copy(producer)
                except (ApiError, OSError, TransactionAborted) as end:
                    self.world.trace.note(f"{self.host.name}: begins again: {end!r}")

    async def copy(self, producer: Producer) -> None:
        """One transaction; raises what ends the producer."""
        records = await self.consumer.poll(self.draw.choice((0, 100, 1_000)), self.draw.choice((None, 3)))
        if not records:
            return
        ends = {TopicPartition(one.topic, one.partition): one.offset + 1 for one in records}
        try:
            async with asyncio.timeout(self.draw.choice((0.05, 1.0, None, None, None))):
                async with producer.transaction():
                    for one in records:
                        producer.send(
                            COPIES, b"%d:%d" % (one.partition, one.offset), partition=one.offset % 2
                        )
                        await asyncio.sleep(self.draw.choice((0, 0, 0.01)))
                    await asyncio.sleep(self.draw.choice((0, 0, 0, 0.3, 2.0)) * self.dawdles)
                    if self.draw.random() < 0.1 * self.dawdles:
                        raise LookupError("it changes its mind")
                    await producer.send_offsets(ends, self.consumer.group_metadata(ends))
            return
        except REFUSALS as refusal:
            self.world.trace.note(f"{self.host.name}: {ends} not copied: {refusal!r}")
            trouble: BaseException = refusal
        transactions: Any = producer._transactions
        while transactions.is_undecided or transactions.rules.state in OPEN:
            name = transactions._operation.name if transactions.is_undecided else "abort"
            try:
                await {"commit": producer.commit, "abort": producer.abort}.get(
                    name, producer.init_transactions
                )()
                if name == "commit":
                    return
            except RequestTimedOut:
                continue
            except REFUSALS as refusal:
                trouble = refusal
        await self.go_back(ends)
        if transactions.rules.state is State.FATAL_ERROR:
            raise transactions.rules.error or trouble

    async def go_back(self, places: Any) -> None:
        """To what the group has committed, in what is still ours."""
        while True:
            before = self.consumer.assignment(), self.generation
            mine = sorted(before[0] & places.keys())
            try:
                found = await self.consumer.committed(*mine) if mine else {}
            except ApiError:
                continue
            if (self.consumer.assignment(), self.generation) == before:
                for tp, one in found.items():
                    self.consumer.seek(tp, one.offset if one is not None else 0)
                return

    @property
    def dawdles(self) -> bool:
        """Whether there is time to dawdle: at the end all is to be copied soon."""
        return not self.world.is_calm

    @property
    def generation(self) -> int:
        return self.consumer._subscription.membership.member.generation


class CopyingWorld(GroupWorld):
    """The group copies; what it has copied is read by somebody else."""

    kind = Copier

    async def _prepare(self) -> None:
        await super()._prepare()
        async with Admin(BOOTSTRAP, random=Random(4)) as admin:
            await admin.create_topic(COPIES, 2, 3)
        self.loop.spawn(Host("reader"), self._read())

    def accepted(self, offsets: Mapping[TopicPartition, Any]) -> None:
        """The copies are what counts."""

    async def _read(self) -> None:
        options = {"auto_offset_reset": "earliest", "isolation_level": "read_committed"}
        async with Consumer(BOOTSTRAP, topics=[COPIES], random=Random(5), **options) as consumer:
            async for record in consumer:
                partition, offset = map(int, record.value.split(b":"))
                tp = TopicPartition(TOPIC, partition)
                if offset in self.done[tp]:
                    self.complain(
                        f"{tp}@{offset} is copied twice, again at {record.partition}@{record.offset}"
                    )
                self.done[tp].add(offset)
