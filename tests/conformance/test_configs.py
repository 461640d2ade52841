"""Foreign clients read and change settings of topics and brokers; every other client finds them."""

import asyncio
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource as AioResource
from confluent_kafka import KafkaException
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ConfigSource
from kafka.admin import AlterConfigOp as KpOperation
from kafka.admin import ConfigResource as KpResource

from strandline.client import ConfigChange
from strandline.client.sync import Admin

TYPES = {"topic": ConfigResource.Type.TOPIC, "broker": ConfigResource.Type.BROKER}


def in_force(ours: Any, name: str, **of: Any) -> tuple[str | None, int]:
    """What our own client is told, by any broker."""
    with Admin(ours.bootstrap) as admin:
        entry = next(e for e in admin.describe_configs(**of) if e.name == name)
        return entry.value, int(entry.source)


def confluent_changes(admin: Any, kind: str, name: str, **settings: str | None) -> None:
    entries = [
        ConfigEntry(
            n.replace("_", "."),
            value,
            incremental_operation=AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET,
        )
        for n, value in settings.items()
    ]
    resource = ConfigResource(TYPES[kind], name, incremental_configs=entries)
    admin.incremental_alter_configs([resource])[resource].result(30)


def confluent_describes(admin: Any, kind: str, name: str) -> dict[str, Any]:
    resource = ConfigResource(TYPES[kind], name)
    found: dict[str, Any] = admin.describe_configs([resource])[resource].result(30)
    return found


def test_confluent_changes_a_topic(drivers: dict[str, Any], ours: Any, topic: str) -> None:
    admin = drivers["confluent-kafka"].admin
    confluent_changes(admin, "topic", topic, retention_ms="5000", segment_ms="7000")
    found = confluent_describes(admin, "topic", topic)
    assert found["retention.ms"].value == "5000"
    assert found["retention.ms"].source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    assert not found["retention.ms"].is_default and not found["retention.ms"].is_read_only
    assert "retention.ms" in found["retention.ms"].synonyms
    assert found["min.insync.replicas"].source == ConfigSource.STATIC_BROKER_CONFIG.value
    assert in_force(ours, "segment.ms", topic=topic) == ("7000", 1)
    confluent_changes(admin, "topic", topic, segment_ms=None)
    assert in_force(ours, "segment.ms", topic=topic)[1] == 5
    entry = ConfigEntry("cleanup.policy", "delete", incremental_operation=AlterConfigOpType.SUBTRACT)
    resource = ConfigResource(TYPES["topic"], topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(30)
    assert in_force(ours, "cleanup.policy", topic=topic) == ("", 1), "neither: everything is kept"
    with pytest.raises(KafkaException, match=r"retention\.ms = 'soon': must be a whole number") as refused:
        confluent_changes(admin, "topic", topic, retention_ms="soon")
    assert refused.value.args[0].name() == "INVALID_CONFIG"
    with warnings.catch_warnings():  # the older request, which names all that shall stand
        warnings.simplefilter("ignore")
        resource = ConfigResource(TYPES["topic"], topic, set_config={"flush.ms": "9000"})
        admin.alter_configs([resource])[resource].result(30)
    assert in_force(ours, "flush.ms", topic=topic) == ("9000", 1)
    assert in_force(ours, "retention.ms", topic=topic)[1] == 5


@pytest.fixture
def roll(ours: Any) -> Iterator[Callable[[int], tuple[str | None, int]]]:
    """log.roll.ms of a broker; as before at the end."""
    yield lambda broker: in_force(ours, "log.roll.ms", broker=broker)
    with Admin(ours.bootstrap) as admin:
        admin.alter_configs({}, all_brokers=True)
        for broker in (1, 2, 3):
            admin.alter_configs({}, broker=broker)


def test_confluent_changes_brokers(drivers: dict[str, Any], ours: Any, roll: Callable[[int], Any]) -> None:
    admin = drivers["confluent-kafka"].admin
    confluent_changes(admin, "broker", "2", log_roll_ms="654321")
    assert roll(2) == ("654321", 2)
    found = confluent_describes(admin, "broker", "2")
    assert found["log.roll.ms"].source == ConfigSource.DYNAMIC_BROKER_CONFIG.value
    assert found["log.dirs"].is_read_only
    with Admin(ours.bootstrap) as mine:  # librdkafka cannot name all brokers
        mine.incremental_alter_configs([ConfigChange("log.roll.ms", "123456")], all_brokers=True)
    confluent_changes(admin, "broker", "2", log_roll_ms=None)
    found = confluent_describes(admin, "broker", "2")
    assert found["log.roll.ms"].source == ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG.value
    with pytest.raises(KafkaException, match=r"log\.dirs = '/x': needs a restart"):
        confluent_changes(admin, "broker", "2", log_dirs="/x")


def test_kafka_python_changes_settings(
    drivers: dict[str, Any], ours: Any, topic: str, roll: Callable[[int], Any]
) -> None:
    with drivers["kafka-python"].admin() as admin:
        admin.alter_configs(
            [KpResource("TOPIC", topic, {"retention.ms": "5000", "cleanup.policy": "delete"})]
        )
        changes = {
            "cleanup.policy": (KpOperation.APPEND, "compact"),
            "retention.ms": (KpOperation.DELETE, None),
        }
        admin.alter_configs([KpResource("TOPIC", topic, changes)])
        found = admin.describe_configs([KpResource("TOPIC", topic)])["topic"][topic]
        assert found["cleanup.policy"]["value"] == "delete,compact"
        assert in_force(ours, "retention.ms", topic=topic)[1] == 5
        admin.alter_configs([KpResource("BROKER", "3", {"log.roll.ms": "77777"})])
        assert roll(3) == ("77777", 2)
        bad = KpResource("TOPIC", topic, {"retention.ms": "soon"})
        told = admin.alter_configs([bad])["topic"][topic]
        assert "InvalidConfigurationError" in told and "must be a whole number, at least -1" in told
        assert in_force(ours, "retention.ms", topic=topic)[1] == 5


def test_aiokafka_replaces_settings(drivers: dict[str, Any], ours: Any, topic: str) -> None:
    async def story() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=drivers["aiokafka"].bootstrap)
        await admin.start()
        try:
            await admin.alter_configs([AioResource("TOPIC", topic, {"retention.ms": "5000"})])
            (answer,) = await admin.alter_configs([AioResource("TOPIC", topic, {"segment.ms": "7000"})])
            assert answer.resources[0][0] == 0
            (told,) = await admin.describe_configs([AioResource("TOPIC", topic)])
            assert {row[0]: row[1] for row in told.resources[0][4]}["segment.ms"] == "7000"
        finally:
            await admin.close()

    asyncio.run(story())
    assert in_force(ours, "segment.ms", topic=topic) == ("7000", 1)
    assert in_force(ours, "retention.ms", topic=topic)[1] == 5
