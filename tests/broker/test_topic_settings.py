"""Readings of a topic's settings come late and on two ways: the newer one holds, and replicas follow it."""

import asyncio
from pathlib import Path
from uuid import UUID

import pytest

from strandline.broker.roles import leader_and_isr
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages.control import TopicConfigEntry, UpdateMetadataTopicState
from strandline.storage.log.checkpoints import TOPIC_CONFIG, read_topic_config
from strandline.zookeeper.config_nodes import NOTHING, Overrides
from tests.broker.replica_harness import TOPIC, Member, ask, batch, cluster, outcome, produce


def kept(member: Member) -> int:
    """What the next start of the broker would find."""
    found = read_topic_config(member.logs.disk, f"{member.partition.log.directory}/{TOPIC_CONFIG}")
    assert found is not None
    return found.config.retention_ms


async def test_an_older_reading_changes_nothing(tmp_path: Path) -> None:
    async with cluster(tmp_path, 1) as stage:
        member = stage.members[1]
        await stage.elect(1, [1], [TopicConfigEntry(name="retention.ms", value="5")])
        settings, partition = member.parts.settings, member.partition
        assert partition.topic_config.retention_ms == kept(member) == 5
        settings.learn(TOPIC, Overrides({"retention.ms": "7"}, 30, 2))
        assert partition.log.config.retention_ms == kept(member) == 7
        settings.learn(TOPIC, Overrides({"retention.ms": "6"}, 30, 1))
        settings.learn(TOPIC, Overrides({"retention.ms": "6"}, 29, 9))
        assert partition.topic_config.retention_ms == 7
        await stage.elect(1, [1], [TopicConfigEntry(name="retention.ms", value="5")])  # of no known edition
        assert partition.topic_config.retention_ms == kept(member) == 7
        settings.learn(TOPIC, Overrides({}, 31, 0))  # the znode was made anew
        assert partition.topic_config.retention_ms == 7 * 24 * 3600 * 1000


async def test_a_leader_counts_by_its_new_settings(tmp_path: Path) -> None:
    async with cluster(tmp_path, 1) as stage:
        member = stage.members[1]
        await stage.elect(1, [1])
        settings, partition = member.parts.settings, member.partition
        assert partition.leading is not None
        settings.learn(TOPIC, Overrides({"min.insync.replicas": "2", "max.message.bytes": "99"}, 1, 0))
        assert partition.leading.min_insync_replicas == 2
        assert partition.limits is not None and partition.limits.message_bytes_max == 99
        settings.learn(TOPIC, Overrides({"min.insync.replicas": "none", "segment.ms": "8"}, 1, 1))
        assert partition.leading.min_insync_replicas == 1, "what cannot be understood is left out"
        assert settings.understood(TOPIC) == {"segment.ms": "8"}


async def test_a_role_waits_for_settings_that_kafkas_controller_does_not_send(tmp_path: Path) -> None:
    """Else a leader would take acks=all without enough replicas, for as long as it takes to read them."""
    async with cluster(tmp_path, 2) as stage:
        member = stage.members[1]
        settings, loop, asked = member.parts.settings, asyncio.get_running_loop(), list[str]()

        def read(topic: str) -> None:
            asked.append(topic)
            loop.call_later(0.2, settings.learn, topic, Overrides({"min.insync.replicas": "2"}, 3, 0))

        settings.unsaid.subscribe(read)
        client = await member.connect()
        await stage.elect(1, [1])
        assert outcome(await ask(client, produce(batch(b"a"))))[0] == ErrorCode.NOT_ENOUGH_REPLICAS
        assert asked == [TOPIC]
        await stage.elect(1, [1])
        assert asked == [TOPIC], "later roles wait for nothing"
        await client.close()


async def test_while_settings_cannot_be_read_those_of_the_last_start_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They stand beside the log. The role waits for a moment only: the controller waits for the answer."""
    monkeypatch.setattr(leader_and_isr, "SETTINGS_S", 0.1)
    async with cluster(tmp_path, 1) as stage:
        await stage.elect(1, [1], [TopicConfigEntry(name="retention.ms", value="5")])
        assert kept(stage.members[1]) == 5
    async with cluster(tmp_path, 1) as stage:
        member = stage.members[1]
        settings = member.parts.settings
        settings.unsaid.subscribe(lambda topic: None)
        await stage.elect(1, [1])
        assert member.partition.leading is not None and not settings.are_read(TOPIC)
        assert member.partition.topic_config.retention_ms == kept(member) == 5
        settings.learn(TOPIC, Overrides({"retention.ms": "7"}, 3, 0))
        assert settings.are_read(TOPIC)
        assert member.partition.topic_config.retention_ms == kept(member) == 7


async def test_replicas_take_over_what_they_inherit(tmp_path: Path) -> None:
    async with cluster(tmp_path, 1) as stage:
        member = stage.members[1]
        await stage.elect(1, [1], [TopicConfigEntry(name="segment.ms", value="8")])
        new = {"retention_ms": 9, "segment_ms": 9, "validate_records": True, "producer_ids_max": 3}
        member.logs.configure(member.logs.config.model_copy(update=new))
        await member.parts.config_changed(member.config)
        config = member.partition.log.config
        assert (config.retention_ms, config.segment_ms, kept(member)) == (9, 8, 9)
        assert member.parts.shared.validate_records
        assert member.partition.log.producers.producers_max == 3


async def test_topics_that_are_gone_are_forgotten(tmp_path: Path) -> None:
    async with cluster(tmp_path, 1) as stage:
        settings = stage.members[1].parts.settings
        await stage.elect(1, [1])
        settings.learn("gone", Overrides({"retention.ms": "5"}, 1, 0))
        settings.learn("stays", Overrides({"retention.ms": "5"}, 1, 0))
        settings.learn(TOPIC, Overrides({"retention.ms": "5"}, 1, 0))
        settings.forget_others(["stays"])
        assert settings.of("gone") == NOTHING != settings.of("stays")
        assert settings.of(TOPIC).names, "its replica is here before the cluster is told of it"


async def test_a_controller_of_kafkas_sends_no_settings(tmp_path: Path) -> None:
    """Those of a topic that is new here are asked for once; what is known stays."""
    async with cluster(tmp_path, 1) as stage:
        member, asked = stage.members[1], list[str]()
        settings = member.parts.settings
        settings.unsaid.subscribe(asked.append)
        bare = UpdateMetadataTopicState(topic_name=TOPIC, partition_states=[])
        settings.told(bare, by_kafkas=True)
        settings.told(bare, by_kafkas=True)
        assert asked == [TOPIC]
        settings.learn(TOPIC, Overrides({"retention.ms": "7"}, 30, 2))
        settings.told(bare, by_kafkas=True)
        assert asked == [TOPIC] and settings.of(TOPIC).names == {"retention.ms": "7"}


async def test_settings_of_an_earlier_topic_of_the_name_are_void(tmp_path: Path) -> None:
    """A controller of Kafka names the new topic with its id, and says nothing of its settings. Its replica is
    told before anything else is, so nothing has been forgotten yet.
    """
    async with cluster(tmp_path, 1) as stage:
        member, asked = stage.members[1], list[str]()
        await stage.elect(1, [1])
        settings = member.parts.settings
        settings.unsaid.subscribe(asked.append)
        first, second = (
            UpdateMetadataTopicState(topic_name=TOPIC, topic_id=UUID(int=id), partition_states=[])
            for id in (7, 8)
        )
        settings.told(first, by_kafkas=True)
        settings.learn(TOPIC, Overrides({"retention.ms": "5"}, 30, 2))
        settings.told(first, by_kafkas=True)
        assert member.partition.log.config.retention_ms == 5 and settings.unsent == [TOPIC]
        settings.told(UpdateMetadataTopicState(topic_name=TOPIC, partition_states=[]), by_kafkas=True)
        asked.clear()
        settings.told(second, by_kafkas=True)
        settings.told(second, by_kafkas=True)
        assert asked == [TOPIC] and settings.of(TOPIC).names == {}
        assert member.partition.log.config.retention_ms == 7 * 24 * 3600 * 1000
        settings.learn(TOPIC, Overrides({"retention.ms": "5"}, 30, 2))
        assert settings.of(TOPIC).names == {}, "a server that lags behind has still the old node"
        settings.learn(TOPIC, Overrides({"retention.ms": "6"}, 31, 0))
        assert settings.of(TOPIC).names == {"retention.ms": "6"}
        settings.told(second)
        assert settings.unsent == []
