"""The declared messages are Kafka's: held against bytes by hand, published schemas, another client."""

import importlib
import json
import pkgutil
import re
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.protocol.apis import APIS, Api, header_version, response_header_version
from strandline.protocol.fields import Field, Fixed, Variable
from strandline.protocol.messages import (
    api_versions,
    control,
    fetch,
    groups,
    log_dirs,
    metadata,
    produce,
    topics,
)
from strandline.protocol.messages.common import LeaderIdAndEpoch, NodeEndpoint
from strandline.protocol.primitives import NO_UUID
from strandline.protocol.schema import SPECS, decode, encode, fields_of, spec_of

kafka = pytest.importorskip("kafka.protocol.schemas")

BODIES = [cls for entry in APIS.values() for cls in (entry.request, entry.response)]
PAIRS = [(cls, version) for cls in BODIES for version in spec_of(cls).versions]
SCHEMAS = Path(kafka.__path__[0]) / "resources"
PUBLISHED = [cls for cls in BODIES if (SCHEMAS / f"{cls.__name__}.json").exists()]
Sampled = Callable[[type[Any], int, Random], Any]


def name_of(value: object) -> str:
    return value.__name__ if isinstance(value, type) else str(value)


def wire(value: object, version: int) -> bytes:
    return b"".join(encode(value, version))


# ---- by hand

VECTORS = [
    (
        api_versions.ApiVersionsRequest(client_software_name="ab", client_software_version="1"),
        3,
        "03 6162 02 31 00",
    ),
    (
        api_versions.ApiVersionsResponse(
            error_code=35,
            api_keys=[api_versions.ApiVersion(api_key=18, min_version=0, max_version=4)],
        ),
        0,
        "0023 00000001 0012 0000 0004",
    ),
    (
        produce.ProduceRequest(
            acks=-1,
            timeout_ms=1000,
            topic_data=[
                produce.TopicProduceData(
                    name="t", partition_data=[produce.PartitionProduceData(index=2, records=b"xyz")]
                )
            ],
        ),
        9,
        "00 ffff 000003e8 02 0274 02 00000002 04 78797a 00 00 00",
    ),
    (
        produce.ProduceResponse(
            responses=[
                produce.TopicProduceResponse(
                    name="t",
                    partition_responses=[
                        produce.PartitionProduceResponse(
                            index=0,
                            error_code=6,
                            base_offset=-1,
                            current_leader=LeaderIdAndEpoch(leader_id=3, leader_epoch=4),
                        )
                    ],
                )
            ],
            node_endpoints=[NodeEndpoint(node_id=3, host="h", port=9092)],
        ),
        10,
        "02 0274 02 00000000 0006 ffffffffffffffff ffffffffffffffff ffffffffffffffff 01 00"
        "01 00 09 00000003 00000004 00 00 00000000 01 00 0d 02 00000003 0268 00002384 00 00",
    ),
    (
        fetch.FetchRequest(
            replica_state=fetch.ReplicaState(replica_id=1, replica_epoch=9),
            max_wait_ms=500,
            min_bytes=1,
            topics=[
                fetch.FetchTopic(
                    topic_id=UUID(int=1),
                    partitions=[fetch.FetchPartition(partition=0, fetch_offset=7, partition_max_bytes=100)],
                )
            ],
        ),
        17,
        "000001f4 00000001 7fffffff 00 00000000 ffffffff 02 00000000000000000000000000000001 02"
        "00000000 ffffffff 0000000000000007 ffffffff ffffffffffffffff 00000064 00 00 01 01"
        "01 01 0d 00000001 0000000000000009 00",
    ),
    (
        fetch.FetchResponse(
            responses=[
                fetch.FetchableTopicResponse(
                    topic="t",
                    partitions=[fetch.PartitionData(partition_index=0, high_watermark=5, records=b"r")],
                )
            ]
        ),
        11,
        "00000000 0000 00000000 00000001 0001 74 00000001 00000000 0000 0000000000000005"
        "ffffffffffffffff ffffffffffffffff ffffffff ffffffff 00000001 72",
    ),
    (metadata.MetadataRequest(topics=None), 1, "ffffffff"),
    (metadata.MetadataRequest(topics=[]), 0, "00000000"),
    (
        metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(topic_id=UUID(int=2))]),
        12,
        "02 00000000000000000000000000000002 00 00 01 00 00",
    ),
    (groups.HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 0, "000167 00000001 00016d"),
    (
        control.StopReplicaRequest(
            controller_id=1, controller_epoch=2, broker_epoch=3, topic_states=[], control_sequence=5
        ),
        4,
        "00000001 00 00000002 0000000000000003 01 01 904e 08 0000000000000005",
    ),
    (
        control.LeaderAndIsrRequest(
            controller_id=1,
            controller_epoch=2,
            broker_epoch=3,
            topic_states=[
                control.LeaderAndIsrTopicState(
                    topic_name="t",
                    topic_id=UUID(int=7),
                    partition_states=[
                        control.LeaderAndIsrPartitionState(
                            partition_index=0,
                            controller_epoch=2,
                            leader=1,
                            leader_epoch=4,
                            isr=[1],
                            partition_epoch=5,
                            replicas=[1, 2],
                            is_new=True,
                            isr_epochs=[9],
                        )
                    ],
                    configs=[control.TopicConfigEntry(name="a", value="b")],
                )
            ],
            live_leaders=[control.LeaderAndIsrLiveLeader(broker_id=1, host_name="h", port=9)],
        ),
        7,
        "00000001 00 00000002 0000000000000003 00"
        "02 0274 00000000000000000000000000000007"
        "02 00000000 00000002 00000001 00000004 02 00000001 00000005 03 00000001 00000002 01 01 01 00"
        "01 914e 09 02 0000000000000009"
        "01 904e 06 02 0261 0262 00"
        "02 00000001 0268 00000009 00 00",
    ),
    (control.UpdateMetadataResponse(), 8, "0000 00"),
]


@pytest.mark.parametrize(("value", "version", "expected"), VECTORS, ids=lambda v: type(v).__name__)
def test_bytes_written_out_by_hand(value: object, version: int, expected: str) -> None:
    assert wire(value, version).hex() == expected.replace(" ", "")
    assert decode(type(value), version, bytes.fromhex(expected)) == (value, len(bytes.fromhex(expected)))


# ---- by the trip there and back


@given(random=st.integers(0, 1 << 62).map(Random), pair=st.sampled_from(PAIRS))
@settings(max_examples=300, deadline=None)
def test_what_is_written_is_read_again(sampled: Sampled, random: Random, pair: tuple[type[Any], int]) -> None:
    cls, version = pair
    value = sampled(cls, version, random)
    data = wire(value, version)
    assert decode(cls, version, memoryview(data)) == (value, len(data))


@pytest.mark.parametrize(("cls", "version"), PAIRS, ids=name_of)
def test_each_message_in_each_version_comes_back(sampled: Sampled, cls: type[Any], version: int) -> None:
    for seed in range(10):
        value = sampled(cls, version, Random(seed))
        data = wire(value, version)
        assert decode(cls, version, data) == (value, len(data))


# ---- by another implementation


def foreign_classes() -> dict[str, Any]:
    """kafka-python's message classes by name."""
    found: dict[str, Any] = dict(vars(importlib.import_module("kafka.protocol.sasl")))
    for package in ("admin", "consumer", "metadata", "producer"):
        home = importlib.import_module(f"kafka.protocol.{package}")
        for module in pkgutil.iter_modules(home.__path__, home.__name__ + "."):
            if module.name.rpartition(".")[2] != "__init__":
                found |= vars(importlib.import_module(module.name))
    return found


FOREIGN = foreign_classes()


@pytest.mark.parametrize("cls", [c for c in BODIES if c.__name__ in FOREIGN], ids=name_of)
def test_kafka_python_reads_what_we_write_and_writes_the_same(sampled: Sampled, cls: type[Any]) -> None:
    for version in spec_of(cls).versions:
        for seed in range(5):
            value = sampled(cls, version, Random(seed))
            if cls is api_versions.ApiVersionsResponse:
                value.error_code = 0  # it reads any error in the shape of version 0
            if cls is log_dirs.DescribeLogDirsResponse:
                for one in value.results:
                    one.is_full = False  # a field of our own, which it skips
            if cls is fetch.FetchRequest and value.replica_state is not None:
                value.replica_state.counts_starts = False  # and this
            if cls is produce.ProduceRequest:
                value.wants_durability = False  # so is this
            if cls is produce.ProduceResponse:
                for answered in value.responses:
                    for part in answered.partition_responses:
                        part.durability = None  # and this
            if cls is topics.CreateTopicsRequest:
                for topic in value.topics:
                    topic.topic_id = NO_UUID  # and this
            if cls is topics.CreatePartitionsRequest:
                for grown in value.topics:
                    grown.grows_from = -1  # and this
            data = wire(value, version)
            foreign, flexible = FOREIGN[cls.__name__], spec_of(cls).is_flexible(version)
            theirs = foreign.decode(data, version=version)
            again = foreign._struct.encode(theirs, version=version, compact=flexible, tagged=flexible)
            assert again == data, f"{cls.__name__} v{version}"


def test_all_but_the_control_messages_were_held_against_kafka_python() -> None:
    missing = {c.__name__ for c in BODIES if c.__name__ not in FOREIGN}
    between_brokers = (
        "LeaderAndIsr",
        "StopReplica",
        "UpdateMetadata",
        "Controlled",
        "GetReplicaLogInfo",
        "AlterPartition",
        "AllocateProducerIds",
    )
    unknown_there = ("ConsumerGroup",)  # librdkafka speaks it: tests/conformance/test_consumer_groups.py
    assert all(name.startswith((*between_brokers, *unknown_there, "Inspect")) for name in missing)


def test_aiokafka_reads_our_fetch_response() -> None:
    theirs = importlib.import_module("aiokafka.protocol.fetch").FetchResponse_v11
    ours = fetch.FetchResponse(
        responses=[
            fetch.FetchableTopicResponse(
                topic="t",
                partitions=[
                    fetch.PartitionData(
                        partition_index=3,
                        high_watermark=5,
                        aborted_transactions=[fetch.AbortedTransaction(producer_id=1, first_offset=2)],
                        records=b"records",
                    )
                ],
            )
        ]
    )
    read = theirs.decode(wire(ours, 11))
    assert read.topics == [("t", [(3, 0, 5, -1, -1, [(1, 2)], -1, b"records")])]


# ---- by the published schema


def published(cls: type[Any]) -> dict[str, Any]:
    text = (SCHEMAS / f"{cls.__name__}.json").read_text()
    found: dict[str, Any] = json.loads(re.sub(r"(?m)^\s*//.*$", "", text))
    inline({each["name"]: each["fields"] for each in found.get("commonStructs", [])}, found["fields"])
    return found


def inline(common: dict[str, Any], fields: list[dict[str, Any]]) -> None:
    """Structs used in several places stand at the end: put their fields where they are used."""
    for field in fields:
        kind = field["type"].removeprefix("[]")
        if kind in common:
            field["fields"] = common[kind]
        inline(common, field.get("fields", []))


def covers(versions: str | None, version: int) -> bool:
    if not versions or versions == "none":
        return False
    first, plus, _ = versions.partition("+")
    low, _, high = first.partition("-")
    return int(low) <= version and (bool(plus) or version <= int(high or low))


def snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def type_of(field: Field) -> str:
    letters = {"b": "int8", "h": "int16", "i": "int32", "q": "int64", "?": "bool", "16s": "uuid"}
    if isinstance(field.wire, Fixed):
        kind = letters[field.wire.letter]
    elif isinstance(field.wire, Variable):
        kind = {"str": "string", "bytes": "bytes", "view": "records"}[field.wire.kind]
    else:
        kind = "struct"
    return "[]" * field.array + kind


def same_fields(cls: type[Any], schema: list[dict[str, Any]], version: int, where: str) -> None:
    """Names, order, types, null, tags; then the same inside of structs."""
    wanted = [f for f in schema if covers(f["versions"], version)]
    have = [f for f in fields_of(cls) if f.present(version) and (f.tag or 0) < 10_000]
    assert [f.name for f in have] == [snake(f["name"]) for f in wanted], where
    for ours, theirs in zip(have, wanted, strict=True):
        at = f"{where}.{ours.name} v{version}"
        base = theirs["type"].removeprefix("[]")
        is_struct = base[0].isupper()
        assert type_of(ours) == ("[]" if theirs["type"] != base else "") + (
            "struct" if is_struct else base
        ), at
        assert ours.tag == (theirs["tag"] if covers(theirs.get("taggedVersions"), version) else None), at
        if not (ours.tag is not None and is_struct):  # null there means that the tag is not written
            assert ours.nullable(version) == covers(theirs.get("nullableVersions"), version), at
        if is_struct:
            assert isinstance(ours.wire, type)
            same_fields(ours.wire, theirs["fields"], version, f"{where}.{ours.name}")


@pytest.mark.parametrize("cls", PUBLISHED, ids=name_of)
def test_declarations_agree_with_the_published_schema(cls: type[Any]) -> None:
    schema, spec = published(cls), spec_of(cls)
    assert spec.key == schema["apiKey"]
    for version in spec.versions:
        assert spec.is_flexible(version) == covers(schema["flexibleVersions"], version)
        same_fields(cls, schema["fields"], version, cls.__name__)


# ---- the table of requests


def test_the_table_covers_every_key_and_both_sides_agree() -> None:
    assert set(APIS) == set(Api)
    for entry in APIS.values():
        request, response = SPECS[entry.request], SPECS[entry.response]
        assert request.key == response.key == entry.api
        assert (request.versions, request.flexible) == (response.versions, response.flexible)
        assert set(entry.served) <= set(request.versions)
        assert entry.advertised is None or set(entry.served) <= set(entry.advertised)


def test_what_clients_are_offered() -> None:
    """docs of the wire, column of recommended versions; Produce begins at 0 for librdkafka's sake."""
    offered = {e.api: (e.advertised[0], e.advertised[-1]) for e in APIS.values() if e.advertised}
    assert offered[Api.PRODUCE] == (0, 11)
    assert APIS[Api.PRODUCE].served == range(3, 12)
    assert offered[Api.FETCH] == (4, 17)
    assert APIS[Api.FETCH].internal == range(4, 18)
    for api in (Api.LEADER_AND_ISR, Api.STOP_REPLICA, Api.UPDATE_METADATA, Api.CONTROLLED_SHUTDOWN):
        assert api not in offered
        assert not APIS[api].served


def test_headers_turn_flexible_with_the_request_save_for_api_versions() -> None:
    assert [header_version(Api.PRODUCE, v) for v in (8, 9)] == [1, 2]
    assert [response_header_version(Api.PRODUCE, v) for v in (8, 9)] == [0, 1]
    assert header_version(Api.API_VERSIONS, 3) == 2
    assert response_header_version(Api.API_VERSIONS, 3) == 0
