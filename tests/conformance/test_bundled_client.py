"""What the bundled client does beyond a plain round trip: transactions, interceptors, times, administration.

The same stories are told by test_client_on_kafka.py to Apache Kafka 3.9.
"""

import uuid
from collections.abc import Mapping
from typing import Any

import pytest
from driving import until

from strandline.base.types import TopicPartition
from strandline.client.interceptors import ConsumerInterceptor, ProducerInterceptor
from strandline.client.results import CommittedOffset, ConsumerRecord, ProducerRecord, Receipt, TimestampType
from strandline.client.sync import Admin, Consumer, Producer
from strandline.protocol.errors import NonEmptyGroup, ProducerFenced, TopicAlreadyExists

PLAIN = {"serializer": "str", "key_serializer": "str"}
TEXT = {"deserializer": "str", "key_deserializer": "str"}
FIRST_MS = 1_700_000_000_000


def read(bootstrap: str, topic: str, count: int, **options: Any) -> list[ConsumerRecord]:
    """So many records of all three partitions, from the beginning, in the order of partitions and offsets."""
    with Consumer(bootstrap, auto_offset_reset="earliest", **TEXT, **options) as consumer:
        consumer.assign([TopicPartition(topic, number) for number in range(3)])
        found: list[ConsumerRecord] = []

        def enough() -> bool:
            found.extend(consumer.poll(200))
            return len(found) >= count

        until(enough, f"{count} records are read")
        assert not consumer.poll(100), "there are no more"
        return sorted(found, key=lambda one: (one.partition, one.offset))


def values(records: list[ConsumerRecord]) -> set[str]:
    return {one.value for one in records}


def test_a_transaction_is_seen_whole_or_not_at_all(ours: Any, topic: str) -> None:
    where, group = ours.bootstrap, f"group-{topic}"
    with Producer(where, transactional_id=f"id-{topic}", **PLAIN) as producer:
        producer.init_transactions()
        with producer.transaction():
            for number in range(6):
                producer.send(topic, f"kept {number}", partition=number % 3)
            producer.send_offsets({TopicPartition(topic, 0): 2}, group)
        with pytest.raises(LookupError), producer.transaction():
            for number in range(6):
                producer.send(topic, f"dropped {number}", partition=number % 3)
            producer.send_offsets({TopicPartition(topic, 0): 4}, group)
            producer.flush()
            raise LookupError
        with producer.transaction():
            producer.send(topic, "last", partition=1)
    kept = {f"kept {number}" for number in range(6)} | {"last"}
    assert values(read(where, topic, 7, isolation_level="read_committed")) == kept
    assert len(read(where, topic, 13)) == 13, "the aborted ones are there for who wants them"
    assert ours.committed(topic, group, 0) == 2
    with Admin(where) as admin:
        (told,) = admin.describe_transactions([f"id-{topic}"])
        assert told.state == "CompleteCommit"
        assert f"id-{topic}" in {one.transactional_id for one in admin.list_transactions()}


def test_a_second_producer_fences_the_first(ours: Any, topic: str) -> None:
    options = {"transactional_id": f"id-{topic}", **PLAIN}
    with Producer(ours.bootstrap, **options) as old, Producer(ours.bootstrap, **options) as new:
        old.init_transactions()
        old.begin()
        old.send(topic, "half", partition=0)
        old.flush()
        new.init_transactions()
        with new.transaction():
            new.send(topic, "whole", partition=0)
        with pytest.raises(ProducerFenced):
            old.commit()
    assert values(read(ours.bootstrap, topic, 1, isolation_level="read_committed")) == {"whole"}


class Stamp(ProducerInterceptor):
    def __init__(self) -> None:
        self.told: list[tuple[int, int]] = []

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return record._replace(value=f"{record.value}!")

    def on_acknowledgement(self, receipt: Receipt, error: BaseException | None) -> None:
        assert error is None
        self.told.append((receipt.partition, receipt.offset))


class Watch(ConsumerInterceptor):
    def __init__(self) -> None:
        self.seen: list[str] = []
        self.committed: dict[TopicPartition, int] = {}

    def on_consume(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        self.seen += [one.value for one in records]
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        self.committed |= {where: one.offset for where, one in offsets.items()}


def test_interceptors_see_records_acknowledgements_and_commits(ours: Any, topic: str) -> None:
    stamp, watch, group = Stamp(), Watch(), f"group-{topic}"
    with Producer(ours.bootstrap, interceptors=(stamp,), **PLAIN) as producer:
        producer.send_many(topic, ["a", "b", "c"], partition=1)
    assert sorted(stamp.told) == [(1, 0), (1, 1), (1, 2)]
    options = {"group": group, "auto_offset_reset": "earliest", "interceptors": (watch,), **TEXT}
    with Consumer(ours.bootstrap, topics=[topic], **options) as consumer:
        until(lambda: consumer.poll(200) or len(watch.seen) == 3, "the three are read")
        until(lambda: len(watch.seen) == 3, "all three are seen")
        consumer.commit()
    assert watch.seen == ["a!", "b!", "c!"]
    assert watch.committed[TopicPartition(topic, 1)] == 3 == ours.committed(topic, group, 1)


def test_headers_times_and_epochs_come_back(ours: Any, topic: str) -> None:
    headers = [("trace", b"1"), ("trace", b""), ("kind", None)]
    with Producer(ours.bootstrap, **PLAIN) as producer:
        for number in range(5):
            producer.send(
                topic, f"{number}", partition=2, headers=headers, timestamp_ms=FIRST_MS + 10 * number
            )
    found = read(ours.bootstrap, topic, 5)
    assert [one.timestamp for one in found] == [FIRST_MS + 10 * number for number in range(5)]
    assert {one.timestamp_type for one in found} == {TimestampType.CREATE_TIME}
    assert all(one.leader_epoch >= 0 for one in found)
    assert list(found[0].headers) == headers
    at = TopicPartition(topic, 2)
    with Consumer(ours.bootstrap, **TEXT) as consumer:
        asked = {FIRST_MS + 11: 2, FIRST_MS + 40: 4, 0: 0}
        for time_ms, offset in asked.items():
            assert consumer.offsets_for_times({at: time_ms})[at].offset == offset
        assert consumer.offsets_for_times({at: FIRST_MS + 41})[at] is None
        assert consumer.beginning_offsets([at]) == {at: 0} and consumer.end_offsets([at]) == {at: 5}
        consumer.assign([at])
        consumer.seek_to_timestamp(FIRST_MS + 21, at)
        assert consumer.position(at) == 3


def test_a_topic_may_stamp_its_records_itself(ours: Any, topic: str) -> None:
    with Admin(ours.bootstrap) as admin:
        admin.alter_configs({"message.timestamp.type": "LogAppendTime"}, topic=topic)
        told = {one.name: one.value for one in admin.describe_configs(topic=topic)}
        assert told["message.timestamp.type"] == "LogAppendTime", "whichever broker is asked"
    with Producer(ours.bootstrap, **PLAIN) as producer:
        until(
            lambda: (
                producer.send(topic, "x", partition=0, timestamp_ms=FIRST_MS).result(30).timestamp != FIRST_MS
            ),
            "the change has reached the leader",
        )
    assert read(ours.bootstrap, topic, 1)[-1].timestamp_type is TimestampType.LOG_APPEND_TIME


def test_what_an_administrator_does(ours: Any) -> None:
    name = f"admin-{uuid.uuid4().hex[:12]}"
    with Admin(ours.bootstrap) as admin:
        admin.create_topic(name, 2, 3, configs={"retention.ms": "3600000"})
        with pytest.raises(TopicAlreadyExists):
            admin.create_topic(name, 2, 3)
        until(lambda: name in admin.list_topics(), "the topic is listed")
        admin.create_partitions({name: 4})
        until(lambda: len(admin.describe_topics([name])[0].partitions) == 4, "it has four partitions")
        assert all(len(one.replicas) == 3 for one in admin.describe_topics([name])[0].partitions)
        cluster = admin.describe_cluster()
        assert len(cluster.brokers) == 3 and cluster.controller_id in {one.node_id for one in cluster.brokers}
        held = admin.describe_log_dirs()
        assert len(held) == 3 and all(held.values())
        admin.delete_topics([name])
        until(lambda: name not in admin.list_topics(), "it is gone")


def test_groups_are_changed_from_outside(ours: Any, topic: str) -> None:
    group, at = f"group-{topic}", TopicPartition(topic, 1)
    with Producer(ours.bootstrap, **PLAIN) as producer:
        producer.send_many(topic, ["a", "b", "c"], partition=1)
    with Admin(ours.bootstrap) as admin:
        admin.alter_group_offsets(group, {at: 2})
        assert admin.list_group_offsets(group, [at])[at].offset == 2
        options = {"group": group, "auto_offset_reset": "latest", "enable_auto_commit": False, **TEXT}
        with Consumer(ours.bootstrap, topics=[topic], **options) as consumer:
            found: list[ConsumerRecord] = []
            until(lambda: found.extend(consumer.poll(200)) or found, "it goes on from there")
            assert values(found) == {"c"}
            with pytest.raises(NonEmptyGroup):
                admin.delete_groups([group])
        admin.delete_group_offsets(group, [at])
        assert admin.list_group_offsets(group) == {}
        until(lambda: group not in {one.group for one in admin.list_groups()}, "nothing is left of it")
