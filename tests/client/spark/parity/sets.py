"""The option sets of the matrix that both sources must read alike.

A set says how many rows come, so that nothing is not compared with nothing. Those of `core` are the share
that every run of the tests takes.
"""

import json
from dataclasses import dataclass
from typing import Any

from tests.client.spark.parity.topics import BEGAN_MS, STEP_MS


@dataclass(frozen=True)
class Read:
    """Both sources read these rows, in a batch."""

    name: str
    options: dict[str, Any]
    rows: int
    core: bool = False
    by_task: bool = False  # and the same rows in the same tasks


@dataclass(frozen=True)
class Streamed(Read):
    """Both sources read these rows, in a stream that ends by itself."""

    by_batch: bool = False  # and the same rows in the same batches, but for empty ones


def at(number: int) -> int:
    """The time of the record with that number."""
    return BEGAN_MS + number * STEP_MS


def by(topic: str = "plain", **numbers: int) -> str:
    """`_0=5` is partition 0 and 5, in JSON as Spark wants it."""
    return json.dumps({topic: {name.lstrip("_"): number for name, number in numbers.items()}})


def both_by(*documents: str) -> str:
    """Several of these in one."""
    return json.dumps({name: found for each in documents for name, found in json.loads(each).items()})


PLAIN = {"subscribe": "plain"}
SKEWED = {"subscribe": "skewed"}
FEW_RETRIES = {"fetchOffset.numRetries": 1, "fetchOffset.retryIntervalMs": 10}
SOON = {"kafkaConsumer.pollTimeoutMs": 2000, **FEW_RETRIES}

BATCHES = [
    # what is read
    Read("one topic", {**PLAIN, "includeHeaders": True}, 60, core=True),
    Read("several topics", {"subscribe": "plain,skewed,empty"}, 271, core=True),
    Read("a topic twice, and blanks", {"subscribe": " plain , half,, plain"}, 65),
    Read("a pattern", {"subscribePattern": r"^name\..*"}, 10),
    Read("a pattern that is found within a name", {"subscribePattern": "name.a"}, 15, core=True),
    Read("a pattern of a whole name", {"subscribePattern": r"^name\.a$"}, 5),
    Read("a pattern without a match", {"subscribePattern": "nothing-.*"}, 0),
    Read("a pattern that all internal topics match", {"subscribePattern": "^(__|half).*"}, 5),
    Read("partitions", {"assign": '{"plain": [0, 2]}'}, 40, core=True),
    Read("partitions of several topics", {"assign": '{"plain": [1], "half": [0, 1]}'}, 25),
    Read("an empty topic", {"subscribe": "empty"}, 0, core=True),
    Read("a topic with an empty partition", {"subscribe": "half"}, 5),
    # from where to where, by offsets
    Read("earliest to latest", {**PLAIN, "startingOffsets": "earliest", "endingOffsets": "latest"}, 60),
    Read("words with blanks and capitals", {**PLAIN, "startingOffsets": " Earliest "}, 60),
    Read("starts, -2", {**PLAIN, "startingOffsets": by(_0=5, _1=-2, _2=29)}, 26, core=True),
    Read("ends, -1", {**PLAIN, "endingOffsets": by(_0=5, _1=-1, _2=0)}, 25),
    Read(
        "starts and ends",
        {**PLAIN, "startingOffsets": by(_0=2, _1=3, _2=4), "endingOffsets": by(_0=3, _1=13, _2=-1)},
        37,
        core=True,
    ),
    Read(
        "starts that are ends",
        {**PLAIN, "startingOffsets": by(_0=5, _1=0, _2=30), "endingOffsets": by(_0=5, _1=0, _2=30)},
        0,
    ),
    Read("starts at the end", {**PLAIN, "startingOffsets": by(_0=10, _1=20, _2=30)}, 0),
    Read(
        "starts of several topics",
        {
            "subscribe": "plain,half",
            "startingOffsets": both_by(by(_0=9, _1=-2, _2=30), by("half", _0=4, _1=-2)),
        },
        22,
    ),
    Read("starts of a pattern", {"subscribePattern": "half", "startingOffsets": by("half", _0=1, _1=0)}, 4),
    Read("starts of partitions", {"assign": '{"plain": [2]}', "startingOffsets": by(_2=12)}, 18),
    Read("an empty topic by offsets", {"subscribe": "empty", "startingOffsets": by("empty", _0=0, _1=-2)}, 0),
    # by times
    Read("from a time on", {**PLAIN, "startingTimestamp": at(5)}, 45, core=True),
    Read("from between two times on", {**PLAIN, "startingTimestamp": at(5) + 1}, 42),
    Read("from the first time on", {**PLAIN, "startingTimestamp": 0}, 60),
    Read("up to a time", {**PLAIN, "endingTimestamp": at(5)}, 15),
    Read("up to a time to come", {**PLAIN, "endingTimestamp": at(1000)}, 60),
    Read("between times", {**PLAIN, "startingTimestamp": at(3), "endingTimestamp": at(8)}, 15, core=True),
    Read(
        "times before words that a batch alone could not have",
        {
            **PLAIN,
            "startingTimestamp": at(3),
            "startingOffsets": "latest",
            "endingTimestamp": at(8),
            "endingOffsets": "earliest",
        },
        15,
    ),
    Read(
        "from a time on that some have not reached",
        {**PLAIN, "startingTimestamp": at(25), "startingOffsetsByTimestampStrategy": "latest"},
        5,
        core=True,
    ),
    Read(
        "from times on",
        {**PLAIN, "startingOffsetsByTimestamp": by(_0=at(9), _1=at(0), _2=at(28))},
        23,
        core=True,
    ),
    Read(
        "from times on that some have not reached",
        {
            **PLAIN,
            "startingOffsetsByTimestamp": by(_0=at(9), _1=at(28), _2=at(28)),
            "startingOffsetsByTimestampStrategy": "LATEST",
        },
        3,
    ),
    Read("up to times", {**PLAIN, "endingOffsetsByTimestamp": by(_0=at(9), _1=at(0), _2=at(99))}, 39),
    Read(
        "between times of their own",
        {
            **PLAIN,
            "startingOffsetsByTimestamp": by(_0=at(1), _1=at(2), _2=at(3)),
            "endingOffsetsByTimestamp": by(_0=at(2), _1=at(4), _2=at(6)),
        },
        6,
    ),
    Read(
        "from a time to offsets",
        {**PLAIN, "startingTimestamp": at(8), "endingOffsets": by(_0=9, _1=9, _2=9)},
        3,
    ),
    Read(
        "a time before times before offsets",
        {
            **PLAIN,
            "startingTimestamp": at(5),
            "startingOffsetsByTimestamp": by(_0=at(9), _1=at(9), _2=at(9)),
            "startingOffsets": by(_0=1, _1=1, _2=1),
            "endingTimestamp": at(6),
            "endingOffsetsByTimestamp": by(_0=at(9), _1=at(9), _2=at(9)),
            "endingOffsets": by(_0=8, _1=8, _2=8),
        },
        3,
    ),
    Read(
        "times before offsets",
        {
            **PLAIN,
            "startingOffsetsByTimestamp": by(_0=at(7), _1=at(7), _2=at(7)),
            "startingOffsets": by(_0=1, _1=1, _2=1),
            "endingOffsetsByTimestamp": by(_0=at(9), _1=at(9), _2=at(9)),
            "endingOffsets": by(_0=8, _1=8, _2=8),
        },
        6,
    ),
    Read(
        "an empty topic by a time",
        {"subscribe": "empty", "startingTimestamp": 0, "startingOffsetsByTimestampStrategy": "latest"},
        0,
    ),
    # in how many tasks
    Read("fewer tasks than partitions", {**SKEWED, "minPartitions": 1}, 211, by_task=True),
    Read("some more tasks", {**SKEWED, "minPartitions": 7}, 211, core=True, by_task=True),
    Read("many tasks", {**SKEWED, "minPartitions": 64}, 211, by_task=True),
    # Spark's source applies this one only where it knows both offsets when it plans
    Read("small tasks", {**SKEWED, "maxRecordsPerPartition": 50}, 211),
    Read(
        "small tasks between offsets",
        {
            **SKEWED,
            "maxRecordsPerPartition": 50,
            "startingOffsets": by("skewed", _0=0, _1=0, _2=3),
            "endingOffsets": by("skewed", _0=1, _1=10, _2=200),
        },
        208,
        core=True,
        by_task=True,
    ),
    Read(
        "small and many tasks",
        {**SKEWED, "maxRecordsPerPartition": 90, "minPartitions": 9},
        211,
        by_task=True,
    ),
    Read(
        "tasks between offsets",
        {
            **SKEWED,
            "minPartitions": 5,
            "startingOffsets": by("skewed", _0=0, _1=3, _2=17),
            "endingOffsets": by("skewed", _0=1, _1=-1, _2=123),
        },
        114,
        by_task=True,
    ),
    Read("tasks with empty partitions", {"subscribe": "half,empty", "minPartitions": 6}, 5, by_task=True),
    Read("tasks and headers", {**PLAIN, "minPartitions": 10, "includeHeaders": "TRUE"}, 60, by_task=True),
    # logs that are not whole
    Read("records deleted", {"subscribe": "deleted"}, 65, core=True),
    Read(
        "records deleted, asked for by offset",
        {
            "subscribe": "deleted",
            "startingOffsets": by("deleted", _0=3, _1=3),
            "failOnDataLoss": False,
            **SOON,
        },
        62,
        core=True,
    ),
    Read(
        "nothing left",
        {
            "subscribe": "deleted",
            "startingOffsets": by("deleted", _0=3, _1=3),
            "endingOffsets": by("deleted", _0=9, _1=9),
            "failOnDataLoss": "False",
            **SOON,
        },
        6,
    ),
    Read("records deleted, asked for by time", {"subscribe": "deleted", "startingTimestamp": at(3)}, 62),
    Read(
        "ends that are not there yet",
        {**PLAIN, "endingOffsets": by(_0=99, _1=99, _2=3), "failOnDataLoss": False, **SOON},
        33,
    ),
    Read("a compacted log", {"subscribe": "compacted"}, -1, core=True),
    Read(
        "a compacted log from a gap on",
        {"subscribe": "compacted", "startingOffsets": by("compacted", _0=7)},
        -1,
    ),
    Read(
        "a compacted log up to a gap",
        {"subscribe": "compacted", "endingOffsets": by("compacted", _0=430)},
        -1,
    ),
    Read("a compacted log by a time", {"subscribe": "compacted", "startingTimestamp": at(9)}, -1),
    Read("a compacted log in tasks", {"subscribe": "compacted", "minPartitions": 7}, -1, by_task=True),
    Read(
        "a compacted log in small tasks",
        {
            "subscribe": "compacted",
            "maxRecordsPerPartition": 100,
            "startingOffsets": by("compacted", _0=0),
            "endingOffsets": by("compacted", _0=600),
        },
        -1,
        core=True,
        by_task=True,
    ),
    Read("LogAppendTime", {"subscribe": "appended", "includeHeaders": True}, 20, core=True),
    Read("LogAppendTime, from a time on", {"subscribe": "appended", "startingTimestamp": at(1)}, 20),
    # the rest
    Read("a prefix of groups", {**PLAIN, "groupIdPrefix": "etl"}, 60),
    Read("a group", {**PLAIN, "kafka.group.id": "etl", "kafka.session.timeout.ms": 10_000}, 60),
    Read(
        "a client's name, place and reach",
        {
            **PLAIN,
            "kafka.client.id": "job-7",
            "kafka.client.rack": "zone-1",
            "kafka.isolation.level": "read_committed",
            "kafka.security.protocol": "PLAINTEXT",
            "kafka.request.timeout.ms": 20_000,
        },
        60,
        core=True,
    ),
    Read(
        "a client that is given little at a time",
        {
            **PLAIN,
            "kafka.max.poll.records": 3,
            "kafka.max.partition.fetch.bytes": 100,
            "kafka.fetch.max.bytes": 100,
            "kafka.fetch.max.wait.ms": 10,
        },
        60,
    ),
    Read(
        "a client of the smallest sizes, without a name and place",
        {
            **PLAIN,
            "kafka.client.id": "",
            "kafka.client.rack": "",
            "kafka.fetch.min.bytes": 0,
            "kafka.fetch.max.bytes": 0,
            "kafka.max.partition.fetch.bytes": 0,
        },
        60,
    ),
    Read("options of streams", {**PLAIN, "maxOffsetsPerTrigger": 3, "maxTriggerDelay": "1m"}, 60),
    Read("patience", {**PLAIN, "kafkaConsumer.pollTimeoutMs": 30_000, "fetchOffset.numRetries": 5}, 60),
    Read("names in other letters", {"SUBSCRIBE": "plain", "startingoffsets": by(_0=9, _1=-2, _2=-2)}, 51),
]

EARLIEST = {"startingOffsets": "earliest"}

STREAMS = [
    Streamed("earliest", {**PLAIN, **EARLIEST, "includeHeaders": True}, 60, core=True),
    Streamed("latest", {**PLAIN, "startingOffsets": "latest"}, 0),
    Streamed("the default", PLAIN, 0, core=True),
    Streamed("starts, -2, -1", {**PLAIN, "startingOffsets": by(_0=5, _1=-2, _2=-1)}, 25),
    Streamed("from a time on", {**PLAIN, "startingTimestamp": at(5)}, 45),
    Streamed("from times on", {**PLAIN, "startingOffsetsByTimestamp": by(_0=at(9), _1=at(0), _2=at(28))}, 23),
    Streamed(
        "from a time on that some have not reached",
        {**PLAIN, "startingTimestamp": at(25), "startingOffsetsByTimestampStrategy": "latest"},
        5,
    ),
    Streamed("partitions", {"assign": '{"plain": [0, 2]}', **EARLIEST}, 40),
    Streamed("a pattern", {"subscribePattern": r"^name\.", **EARLIEST}, 10),
    Streamed("an empty topic", {"subscribe": "empty", **EARLIEST}, 0),
    Streamed("a limit", {**SKEWED, **EARLIEST, "maxOffsetsPerTrigger": 60}, 211, core=True, by_batch=True),
    Streamed(
        "a limit below the partitions", {**PLAIN, **EARLIEST, "maxOffsetsPerTrigger": 7}, 60, by_batch=True
    ),
    Streamed(
        "a limit from offsets on",
        {**PLAIN, "startingOffsets": by(_0=-1, _1=3, _2=4), "maxOffsetsPerTrigger": 10},
        43,
        by_batch=True,
    ),
    Streamed("a limit above all", {**PLAIN, **EARLIEST, "maxOffsetsPerTrigger": 1000}, 60, by_batch=True),
    Streamed(
        "a limit over gaps",
        {"subscribe": "compacted", **EARLIEST, "maxOffsetsPerTrigger": 200},
        -1,
        by_batch=True,
    ),
    Streamed(
        "a limit, and tasks",
        {**SKEWED, **EARLIEST, "maxOffsetsPerTrigger": 100, "minPartitions": 6, "maxRecordsPerPartition": 40},
        211,
        by_batch=True,
        by_task=True,
    ),
    Streamed("enough at once", {**PLAIN, **EARLIEST, "minOffsetsPerTrigger": 10}, 60, by_batch=True),
    Streamed(
        "a least and a most",
        {**PLAIN, **EARLIEST, "minOffsetsPerTrigger": 10, "maxOffsetsPerTrigger": 30},
        60,
        by_batch=True,
    ),
    Streamed("records deleted", {"subscribe": "deleted", **EARLIEST}, 65),
    Streamed(
        "records deleted, asked for by offset",
        {
            "subscribe": "deleted",
            "startingOffsets": by("deleted", _0=3, _1=3),
            "failOnDataLoss": False,
            **SOON,
        },
        62,
    ),
    Streamed("LogAppendTime", {"subscribe": "appended", **EARLIEST}, 20),
    Streamed(
        "a group and its like",
        {
            **PLAIN,
            **EARLIEST,
            "groupIdPrefix": "etl",
            "kafka.client.id": "job-7",
            "kafka.isolation.level": "read_committed",
            "kafka.max.poll.records": 3,
        },
        60,
    ),
]
