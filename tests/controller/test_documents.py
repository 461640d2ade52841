"""What stands in ZooKeeper, byte for byte: Kafka's brokers and tools read it, and read what we only look for.

A document that is written and read by one class may have lost its keys, and nobody would see it; so the bytes
are literals here, as Kafka 3.9 (ZkData.scala) and its tools write them.
"""

import pytest

from strandline.zookeeper import documents

ONE = [documents.ChangedPartition(topic="t", partition=3)]
MOVE = [documents.ReassignmentEntry(topic="t", partition=0, replicas=[2, 3])]

WRITTEN: list[tuple[documents.Document, str]] = [
    (documents.ControllerDocument(brokerid=3, timestamp="5"), '{"version":1,"brokerid":3,"timestamp":"5"}'),
    (
        documents.StateDocument(leader=0, leader_epoch=4, isr=[0, 1], controller_epoch=12),
        '{"version":1,"leader":0,"leader_epoch":4,"isr":[0,1],"controller_epoch":12}',
    ),
    (
        documents.StateDocument(
            leader=0, leader_epoch=4, isr=[0], controller_epoch=12, isr_epochs={0: 7}, leader_recovery_state=1
        ),
        '{"version":1,"leader":0,"leader_epoch":4,"isr":[0],"controller_epoch":12,'
        '"isr_epochs":{"0":7},"leader_recovery_state":1}',
    ),
    (documents.IsrChangeDocument(partitions=ONE), '{"version":1,"partitions":[{"topic":"t","partition":3}]}'),
    (
        documents.PreferredElectionDocument(partitions=ONE),
        '{"version":1,"partitions":[{"topic":"t","partition":3}]}',
    ),
    (
        documents.ReassignmentDocument(partitions=MOVE),
        '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[2,3]}]}',
    ),
    (documents.LogDirEventDocument(broker=4), '{"version":1,"broker":4,"event":1}'),
    (
        documents.TopicDocument(topic_id="AAAAAAAAAAAAAAAAAAAAAQ", partitions={0: [1, 2]}),
        '{"version":3,"topic_id":"AAAAAAAAAAAAAAAAAAAAAQ","partitions":{"0":[1,2]},'
        '"adding_replicas":{},"removing_replicas":{}}',
    ),
    (documents.ConfigDocument(config={"retention.ms": "5"}), '{"version":1,"config":{"retention.ms":"5"}}'),
    (
        documents.ConfigChangeDocument(entity_path="topics/t"),
        '{"version":2,"entity_path":"topics/t"}',
    ),
]


@pytest.mark.parametrize(("document", "text"), WRITTEN, ids=lambda one: type(one).__name__)
def test_documents_are_written_as_kafka_writes_them(document: documents.Document, text: str) -> None:
    assert document.data().decode() == text
    assert documents.parse(type(document), text.encode()) == document


def test_they_stand_where_kafka_looks() -> None:
    assert documents.ISR_CHANGE_PREFIX == "/isr_change_notification/isr_change_"
    assert documents.LOG_DIR_EVENT_PREFIX == "/log_dir_event_notification/log_dir_event_"
    assert documents.topic_path("t") == "/brokers/topics/t" and documents.broker_path(1) == "/brokers/ids/1"
    assert documents.state_path(documents.TopicPartition("t", 0)) == "/brokers/topics/t/partitions/0/state"


def test_what_the_sources_show_is_understood() -> None:
    """The key order of an old version, spaces, and no key of ours."""
    text = b'{ "controller_epoch": 12, "leader": 0, "version": 1, "leader_epoch": 0, "isr": [0, 1] }'
    state = documents.parse(documents.StateDocument, text)
    assert (state.leader, state.leader_epoch, state.isr, state.controller_epoch) == (0, 0, [0, 1], 12)
