"""Options: every complaint is told, in the user's words, and Spark's spellings are understood."""

from pathlib import Path

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict

import strandline
from strandline.base.types import TopicPartition
from strandline.client.spark.client import FRAME_BYTES_MAX
from strandline.client.spark.option_table import METADATA_COLUMNS, OPTIONS, Served, Side
from strandline.client.spark.option_values import EARLIEST, LATEST, Everywhere, Offsets, Times
from strandline.client.spark.options import (
    OptionError,
    StreamLimits,
    parse,
    parse_either,
)

LEAST = {"kafka.bootstrap.servers": "one:9092, two:9093", "subscribe": "a, b"}


def complaint(**options: str) -> str:
    with pytest.raises(OptionError) as error:
        parse({**LEAST, **options})
    return str(error.value)


def test_defaults_are_sparks() -> None:
    options = parse(LEAST)
    assert options.cluster.bootstrap == (("one", 9092), ("two", 9093))
    assert options.topics.names == ("a", "b")
    assert (options.start, options.end) == (Everywhere(EARLIEST), Everywhere(LATEST))
    assert (options.fail_on_data_loss, "headers" in options.columns) == (True, False)
    assert (options.partitions_min, options.stall_seconds) == (None, 120)
    assert (options.cluster.isolation, options.cluster.fetch_bytes) == (0, 4 << 20)


def test_names_come_in_any_case_and_servers_with_or_without_prefix() -> None:
    shouted = {name.upper(): value for name, value in LEAST.items()}
    assert parse(shouted) == parse(LEAST)
    spark = CaseInsensitiveDict({"Bootstrap.Servers": "h:1", "Subscribe": "t", "minPartitions": "7"})
    assert parse(spark).partitions_min == 7


def test_a_start_behind_its_end_is_told_with_its_partition() -> None:
    for kind, start, end in (
        ("offset", "startingOffsets", "endingOffsets"),
        ("timestamp", "startingOffsetsByTimestamp", "endingOffsetsByTimestamp"),
    ):
        ends = {end: '{"a": {"0": 20, "1": 7}}'}
        parse({**LEAST, start: '{"a": {"0": 20, "1": 0}}', **ends})
        said = complaint(**{start: '{"a": {"0": 21, "1": 7}}', **ends})
        assert f"a-0: the starting {kind} 21 is after the ending {kind} 20" in said and "a-1" not in said
    parse({**LEAST, "startingOffsets": '{"a": {"0": 5}}', "endingOffsets": '{"a": {"0": -1}}'})
    parse({**LEAST, "startingOffsets": '{"a": {"0": 5}}', "endingOffsetsByTimestamp": '{"a": {"0": 4}}'})


@pytest.mark.parametrize("side", ["starting", "ending"])
def test_a_bound_that_another_overrules_is_not_looked_at(side: str) -> None:
    """Spark's own source checks only the one that wins."""
    odd = {f"{side}Offsets": "latest" if side == "starting" else "earliest"}
    assert f"{side}Offsets must not be" in complaint(**odd)
    parse({**LEAST, **odd, f"{side}Timestamp": "5"})
    parse({**LEAST, **odd, f"{side}OffsetsByTimestamp": '{"a": {"0": 5}}'})


def test_what_kafka_takes_to_its_limits_is_taken() -> None:
    """Empty texts are Kafka's defaults; it takes numbers from 0 on."""
    assert parse({**LEAST, "kafka.client.rack": "", "kafka.client.id": ""}) == parse(LEAST)
    assert parse({**LEAST, "kafka.request.timeout.ms": "0"}) == parse(LEAST)
    assert parse({**LEAST, "kafka.fetch.min.bytes": "0"}).cluster.fetch_min_bytes == 0
    for name in ("kafka.fetch.max.bytes", "kafka.max.partition.fetch.bytes"):
        assert parse({**LEAST, name: "0"}).cluster.fetch_bytes == 1


@pytest.mark.parametrize(
    ("given", "known"),
    [
        ("minPartition", "minPartitions"),
        ("startingoffset", "startingOffsets"),
        ("kafka.bootstrapservers", "kafka.bootstrap.servers"),
        ("kafka.fetch.maxbytes", "kafka.fetch.max.bytes"),
        ("subscribepatern", "subscribePattern"),
    ],
)
def test_an_unknown_option_is_answered_with_the_nearest_known_one(given: str, known: str) -> None:
    assert f"unknown option {given}; did you mean {known}?" in complaint(**{given: "1"})


def test_an_option_that_is_like_none_is_answered_with_all() -> None:
    assert all(name in complaint(zzzzzz="1") for name, each in OPTIONS.items() if isinstance(each, Served))


@pytest.mark.parametrize(
    "name", ["kafka.auto.offset.reset", "kafka.enable.auto.commit", "kafka.value.deserializer", "path"]
)
def test_what_spark_refuses_is_refused_with_a_reason(name: str) -> None:
    assert f"{name} is not supported: " in complaint(**{name: "x"})


OF_SPARKS_SOURCE = {
    "groupIdPrefix": "etl",
    "kafka.group.id": "etl",
    "kafka.client.rack": "zone-1",
    "kafka.security.protocol": "PLAINTEXT",
    "kafka.sasl.mechanism": "PLAIN",
    "kafka.ssl.truststore.location": "/etc/kafka/trust.jks",
    "kafka.config.providers": "file",
    "kafka.config.providers.file.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
    "kafka.max.poll.records": "500",
    "kafka.session.timeout.ms": "30000",
    "kafka.receive.buffer.bytes": "65536",
    "kafka.allow.auto.create.topics": "false",
    "kafka.retry.backoff.ms": "100",
    "kafkaConsumer.pollTimeoutMs": "1000",
    "fetchOffset.numRetries": "5",
    "fetchOffset.retryIntervalMs": "10",
    "startingOffsetsByTimestampStrategy": "latest",
    "startingTimestamp": "0",
    "startingOffsetsByTimestamp": '{"a": {"0": 1}}',
    "startingOffsets": "earliest",
    "minPartitions": "8",
    "maxRecordsPerPartition": "1000",
    "maxOffsetsPerTrigger": "1000",
    "minOffsetsPerTrigger": "10",
    "maxTriggerDelay": "15m",
    "includeHeaders": "true",
    "failOnDataLoss": "false",
    "spark.kafka.consumer.cache.capacity": "64",
    "spark.kafka.producer.cache.timeout": "10m",
    "topic": "shared with the sink",
    "kafka.acks": "all",
    "kafka.compression.type": "lz4",
}
ENDS = {"endingOffsets": "latest", "endingTimestamp": "9", "endingOffsetsByTimestamp": '{"a": {"0": 1}}'}


def test_every_option_of_sparks_own_source_is_taken() -> None:
    """A job moves over by changing one word."""
    batch = parse({**LEAST, **OF_SPARKS_SOURCE, **ENDS})
    stream = parse({**LEAST, **OF_SPARKS_SOURCE}, Side.STREAM)
    assert (batch.end, stream.start) == (Times(9, {}), Times(0, {}))
    assert stream.limits == StreamLimits(1000, 10, 900)
    for name in ENDS:
        with pytest.raises(OptionError, match=f"{name} is not supported: a stream has no end"):
            parse({**LEAST, name: ENDS[name]}, Side.STREAM)


def test_what_has_no_effect_is_told_with_the_reason() -> None:
    notes = parse({**LEAST, **OF_SPARKS_SOURCE}).notes
    told = {note.partition(" has no effect: ")[0] for note in notes}
    assert {"groupIdPrefix", "kafka.group.id", "maxTriggerDelay", "kafka.sasl.mechanism", "topic"} <= told
    assert "spark.kafka.consumer.cache.capacity" in told
    assert told.isdisjoint({"minPartitions", "kafka.client.rack", "failOnDataLoss"})
    assert all(note.partition(": ")[2] for note in notes)
    in_stream = parse({**LEAST, **OF_SPARKS_SOURCE}, Side.STREAM).notes
    assert not any("OffsetsPerTrigger" in note for note in in_stream)
    assert parse({**LEAST, "snapshot": "load"}, Side.STREAM).notes == (
        "snapshot has no effect: each micro-batch has its own offsets",
    )
    assert parse(LEAST).notes == ()


def test_a_stream_begins_at_the_end_unless_told_otherwise() -> None:
    assert parse(LEAST, Side.STREAM).start == Everywhere(LATEST)
    assert parse({**LEAST, "startingOffsets": "latest"}, Side.STREAM).start == Everywhere(LATEST)


def test_either_side_will_do_before_spark_says_which() -> None:
    assert parse_either(LEAST)[1] is Side.BATCH
    assert parse_either({**LEAST, "startingOffsets": "latest"})[1] is Side.STREAM
    with pytest.raises(OptionError, match="unknown option minPartition"):
        parse_either({**LEAST, "minPartition": "1"})


def test_columns_are_sparks_or_those_named() -> None:
    sparks = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
    assert parse(LEAST).columns == sparks
    assert parse({**LEAST, "includeHeaders": "true", "metadataColumns": "servedBy,leaderepoch"}).columns == (
        *sparks,
        "headers",
        "servedBy",
        "leaderEpoch",
    )
    assert parse({**LEAST, "metadataColumns": "true"}).columns == (*sparks, *METADATA_COLUMNS)
    assert parse({**LEAST, "columns": "offset, Value, headers"}).columns == ("offset", "value", "headers")


def test_offsets_are_committed_to_the_group_that_is_named() -> None:
    assert parse({**LEAST, "commitOffsetsToGroup": "seen"}).group == "seen"
    assert parse({**LEAST, "commitOffsetsToGroup": "true", "kafka.group.id": "etl"}).group == "etl"
    assert parse({**LEAST, "commitOffsetsToGroup": "false", "kafka.group.id": "etl"}).group is None


def test_all_complaints_come_at_once() -> None:
    with pytest.raises(OptionError) as error:
        parse({"minPartitions": "0", "includeHeaders": "yes", "nonsense.at.all": "1"})
    text = str(error.value)
    assert "kafka.bootstrap.servers is missing" in text
    assert "exactly one of subscribe, assign, subscribePattern" in text
    assert "minPartitions='0' must be at least 1" in text
    assert "includeHeaders='yes' must be true or false" in text
    assert "nonsense.at.all" in text


def test_exactly_one_way_to_choose_topics() -> None:
    assert "exactly one" in complaint(assign='{"t": [0]}')
    assigned = {"bootstrap.servers": "h:1", "assign": '{"t": [1, 0], "u": [2]}'}
    names = ("t", 0), ("t", 1), ("u", 2)
    assert parse(assigned).topics.partitions == tuple(TopicPartition(*name) for name in names)
    pattern = parse({"bootstrap.servers": "h:1", "subscribePattern": "fl.*"}).topics.pattern
    assert pattern is not None and pattern.fullmatch("flights")


def test_bounds_in_words_offsets_and_times() -> None:
    assert parse({**LEAST, "startingOffsets": "Earliest"}).start == Everywhere(EARLIEST)
    offsets = parse({**LEAST, "startingOffsets": '{"a": {"0": 23, "1": -2}}', "endingOffsets": "latest"})
    assert offsets.start == Offsets({TopicPartition("a", 0): 23, TopicPartition("a", 1): EARLIEST})
    assert parse({**LEAST, "endingOffsets": '{"a": {"0": -1}}'}).end == Offsets(
        {TopicPartition("a", 0): LATEST}
    )
    timed = parse({**LEAST, "startingTimestamp": "5", "startingOffsets": "earliest", "endingTimestamp": "9"})
    assert (timed.start, timed.end) == (Times(5, {}), Times(9, {}))
    by_partition = parse({**LEAST, "startingOffsetsByTimestamp": '{"a": {"0": 7}}'})
    assert by_partition.start == Times(None, {TopicPartition("a", 0): 7})


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("startingOffsets", "latest", "must not be latest (-1) in a batch read"),
        ("startingOffsets", '{"a": {"0": -1}}', "must not be latest"),
        ("endingOffsets", "earliest", "must not be earliest (-2)"),
        ("endingOffsets", '{"a": {"0": -2}}', "must not be earliest"),
        ("startingOffsets", '{"a": {"0": -3}}', "with numbers from -2 up"),
        ("startingOffsets", "yesterday", "must be JSON like"),
        ("startingOffsets", '{"a": [1]}', "must be JSON like"),
        ("startingOffsets", '{"a": {"0": true}}', "must be JSON like"),
        ("startingOffsets", "{}", "must be JSON like"),
        ("startingTimestamp", "noon", "must be a whole number"),
        ("subscribe", " , ", "must name at least one topic"),
        ("kafka.isolation.level", "serial", "must be one of read_uncommitted, read_committed"),
        ("kafka.security.protocol", "SASL_SSL", "is not supported: expected PLAINTEXT"),
        ("bootstrap.servers", "h:1", "given twice"),
        ("columns", "value,size", "names size; there are key, value"),
        ("columns", "value,Value", "names something twice"),
        ("metadataColumns", "value", "names value; there are leaderEpoch"),
        ("snapshot", "now", "must be plan, load, or a snapshot as JSON"),
        ("commitOffsetsToGroup", "true", "needs kafka.group.id"),
    ],
)
def test_values_are_checked(name: str, value: str, words: str) -> None:
    assert words in complaint(**{name: value})


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"maxTriggerDelay": "soon"}, "must be a time like 500ms"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "5"}, "=9 is above maxOffsetsPerTrigger=5"),
    ],
)
def test_limits_of_streams_are_checked(given: dict[str, str], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        parse({**LEAST, **given}, Side.STREAM)


@pytest.mark.parametrize("servers", ["", "host", "host:", ":9092", "host:http", "host:70000"])
def test_servers_are_host_and_port(servers: str) -> None:
    with pytest.raises(OptionError, match=r"kafka\.bootstrap\.servers"):
        parse({"kafka.bootstrap.servers": servers, "subscribe": "t"})


def test_servers_may_be_named_with_their_protocol() -> None:
    """As in Kafka's own clients."""
    servers = {"kafka.bootstrap.servers": "PLAINTEXT://one:9092, SITE_A://[::1]:9093"}
    assert parse({**LEAST, **servers}).cluster.bootstrap == (("one", 9092), ("::1", 9093))


def test_numbers_are_at_most_what_is_sent() -> None:
    """Limits beyond what brokers and this client take are the largest that these take."""
    huge = str(10**15)
    cluster = parse(
        {
            **LEAST,
            **dict.fromkeys(("kafka.fetch.min.bytes", "kafka.fetch.max.wait.ms"), huge),
            **dict.fromkeys(("kafka.fetch.max.bytes", "kafka.max.partition.fetch.bytes"), huge),
            "kafka.request.timeout.ms": huge,
        }
    ).cluster
    assert cluster.fetch_min_bytes == (1 << 31) - 1
    assert cluster.fetch_bytes < FRAME_BYTES_MAX // 2
    assert cluster.request_seconds == ((1 << 31) - 1) / 1000
    assert cluster.fetch_wait_ms == (1 << 30) - 1
    waits = {"kafka.fetch.max.wait.ms": "60000"}
    assert parse({**LEAST, **waits}).cluster.fetch_wait_ms == 15_000, "an answer is awaited for 30 s"
    for name, value in (
        ("startingTimestamp", "9" * 19),
        ("maxOffsetsPerTrigger", "9" * 30),
        ("startingOffsets", '{"a": {"0": %s}}' % ("9" * 19)),
    ):
        with pytest.raises(OptionError, match=str((1 << 63) - 1)):
            parse({**LEAST, name: value}, Side.STREAM)


def test_ipv6_servers_are_understood() -> None:
    assert parse({**LEAST, "kafka.bootstrap.servers": "[::1]:9092"}).cluster.bootstrap == (("::1", 9092),)


@pytest.mark.parametrize("name", [name for name, verdict in OPTIONS.items() if isinstance(verdict, Served)])
def test_every_option_that_is_served_has_its_row_in_the_docs(name: str) -> None:
    page = Path(strandline.__file__).with_name("docs") / "spark.md"
    rows = [line for line in page.read_text().splitlines() if line.startswith("| `")]
    assert any(f"`{name}`" in row.split(" | ")[0] for row in rows)
