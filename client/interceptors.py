"""Interceptors: code of the user's that sees every record on its way, to count, trace or change it.

As in Kafka, an interceptor never breaks the client. One that raises is logged, and the next one goes on with
what its predecessor had. They are called in the order in which they were given, in the client's event loop,
so they must not block.
Left to others: when they are called (producer/producer.py, consumer/consumer.py).
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, TypeVar

from ..base.logger import get_logger
from ..base.types import TopicPartition
from .results import CommittedOffset, ConsumerRecord, ProducerRecord, Receipt

log = get_logger(__name__)

UNKNOWN = -1  # a partition or offset that a failed record never got


class ProducerInterceptor:
    """Sees what a producer sends. Override what is wanted."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Called before key and value are serialized; what is returned is sent."""
        return record

    def on_acknowledgement(self, receipt: Receipt, error: BaseException | None) -> None:
        """Called when a record is acknowledged, or has failed: then offset and timestamp are -1, and the
        partition too if none was chosen yet."""

    def close(self) -> None:
        """Called when the producer closes."""


class ConsumerInterceptor:
    """Sees what a consumer hands out and commits. Override what is wanted."""

    def on_consume(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        """Called before records are handed out; what is returned is handed out."""
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Called when the coordinator has accepted these offsets."""

    def close(self) -> None:
        """Called when the consumer closes."""


I = TypeVar("I", ProducerInterceptor, ConsumerInterceptor)
V = TypeVar("V")


class Chain(Generic[I]):
    """The interceptors of one client; false if there are none."""

    def __init__(self, interceptors: Iterable[I]) -> None:
        self._members: tuple[I, ...] = tuple(interceptors)

    def __bool__(self) -> bool:
        return bool(self._members)

    def pass_on(self, call: Callable[[I, V], V], value: V) -> V:
        """Hand `value` from one to the next. One that raises, or returns nothing, changes nothing."""
        for member in self._members:
            said = _guarded(call, member, value)
            value = value if said is None else said
        return value

    def tell(self, call: Callable[[I], None]) -> None:
        """Tell all of them."""
        for member in self._members:
            _guarded(call, member)


def _guarded(call: Callable[..., Any], member: Any, *what: Any) -> Any:
    try:
        return call(member, *what)
    except Exception as trouble:
        log.warning("interceptor_failed", interceptor=type(member).__name__, exc_info=trouble)
        return None


class ObservedSink:
    """Stands between the sender and a record's sink, and tells interceptors the outcome first."""

    __slots__ = ("_chain", "_sink", "_topic", "partition")

    def __init__(self, chain: Chain[ProducerInterceptor], sink: Any, record: ProducerRecord) -> None:
        self._chain, self._sink, self._topic = chain, sink, record.topic
        self.partition = UNKNOWN if record.partition is None else record.partition

    def acknowledged(self, index: int, receipt: Receipt) -> None:
        """The record is in the log."""
        self._chain.tell(lambda one: one.on_acknowledgement(receipt, None))
        self._sink.acknowledged(index, receipt)

    def refused(self, index: int, error: Exception) -> None:
        """The record was given up."""
        self.not_sent(error)
        self._sink.refused(index, error)

    def not_sent(self, error: BaseException) -> None:
        """`send` raises this to its caller."""
        nowhere = Receipt(self._topic, self.partition, UNKNOWN, UNKNOWN)
        self._chain.tell(lambda one: one.on_acknowledgement(nowhere, error))
