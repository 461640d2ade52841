"""Options: every complaint is told, in the user's words, and Spark's spellings are understood."""

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict

from strandline.base.types import TopicPartition
from strandline.client.spark.options import (
    EARLIEST,
    LATEST,
    PARSERS,
    Everywhere,
    Offsets,
    OptionError,
    Times,
    parse,
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
    assert (options.fail_on_data_loss, options.include_headers) == (True, False)
    assert (options.partitions_min, options.stall_seconds) == (None, 120)
    assert (options.cluster.isolation, options.cluster.fetch_bytes) == (0, 4 << 20)


def test_names_come_in_any_case_and_servers_with_or_without_prefix() -> None:
    shouted = {name.upper(): value for name, value in LEAST.items()}
    assert parse(shouted) == parse(LEAST)
    spark = CaseInsensitiveDict({"Bootstrap.Servers": "h:1", "Subscribe": "t", "minPartitions": "7"})
    assert parse(spark).partitions_min == 7


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
    assert all(name in complaint(zzzzzz="1") for name in PARSERS)


@pytest.mark.parametrize(
    "name", ["kafka.group.id", "maxOffsetsPerTrigger", "kafka.auto.offset.reset", "path"]
)
def test_options_of_the_jvm_source_are_refused_with_a_reason(name: str) -> None:
    assert f"{name} is not supported: " in complaint(**{name: "x"})


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
        ("endingOffsets", "earliest", "must not be earliest (-2) in a batch read"),
        ("endingOffsets", '{"a": {"0": -2}}', "must not be earliest"),
        ("startingOffsets", '{"a": {"0": -3}}', "with numbers from -2 up"),
        ("startingOffsets", "yesterday", "must be JSON like"),
        ("startingOffsets", '{"a": [1]}', "must be JSON like"),
        ("startingOffsets", '{"a": {"0": true}}', "must be JSON like"),
        ("startingOffsets", "{}", "must be JSON like"),
        ("startingTimestamp", "noon", "must be a whole number"),
        ("subscribe", " , ", "must name at least one topic"),
        ("kafka.isolation.level", "serial", "must be one of read_uncommitted, read_committed"),
        ("kafka.security.protocol", "SASL_SSL", "must be one of plaintext"),
        ("bootstrap.servers", "h:1", "given twice"),
    ],
)
def test_values_are_checked(name: str, value: str, words: str) -> None:
    assert words in complaint(**{name: value})


@pytest.mark.parametrize("servers", ["", "host", "host:", ":9092", "host:http", "host:70000"])
def test_servers_are_host_and_port(servers: str) -> None:
    with pytest.raises(OptionError, match=r"kafka\.bootstrap\.servers"):
        parse({"kafka.bootstrap.servers": servers, "subscribe": "t"})


def test_ipv6_servers_are_understood() -> None:
    assert parse({**LEAST, "kafka.bootstrap.servers": "[::1]:9092"}).cluster.bootstrap == (("::1", 9092),)
