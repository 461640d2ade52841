"""The option sets of the matrix that both sources must refuse, and those where they differ on purpose."""

from dataclasses import dataclass
from typing import Any

from tests.client.spark.parity.sets import EARLIEST, FEW_RETRIES, PLAIN, SOON, at, by


@dataclass(frozen=True)
class Refused:
    """Neither source reads that. The words are of the first line, or of a line behind it."""

    name: str
    options: dict[str, Any]
    theirs: str
    ours: str
    core: bool = False
    stream: bool = False


@dataclass(frozen=True)
class Differing:
    """The sources differ on purpose: rows, or a refusal's words."""

    name: str
    why: str
    options: dict[str, Any]
    theirs: int | str
    ours: int | str
    core: bool = False
    stream: bool = False
    schema: str | None = None


REFUSED = [
    Refused(
        "no topics", {}, "One of the following options must be specified", "expected exactly one of subscribe"
    ),
    Refused(
        "topics in two ways",
        {**PLAIN, "assign": '{"plain": [0]}'},
        "Only one of the following options can be specified",
        "expected exactly one of subscribe",
        core=True,
    ),
    Refused(
        "no topic named", {"subscribe": " , "}, "No topics to subscribe to", "must name at least one topic"
    ),
    Refused(
        "a pattern of nothing",
        {"subscribePattern": " "},
        "Pattern to subscribe is empty",
        "must not be empty",
    ),
    Refused(
        "partitions in no JSON", {"assign": "plain"}, "No topicpartitions to assign", "must be JSON like"
    ),
    Refused("partitions in other JSON", {"assign": '{"plain": 0}'}, "Expected e.g.", "must be JSON like"),
    Refused(
        "a topic that is not there",
        {"subscribe": "plain,gone", **FEW_RETRIES},
        "UnknownTopicOrPartition",
        "no such topic or partition: gone",
        core=True,
    ),
    Refused(
        "a batch from latest on",
        {**PLAIN, "startingOffsets": "latest"},
        "starting offset can't be latest for batch queries",
        "startingOffsets must not be latest",
        core=True,
    ),
    Refused(
        "a batch from -1 on",
        {**PLAIN, "startingOffsets": by(_0=-1, _1=0, _2=0)},
        "can't be latest for batch queries",
        "startingOffsets must not be latest",
    ),
    Refused(
        "a batch up to earliest",
        {**PLAIN, "endingOffsets": "earliest"},
        "ending offset can't be earliest",
        "endingOffsets must not be earliest",
    ),
    Refused(
        "a batch up to -2",
        {**PLAIN, "endingOffsets": by(_0=-2, _1=0, _2=0)},
        "can't be earliest for batch queries",
        "endingOffsets must not be earliest",
    ),
    Refused(
        "a start left out",
        {**PLAIN, "startingOffsets": by(_0=0, _1=0)},
        "don't match what are assigned",
        "the starting bounds must name exactly the partitions that are read; see plain-2",
        core=True,
    ),
    Refused(
        "a start too many",
        {**PLAIN, "startingOffsets": by(_0=0, _1=0, _2=0, _3=0)},
        "don't match what are assigned",
        "the starting bounds must name exactly the partitions that are read; see plain-3",
    ),
    Refused(
        "an end left out",
        {**PLAIN, "endingOffsets": by(_0=0, _1=0)},
        "don't match what are assigned",
        "the ending bounds must name exactly the partitions that are read; see plain-2",
    ),
    Refused(
        "a time left out",
        {**PLAIN, "startingOffsetsByTimestamp": by(_0=0, _1=0)},
        "don't match what are assigned",
        "the starting bounds must name exactly the partitions that are read; see plain-2",
    ),
    Refused(
        "a start behind its end",
        {**PLAIN, "startingOffsets": by(_0=5, _1=0, _2=0), "endingOffsets": by(_0=4, _1=9, _2=9)},
        "The specified start offset 5 is greater than the end offset 4",
        "plain-0: the starting offset 5 is after the ending offset 4",
    ),
    Refused(
        "a time behind its end",
        {
            **PLAIN,
            "startingOffsetsByTimestamp": by(_0=at(5), _1=at(0), _2=at(0)),
            "endingOffsetsByTimestamp": by(_0=at(4), _1=at(9), _2=at(9)),
        },
        "The specified start timestamp [0-9]+ is greater than the end timestamp",
        f"plain-0: the starting timestamp {at(5)} is after the ending timestamp {at(4)}",
    ),
    Refused(
        "one time behind the other",
        {**PLAIN, "startingTimestamp": at(8), "endingTimestamp": at(3)},
        "The resolved start offset 8 is greater than the resolved end offset 3",
        "the starting offset 8 is after the ending offset 3",
        core=True,
    ),
    Refused(
        "a time behind an offset",
        {**PLAIN, "startingTimestamp": at(8), "endingOffsets": by(_0=5, _1=9, _2=9)},
        "The resolved start offset 8 is greater than the resolved end offset 5",
        "plain-0: the starting offset 8 is after the ending offset 5",
    ),
    Refused(
        "a start behind the end of the log",
        {**PLAIN, "startingOffsets": by(_0=99, _1=0, _2=0)},
        "The resolved start offset 99 is greater than the resolved end offset 10",
        "plain-0: the starting offset 99 is out of range: the log has [0, 10)",
    ),
    Refused(
        "a time that some have not reached",
        {**PLAIN, "startingTimestamp": at(25), **FEW_RETRIES},
        "No offset matched from request of topic-partition plain-",
        "no record is at or after the starting timestamp",
        core=True,
    ),
    Refused(
        "times that some have not reached",
        {**PLAIN, "startingOffsetsByTimestamp": by(_0=at(99), _1=0, _2=0), **FEW_RETRIES},
        "No offset matched from request of topic-partition plain-0",
        "plain-0: no record is at or after the starting timestamp",
    ),
    Refused(
        "a time in words",
        {**PLAIN, "startingTimestamp": "now"},
        "single long value",
        "must be a whole number",
    ),
    Refused(
        "offsets in no JSON", {**PLAIN, "startingOffsets": "first"}, "Expected e.g.", "must be JSON like"
    ),
    Refused(
        "offsets in other JSON", {**PLAIN, "startingOffsets": '{"plain": [0]}'}, "Expected e.g.", "JSON like"
    ),
    Refused(
        "a strategy that is none",
        {**PLAIN, "startingOffsetsByTimestampStrategy": "nearest"},
        "No value found for 'NEAREST'",
        "must be one of error, latest",
    ),
    Refused(
        "no tasks", {**PLAIN, "minPartitions": 0}, "minPartitions must be positive", "must be at least 1"
    ),
    Refused(
        "tasks in words",
        {**PLAIN, "minPartitions": "some"},
        'For input string: "some"',
        "must be a whole number",
    ),
    Refused(
        "tasks without records",
        {**PLAIN, "maxRecordsPerPartition": -1},
        "maxrecordsperpartition must be positive",
        "must be at least 1",
    ),
    Refused("loss in words", {**PLAIN, "failOnDataLoss": "maybe"}, "maybe", "must be true or false"),
    Refused("headers in words", {**PLAIN, "includeHeaders": "yes"}, "yes", "must be true or false"),
    Refused(
        "a least above the most",
        {**PLAIN, "minOffsetsPerTrigger": 9, "maxOffsetsPerTrigger": 5},
        "higher than the maxOffsetsPerTrigger",
        "minOffsetsPerTrigger=9 is above maxOffsetsPerTrigger=5",
        stream=True,
    ),
    Refused(
        "an isolation that is none",
        {**PLAIN, "kafka.isolation.level": "some"},
        "isolation.level|No enum constant",
        "must be one of read_uncommitted, read_committed",
    ),
    *(
        Refused(
            name,
            {**PLAIN, f"kafka.{name}": "x"},
            f"Kafka option '{name}' is not supported",
            "is not supported: ",
        )
        for name in (
            *("auto.offset.reset", "key.deserializer", "value.deserializer"),
            *("enable.auto.commit", "interceptor.classes"),
        )
    ),
    Refused(
        "records deleted",
        {"subscribe": "deleted", "startingOffsets": by("deleted", _0=3, _1=3), **SOON},
        "DATA_LOSS|Some data may have been lost",
        "deleted-0: the starting offset 3 is out of range: the log has [15, 40)",
        core=True,
    ),
    Refused(
        "an end that is not there yet",
        {**PLAIN, "endingOffsets": by(_0=99, _1=0, _2=0), **SOON},
        "DATA_LOSS|Some data may have been lost",
        "plain-0: the ending offset 99 is out of range: the log has [0, 10)",
    ),
    Refused(
        "a stream with an end",
        {**PLAIN, "endingOffsets": "latest"},
        "ending offset not valid in streaming queries",
        "a stream has no end",
        core=True,
        stream=True,
    ),
    Refused(
        "a stream with ends by times",
        {**PLAIN, "endingOffsetsByTimestamp": by(_0=0, _1=0, _2=0)},
        "ending timestamp not valid in streaming queries",
        "a stream has no end",
        stream=True,
    ),
    Refused(
        "a stream of records deleted",
        {"subscribe": "deleted", "startingOffsets": by("deleted", _0=3, _1=3), **SOON},
        "DATA_LOSS|Some data may have been lost",
        "deleted-0: the starting offset 3 is out of range: the log has [15, 40)",
        stream=True,
    ),
]

DIFFERING = [
    Differing(
        "a partition that is not there",
        "to read less than was named is silent loss",
        {"assign": '{"plain": [0, 9]}'},
        10,
        "no such topic or partition: plain-9",
        core=True,
    ),
    Differing(
        "a start behind the end of the log, and loss is no matter",
        "nothing is left of what was asked for, and that was allowed",
        {**PLAIN, "startingOffsets": by(_0=99, _1=0, _2=0), "failOnDataLoss": False},
        "The resolved start offset 99 is greater than the resolved end offset 10",
        50,
    ),
    Differing(
        "a name that is no option",
        "a slip of the pen must not change what is read",
        {**PLAIN, "startingOffset": by(_0=9, _1=0, _2=0)},
        60,
        "unknown option startingoffset; did you mean startingOffsets?",
        core=True,
    ),
    Differing(
        "a stream with an end by a time",
        "Spark's source reads on behind it",
        {**PLAIN, **EARLIEST, "endingTimestamp": at(3)},
        60,
        "a stream has no end",
        stream=True,
    ),
    Differing(
        "internal topics by name",
        "they were named",
        {"subscribe": "__consumer_offsets"},
        0,
        0,
    ),
]
