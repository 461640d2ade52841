"""Options and columns of a write: what Spark's own sink takes is taken, and complaints are sentences."""

from pathlib import Path

import pytest
from pyspark.sql.types import StructType

import strandline
from strandline.client.spark.option_table import Served
from strandline.client.spark.options import OptionError
from strandline.client.spark.sink.columns import columns_of
from strandline.client.spark.sink.option_table import WRITING, Spread
from strandline.client.spark.sink.options import SinkOptions, parse
from strandline.protocol.compression import Codec

LEAST = {"kafka.bootstrap.servers": "one:9092, two:9093", "topic": "t"}


def complaint(**options: str) -> str:
    with pytest.raises(OptionError) as error:
        parse({**LEAST, **options})
    return str(error.value)


def test_defaults_are_kafkas() -> None:
    options = parse(LEAST)
    assert options.cluster.bootstrap == (("one", 9092), ("two", 9093))
    assert (options.topic, options.acks, options.idempotent) == ("t", -1, True)
    assert (options.codec, options.level, options.spread) == (Codec.NONE, None, Spread.BY_KEY)
    assert (options.delivery_seconds, options.block_seconds, options.in_flight_max) == (120, 60, 5)
    assert (options.request_bytes, options.buffer_bytes) == (1 << 20, 32 << 20)
    assert options.notes == ()


OF_SPARKS_SINK = """kafka.acks kafka.batch.size kafka.buffer.memory kafka.client.dns.lookup kafka.client.id
    kafka.compression.gzip.level kafka.compression.lz4.level kafka.compression.type
    kafka.compression.zstd.level kafka.config.providers kafka.connections.max.idle.ms
    kafka.delivery.timeout.ms kafka.enable.idempotence kafka.enable.metrics.push kafka.interceptor.classes
    kafka.key.serializer kafka.linger.ms kafka.max.block.ms kafka.max.in.flight.requests.per.connection
    kafka.max.request.size kafka.metadata.max.age.ms kafka.metadata.max.idle.ms
    kafka.metadata.recovery.rebootstrap.trigger.ms kafka.metadata.recovery.strategy kafka.metric.reporters
    kafka.metrics.num.samples kafka.metrics.recording.level kafka.metrics.sample.window.ms
    kafka.partitioner.adaptive.partitioning.enable kafka.partitioner.availability.timeout.ms
    kafka.partitioner.class kafka.partitioner.ignore.keys kafka.receive.buffer.bytes
    kafka.reconnect.backoff.max.ms kafka.reconnect.backoff.ms kafka.request.timeout.ms kafka.retries
    kafka.retry.backoff.max.ms kafka.retry.backoff.ms kafka.sasl.jaas.config kafka.sasl.mechanism
    kafka.security.protocol kafka.security.providers kafka.send.buffer.bytes
    kafka.socket.connection.setup.timeout.max.ms kafka.socket.connection.setup.timeout.ms
    kafka.ssl.truststore.location kafka.transaction.timeout.ms
    kafka.transaction.two.phase.commit.enable kafka.transactional.id kafka.value.serializer
    kafka.bootstrap.servers topic spark.kafka.producer.cache.timeout"""


def test_every_setting_of_kafkas_producer_is_known() -> None:
    assert {name for name in OF_SPARKS_SINK.split() if WRITING.verdict_on(name)[1] is None} == set()


def test_what_has_no_effect_is_told_with_the_reason() -> None:
    given = {"kafka.linger.ms": "5", "kafka.sasl.mechanism": "PLAIN", "startingOffsets": "latest"}
    silent = {"checkpointLocation": "/tmp/c", "queryName": "q", "kafka.retries": "3"}
    notes = parse({**LEAST, **given, **silent}).notes
    assert {note.partition(" has no effect: ")[0] for note in notes} == set(given)
    assert all(note.partition(": ")[2] for note in notes)


@pytest.mark.parametrize(
    ("name", "value", "price"),
    [
        ("acks", "1", "a batch may be written twice, or behind a later one"),
        ("acks", "0", "rows may be lost, and nobody is told"),
        ("retries", "0", "a batch may be written twice, or behind a later one"),
        ("max.in.flight.requests.per.connection", "6", "a batch may be written twice, or behind a later one"),
    ],
)
def test_what_turns_idempotence_off_is_told(name: str, value: str, price: str) -> None:
    options = parse({**LEAST, f"kafka.{name}": value})
    told = f"kafka.{name}={value} turns idempotence off: {price}"
    assert (options.idempotent, options.notes) == (False, (told,))
    assert parse({**LEAST, f"kafka.{name}": value, "kafka.enable.idempotence": "false"}).notes == ()


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"exactlyOnce": "true", "kafka.acks": "1"}, "exactlyOnce=true contradicts kafka.acks=1"),
        (
            {"exactlyOnce": "true", "kafka.enable.idempotence": "false"},
            "exactlyOnce=true contradicts kafka.enable.idempotence=false",
        ),
        ({"exactlyOnce": "maybe"}, "exactlyOnce='maybe' must be true or false"),
        ({"kafka.transactional.id": "x"}, "kafka.transactional.id is not supported: transactions are named"),
        ({"kafka.value.serializer": "x"}, "kafka.value.serializer is not supported: values are binary or"),
        ({"path": "/x"}, "path is not supported: save() and start() take no path"),
        ({"kafka.partitioner.class": "com.acme.Mine"}, "kafka.partitioner.class='com.acme.Mine' is a Java"),
        ({"kafka.compression.type": "brotli"}, "'brotli' must be one of none, gzip, snappy, lz4, zstd"),
        ({"kafka.compression.gzip.level": "10"}, "kafka.compression.gzip.level='10' must be at most 9"),
        ({"kafka.acks": "2"}, "kafka.acks='2' must be one of all, -1, 0, 1"),
        ({"kafka.compression.gzip.level": "0"}, "kafka.compression.gzip.level='0' must be -1, or from 1"),
        ({"topic": "a/b"}, "topic='a/b' is no name of a topic: up to 249 of a-z, A-Z, 0-9, '.', '_' and '-'"),
        ({"topik": "x"}, "unknown option topik; did you mean topic?"),
        ({"kafka.compresion.type": "lz4"}, "did you mean kafka.compression.type?"),
        ({"kafka.security.protocol": "SSL"}, "is not supported: expected PLAINTEXT"),
    ],
)
def test_complaints_give_the_reason(given: dict[str, str], reason: str) -> None:
    assert reason in complaint(**given)


def test_what_kafka_takes_to_its_limits_is_taken() -> None:
    assert parse({**LEAST, "kafka.client.id": "", "kafka.request.timeout.ms": "0"}) == parse(LEAST)


SPARKS_OWN = {
    "checkpointLocation",
    "queryName",
    "asyncProgressTrackingEnabled",
    "asyncProgressTrackingCheckpointIntervalMs",
}


@pytest.mark.parametrize(
    "name",
    [
        name
        for name, verdict in WRITING.options.items()
        if isinstance(verdict, Served) and name not in SPARKS_OWN
    ],
)
def test_every_option_that_is_served_has_its_row_in_the_docs(name: str) -> None:
    page = Path(strandline.__file__).with_name("docs") / "spark.md"
    rows = [line for line in page.read_text().splitlines() if line.startswith("| `")]
    assert any(f"`{name}`" in row.split(" | ")[0] for row in rows)


def test_servers_must_be_named() -> None:
    with pytest.raises(OptionError, match=r"kafka\.bootstrap\.servers is missing"):
        parse({"topic": "t"})
    assert parse({"bootstrap.servers": "h:1"}).topic is None


def test_idempotence_gives_way_as_in_kafka_unless_it_was_asked_for() -> None:
    flight = "kafka.max.in.flight.requests.per.connection"
    against = {"kafka.acks": "1", flight: "6", "kafka.retries": "0"}
    for name, value in against.items():
        assert not parse({**LEAST, name: value}).idempotent
        contradiction = f"kafka.enable.idempotence=true contradicts {name}={value}"
        assert contradiction in complaint(**{"kafka.enable.idempotence": "true", name: value})
    assert not parse({**LEAST, "kafka.enable.idempotence": "false"}).idempotent
    assert [parse({**LEAST, "kafka.acks": each}).acks for each in ("all", "-1", "0", "1")] == [-1, -1, 0, 1]


def test_spark_keeps_its_own_options() -> None:
    """It reads them itself, and refuses asynchronous progress for sinks that it does not know."""
    found = parse({**LEAST, "asyncProgressTrackingEnabled": "false", "queryName": "q"})
    assert found.notes == ()


def test_a_level_is_that_of_the_codec() -> None:
    levels = {"kafka.compression.zstd.level": "7", "kafka.compression.lz4.level": "3"}
    assert parse({**LEAST, **levels, "kafka.compression.type": "zstd"}).level == 7
    assert parse({**LEAST, **levels, "kafka.compression.type": "snappy"}).level is None
    assert (
        parse({**LEAST, "kafka.compression.type": "gzip", "kafka.compression.gzip.level": "-1"}).level is None
    )


def test_kafkas_own_partitioners_are_rules_here() -> None:
    kafka = "org.apache.kafka.clients.producer."
    for name, spread in (
        ("internals.DefaultPartitioner", Spread.BY_KEY),
        ("UniformStickyPartitioner", Spread.STICKY),
        ("RoundRobinPartitioner", Spread.ROUND_ROBIN),
    ):
        assert parse({**LEAST, "kafka.partitioner.class": kafka + name}).spread is spread
    assert parse({**LEAST, "kafka.partitioner.ignore.keys": "true"}).spread is Spread.STICKY


@pytest.fixture
def _spark_reads_types(spark: object) -> None:
    """Spark's JVM does, when a schema is given as text."""


def refused(schema: str, options: SinkOptions | None = None) -> str:
    with pytest.raises(OptionError) as error:
        columns_of(StructType.fromDDL(schema), options or parse(LEAST))
    return str(error.value)


@pytest.mark.spark
@pytest.mark.usefixtures("_spark_reads_types")
def test_columns_are_those_of_sparks_sink_and_a_timestamp() -> None:
    every = "headers array<struct<key: string, value: binary>>, value string, key binary, partition int, "
    schema = StructType.fromDDL(every + "timestamp timestamp, topic string, offset bigint")
    columns = columns_of(schema, parse({"bootstrap.servers": "h:1"}))
    places = {"headers": 0, "value": 1, "key": 2, "partition": 3, "timestamp": 4, "topic": 5}
    assert columns.place == places
    assert columns.notes == ("column offset is not written",)
    del places["topic"]
    assert columns_of(schema, parse(LEAST)).place == places, "the option wins"


@pytest.mark.spark
@pytest.mark.usefixtures("_spark_reads_types")
@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ("key string", "there is no column value, of type string or binary; there are key"),
        ("Value string", "there is no column value, of type string or binary; there are Value"),
        ("value int", "column value has type int; expected string or binary"),
        ("value string, key bigint", "column key has type bigint; expected string or binary"),
        ("value string, partition bigint", "column partition has type bigint; expected int"),
        ("value string, timestamp bigint", "column timestamp has type bigint; expected timestamp"),
        ("value string, headers map<string, binary>", "expected array<struct<key:string,value:binary>>"),
        ("value string, headers array<struct<key: binary, value: binary>>", "column headers has type array<"),
        ("value string, headers array<struct<name: string, value: binary>>", "column headers has type array"),
        ("value string, value string", "column value is there twice"),
    ],
)
def test_columns_of_other_types_are_refused(schema: str, reason: str) -> None:
    assert reason in refused(schema)


@pytest.mark.spark
@pytest.mark.usefixtures("_spark_reads_types")
def test_a_column_that_the_option_overrides_is_not_looked_at() -> None:
    schema = "value string, topic binary"
    assert "column topic has type binary; expected string" in refused(
        schema, parse({"bootstrap.servers": "h:1"})
    )
    assert columns_of(StructType.fromDDL(schema), parse(LEAST)).place == {"value": 0}


@pytest.mark.spark
@pytest.mark.usefixtures("_spark_reads_types")
def test_a_topic_must_be_named_somewhere() -> None:
    no_topic = parse({"bootstrap.servers": "h:1"})
    told = "no topic is named: set the option topic, or add a column topic"
    assert refused("value string", no_topic) == told
    both = refused("value int, key int", no_topic)
    assert told in both and both.count("; ") == 4, "all complaints at once"
