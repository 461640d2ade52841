"""Members of groups with the bundled client: subscribers, and copiers that commit offsets in transactions.

Left to others: what transactions share (outcomes.py).
"""

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from ....base.types import TopicPartition as Place
from ....client.consumer.consumer import Consumer
from ....client.consumer.subscription import RebalanceListener
from ....client.producer.producer import Producer
from ....client.results import ConsumerRecord
from ....protocol.errors import ApiError
from ...anomalies import UNKNOWN, Action, Record, Type
from .client import ABORTED_BY_CHOICE, STOP, Client, bytes_of, copiers, value_in
from .outcomes import abort, end, initialized, settled

COMMIT_EVERY_S = 1.0
POLL_MS = 200
COPIED_AT_ONCE = 50
MEMBER: dict[str, Any] = {
    "enable_auto_commit": False,
    "auto_offset_reset": "earliest",
    "isolation_level": "read_committed",
    "session_timeout_ms": 6_000,
    "heartbeat_interval_ms": 1_000,
}


class Moves(RebalanceListener):
    """Notes that a member was moved, nobody knows to where, and forgets what it has read and not
    committed.
    """

    def __init__(self, client: Client, read_to: dict[Place, int]) -> None:
        self.client, self.read_to = client, read_to

    def on_partitions_assigned(self, partitions: list[Place]) -> None:
        self._moved()

    def on_partitions_revoked(self, partitions: list[Place]) -> None:
        self._moved()

    def _moved(self) -> None:
        self.read_to.clear()
        self.client.notes.note(Type.OK, Action.MOVED)


async def subscriber(client: Client) -> None:
    """Reads what its group gives it, commits it, and asks what is committed."""
    read_to = dict[Place, int]()
    async with Consumer(client.bootstrap, group=client.job.prefix + client.group, **MEMBER) as consumer:
        consumer.subscribe(client.topics, listener=Moves(client, read_to))
        committed_s = time.monotonic()
        while not STOP.is_set():
            records = await consumer.poll(POLL_MS)
            noted(client, records)
            for one in records:
                read_to[Place(one.topic, one.partition)] = one.offset + 1
            if time.monotonic() - committed_s >= COMMIT_EVERY_S:
                await commit(client, consumer, read_to)
                committed_s = time.monotonic()


def noted(client: Client, records: Sequence[ConsumerRecord]) -> None:
    """What was handed out, on the history."""
    if records:
        found = [Record(one.topic, one.partition, one.offset, value_in(one.value)) for one in records]
        client.notes.note(Type.OK, Action.POLL, found)


async def commit(client: Client, consumer: Consumer, read_to: dict[Place, int]) -> None:
    """Commit what was read, then ask for it."""
    given, group = dict(read_to), client.group
    read_to.clear()
    if not given:
        return
    offsets = [Record(*place, offset=offset) for place, offset in given.items()]
    client.notes.note(Type.INVOKE, Action.OFFSETS, offsets, group=group)
    try:
        await consumer.commit(given)
    except ApiError as error:  # the group has moved on, or the coordinator has
        client.notes.note(Type.INFO, Action.OFFSETS, offsets, group=group, error=repr(error))
        return
    client.notes.note(Type.OK, Action.OFFSETS, offsets, group=group)
    client.notes.note(Type.INVOKE, Action.TOLD, group=group)
    try:
        found = await consumer.committed(*given)
    except ApiError as error:
        client.notes.note(Type.INFO, Action.TOLD, group=group, error=repr(error))
        return
    told = [Record(*place, offset=UNKNOWN if mark is None else mark.offset) for place, mark in found.items()]
    client.notes.note(Type.OK, Action.TOLD, told, group=group)


async def copier(client: Client) -> None:
    """Each transaction copies what one poll has given, and commits the group's offsets."""
    options: dict[str, Any] = {"transaction_timeout_ms": client.job.transaction_ms, "max_block_ms": 20_000}
    group = copiers(client.job.prefix, client.topics[0])
    async with (
        Producer(client.bootstrap, transactional_id=client.transactional_id, **options) as producer,
        Consumer(client.bootstrap, group=group, **MEMBER) as consumer,
    ):
        await initialized(client, producer)
        consumer.subscribe(client.topics, listener=Moves(client, {}))
        number = 0
        while not STOP.is_set():
            records = await consumer.poll(POLL_MS, COPIED_AT_ONCE)
            noted(client, records)
            if not records:
                continue
            number += 1
            if not await copied(client, producer, consumer, records, number):
                await rewind(client, consumer)


async def copied(
    client: Client, producer: Producer, consumer: Consumer, records: Sequence[ConsumerRecord], number: int
) -> bool:
    """Copy these in one transaction; whether it was committed."""
    target = client.job.to
    assert target is not None, "the scenario has been checked"
    copies = [
        Record(target, one.partition, value=client.value(), source=value_in(one.value)) for one in records
    ]
    offsets = {Place(one.topic, one.partition): one.offset + 1 for one in records}
    producer.begin()
    client.notes.note(Type.INVOKE, Action.SEND, copies, transaction=number)
    sent = [producer.send(one.topic, bytes_of(one), partition=one.partition) for one in copies]
    await settled(client, copies, sent, number)
    try:
        await producer.send_offsets(offsets, consumer.group_metadata(offsets))
    except ApiError:  # it is no member any more, or a record has failed
        await abort(client, producer, number)
        return False
    return await end(client, producer, number, client.random.random() >= ABORTED_BY_CHOICE)


async def rewind(client: Client, consumer: Consumer) -> None:
    """Back to what the group has committed."""
    while not STOP.is_set():
        places = sorted(consumer.assignment())
        if not places:
            return
        try:
            told = await consumer.committed(*places)
        except ApiError:  # the coordinator moves
            await asyncio.sleep(POLL_MS / 1000)
            continue
        begins = {place: 0 if mark is None else mark.offset for place, mark in told.items()}
        if set(places) != set(consumer.assignment()):
            continue
        for place, offset in begins.items():
            consumer.seek(place, offset)
        client.notes.note(
            Type.OK, Action.MOVED, [Record(*place, offset=offset) for place, offset in begins.items()]
        )
        return
