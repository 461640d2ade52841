"""A topic to fetch, a reader of it, and a clock that moves only when somebody sleeps."""

from collections.abc import Callable
from typing import Any

from strandline.base.types import TopicPartition
from strandline.client.spark import snapshot
from strandline.client.spark.client import SparkCluster
from strandline.client.spark.fetch import SpanReader
from strandline.client.spark.options import SourceOptions, parse
from strandline.client.spark.plan import Span
from strandline.protocol.columns import runs
from strandline.protocol.compression import Codec

Seen = list[tuple[int, bytes | None]]


class Patience:
    """A clock that moves only when somebody sleeps; what happens meanwhile can be told."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.slept: list[float] = []
        self.then: Callable[[float], None] = lambda seconds: None

    def now(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds
        self.slept.append(seconds)
        self.then(self.seconds)


class Story:
    """One topic with one partition of 40 batches with ten records, and a reader of it."""

    def __init__(self, double: Any, **given: str) -> None:
        self.double = double
        self.log = double.log("t")
        for number in range(40):
            values = [(1000 + number, None, b"%d" % (number * 10 + index), []) for index in range(10)]
            self.log.add(values, codec=Codec.ZSTD if number % 3 else Codec.NONE)
        self.patience = Patience()
        self.options: SourceOptions = parse(
            {
                "bootstrap.servers": double.servers,
                "subscribe": "t",
                "kafka.max.partition.fetch.bytes": "600",
                "kafka.request.timeout.ms": "2000",
                "kafkaConsumer.pollTimeoutMs": "30000",
                **given,
            }
        )
        self.cluster = SparkCluster(self.options.cluster, self.patience.now, self.patience.sleep)

    def reader(self, span: Span | None = None) -> SpanReader:
        if span is None:
            (span,) = snapshot.take(self.cluster, self.options)
        return SpanReader(self.cluster, span, self.options.stall_seconds, self.options.fail_on_data_loss)

    def read(self, span: Span | None = None) -> Seen:
        reader = self.reader(span)
        end = 400 if span is None else span.end
        return [
            (row.offset, row.value)
            for run in reader
            for columns in runs(run.records, run.start, end)
            for row in columns.rows()
        ]


def records(start: int, end: int) -> Seen:
    return [(offset, b"%d" % offset) for offset in range(start, end)]


def span(start: int, end: int) -> Span:
    return Span(TopicPartition("t", 0), start, end)
