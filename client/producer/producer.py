"""Producer: records in, receipts out.

`send` is a plain function: the record is queued when it returns. Its result can be awaited for the receipt,
or ignored. Order per partition is the order of the calls.
While `buffer_memory` is full, or the topic is not known yet, records wait in a line that may hold as much
again, for at most `max_block_ms`; then their receipts fail. When the line is full `send` raises
BufferExhausted. Code that does not await receipts should `await producer.room()`; `send_many` does so by
itself.
Left to others: batching (accumulator.py), lists that come whole (bulk.py), delivery (sender.py), which
partition a key goes to (partitioner.py), transactions (transactions.py).
Why: docs/decisions/0014-send-is-a-plain-function.md
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from operator import index as whole_number
from random import Random
from types import TracebackType
from typing import Any, Self

from ...base.clock import SystemClock
from ...base.extras import require
from ...base.tasks import Tasks
from ...base.types import Clock, TopicPartition
from ...protocol import kernel
from ...protocol.errors import ApiError, MessageTooLarge
from ...protocol.kernel import Encoder
from ..arguments import checked_headers, checked_partition, checked_timestamp, checked_topic
from ..config import ProducerConfig, configure
from ..interceptors import Chain, ObservedSink, ProducerInterceptor
from ..network.cluster import Cluster
from ..network.metadata import TopicView
from ..results import CommittedOffset, GroupMetadata, Headers, ProducerRecord, Receipt
from ..serializers import serializer_for
from .accumulator import Accumulator, limits_of, record_bytes
from .bulk import BOUNDLESS, Bulk, Gate, Rows, no_partition
from .line import BufferExhausted as BufferExhausted
from .line import Line, Pending, Raw, line_full, refuse_all, stayed_full
from .partitioner import Sticky, partition_for_key
from .receipts import Many, One, Outcomes, Part, ToldAnyway, all_of, attach, never_sent
from .record_lists import PLAIN, Row, Serializers, chunks, lists_of, rows_of
from .sender import Sender, Sink, Token
from .transaction_rules import State
from .transactions import TransactionAborted, Transactions


class Producer:
    """Sends records. Use as `async with Producer("host:9092") as producer`, or `start` and `close`."""

    def __init__(
        self,
        bootstrap_servers: str | Iterable[str] = "localhost:9092",
        *,
        clock: Clock | None = None,
        random: Random | None = None,
        **options: Any,
    ) -> None:
        self.config = config = configure(ProducerConfig, bootstrap_servers, options)
        self._clock = clock or SystemClock()
        self._cluster = Cluster(config, random)
        self._value_out = serializer_for(config.serializer)
        self._key_out = serializer_for(config.key_serializer)
        self._accumulator: Accumulator[Token] = Accumulator(limits_of(config))
        self._sticky = Sticky(self._cluster.random)
        self._interceptors: Chain[ProducerInterceptor] = Chain(config.interceptors)
        self._lines: dict[str, Line] = {}
        self._line_bytes = 0
        self._lined_up = 0  # so many records, ever
        self._claims = 0  # lists that wait for room
        self._tasks = Tasks("producer")
        self._sender: Sender | None = None
        self._transactions: Transactions | None = None
        self._sink = One if config.transactional_id is None else ToldAnyway
        if config.transactional_id is not None:
            self._transactions = Transactions(self._cluster, config, self._drained)
        self._freed = asyncio.Event()
        self._closed = False
        self._now = self._cluster.now
        self._cluster.creation.is_wanted = lambda topic: topic in {*self._lines, *self._accumulator.topics}
        self._gate = Gate(
            self._accumulator,
            self._sticky,
            config.bulk_batch_size,
            self._cluster.now,
            self._clock.wall_ms,
            lambda partition: None,  # a list brings its own
            self._free,
        )

    async def start(self) -> Self:
        """Connect; raises NetworkException when no server answers."""
        self._now = asyncio.get_running_loop().time  # once: to ask which loop runs takes a call of the system
        await self._cluster.start()
        self._sender = Sender(
            self._cluster, self._accumulator, self.config, self._freed.set, self._sticky, self._transactions
        )
        self._sender.start()
        if self._transactions is not None:
            self._transactions.start(self._sender)
        return self

    async def close(self, *, flush: bool = True) -> None:
        """Send what is queued (unless `flush` is false), then stop and disconnect. May be called twice.

        A transaction that is still open is aborted. Cancelled, it gives up what is queued, and disconnects.
        """
        if self._closed:
            return
        try:
            if self._transactions is not None:
                await self._transactions.stop()
            elif flush and self._sender is not None:
                await self.flush()
        finally:
            self._closed = True
            async with AsyncExitStack() as steps:
                steps.callback(self._interceptors.tell, lambda one: one.close())
                steps.push_async_callback(self._cluster.stop)
                if self._sender is not None:
                    steps.push_async_callback(self._sender.stop)
                steps.callback(self._freed.set)
                steps.callback(refuse_all, self._lines)
                await self._tasks.stop()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close(flush=kind is None or issubclass(kind, Exception))

    def send(
        self,
        topic: str,
        value: Any = None,
        *,
        key: Any = None,
        partition: int | None = None,
        headers: Headers | None = None,
        timestamp_ms: int | None = None,
    ) -> "asyncio.Future[Receipt]":
        """Queue a record; await the result for its receipt.

        Raises at once if a value cannot be serialized or an argument cannot be sent (TypeError, ValueError);
        also MessageTooLarge, BufferExhausted.
        """
        future: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        self._queue(topic, value, key, partition, headers, timestamp_ms, self._sink(future), 0)
        return future

    async def send_many(
        self,
        topic: str,
        values: Iterable[Any],
        *,
        keys: Iterable[Any] | None = None,
        partition: int | None = None,
        headers: Iterable[Headers | None] | None = None,
        timestamps_ms: Iterable[int | None] | None = None,
    ) -> Sequence[Receipt]:
        """Send all `values` as fast as room allows, each with its key, headers and timestamp, if given.

        Receipts in order; each is made when it is asked for. Raises ValueError if there are more or fewer
        keys (…) than values. If some records fail, the first failure is raised; its `receipts` tell of all.
        By far the fastest way: lists of bytes are encoded by a compiled loop, if there is one and there are
        neither interceptors nor a `partitioner`.
        """
        transaction = self._open_transaction()
        encoder, count = self._list_encoder(), 0
        given = None if partition is None else checked_partition(partition)
        serializers = Serializers(self._value_out, self._key_out)
        parts: list[Part] = []
        try:
            for columns in chunks(values, keys, headers, timestamps_ms):
                if encoder is None:
                    await self._queue_each(topic, rows_of(columns, partition), parts, transaction)
                    continue
                rows = lists_of(
                    encoder, columns, serializers, self.config.max_request_size, self._clock.wall_ms, count
                )
                parts.append(await self._enter(encoder, topic, rows, given, transaction))
                count += rows.count
        except BaseException as trouble:
            await attach(topic, parts, trouble)
            raise
        return await all_of(topic, parts)

    async def _queue_each(self, topic: str, rows: Iterable[Row], parts: list[Part], transaction: int) -> None:
        """Record by record."""
        await self._cluster.partitions(topic, self._cluster.deadline(self.config.max_block_ms))
        self._check_list(transaction)
        many = Many()
        parts.append(many)
        try:
            for value, key, headers, timestamp_ms, partition in rows:
                if topic in self._lines or self._is_full(0):
                    deadline = self._cluster.deadline(self.config.max_block_ms)
                    await self._behind(topic, self._lined_up, deadline)
                    self._check_list(transaction)
                at = many.expect()
                try:
                    self._queue(topic, value, key, partition, headers, timestamp_ms, many, at)
                except BaseException:
                    many.take_back()
                    raise
        finally:
            many.close()

    async def send_arrow(
        self,
        topic: str,
        table: Any,
        *,
        value: str = "value",
        key: str | None = None,
        headers: str | None = None,
        timestamp: str | None = None,
        partition: str | int | None = None,
    ) -> Sequence[Receipt]:
        """Send all rows of a pyarrow Table, RecordBatch or RecordBatchReader; the rest as `send_many`.

        The columns value, key, headers, timestamp and partition are sent, those of them that there are;
        others are named by the arguments, or left out. A number as `partition` is for all rows. Text is sent
        as UTF-8, null as a tombstone or as no key. Raises TypeError or ValueError if a column is missing, is
        of a type that cannot be sent, or would need a serializer.
        """
        require("pyarrow", "arrow", "send_arrow")
        from . import record_columns as arrow  # here: others do without Arrow

        transaction = self._open_transaction()
        if self._value_out not in PLAIN or self._key_out not in PLAIN:
            raise ValueError("send_arrow sends bytes and text: it needs the serializers 'bytes' or 'str'")
        by_name = isinstance(partition, str) or partition is None
        names = arrow.Names(value, key, headers, timestamp, partition if isinstance(partition, str) else None)
        given = None if by_name else checked_partition(partition)  # type: ignore[arg-type]
        encoder, now_ms = self._list_encoder(), self._clock.wall_ms()
        found = arrow.pieces(table, names, given is not None)
        parts: list[Part] = []
        try:
            if encoder is None:
                for columns, first in found:
                    each = arrow.rows(columns, given, now_ms, first)
                    await self._queue_each(topic, each, parts, transaction)
            else:
                size = self.config.max_request_size
                for rows in arrow.checked(encoder, table, found, size, now_ms):
                    if rows.count:
                        parts.append(await self._enter(encoder, topic, rows, given, transaction))
        except BaseException as trouble:
            await attach(topic, parts, trouble)
            raise
        return await all_of(topic, parts)

    def _list_encoder(self) -> Encoder | None:
        """The encoder for whole lists; None if each record must be looked at."""
        if self._interceptors or self.config.partitioner is not None:
            return None
        return kernel.encoder()

    async def _enter(
        self, encoder: Encoder, topic: str, rows: Rows, given: int | None, transaction: int
    ) -> Outcomes:
        """Let a list into the accumulator, in order, as its partitions and room allow."""
        cluster, block_ms = self._cluster, self.config.max_block_ms
        known = await cluster.partitions(topic, cluster.deadline(block_ms))
        highest = rows.highest if given is None else given
        if highest >= 0 and highest not in known:  # it may be a new one
            await cluster.has(TopicPartition(topic, highest), cluster.deadline(block_ms))
            known = await cluster.partitions(topic, cluster.deadline(block_ms))
            if highest not in known:
                raise no_partition(topic, highest, len(known))
        gate = self._gate._replace(want=lambda name: self._check_list(transaction, name))
        bulk = Bulk(encoder, gate, topic, rows, given, cluster.view.topics[topic])
        behind = self._lined_up  # not behind what comes later, else a list would never have its turn
        try:
            while not bulk.is_done:
                view = cluster.view.topics.get(topic)
                if self._waits(topic, behind):
                    await self._behind(topic, behind, cluster.deadline(block_ms))
                elif view is None or not view.partitions:
                    await cluster.partitions(topic, cluster.deadline(block_ms))
                elif lacking := bulk.turn(view):
                    self._wake()
                    await self._claim(lacking, cluster.deadline(block_ms))
                else:
                    self._wake()
                    await asyncio.sleep(0)  # the sender's turn
        except (ApiError, BufferExhausted, TransactionAborted, RuntimeError) as trouble:
            bulk.give_up(trouble)
        if bulk.trouble is not None and self._transactions is not None:
            self._transactions.record_failed(bulk.trouble, transaction)
        return bulk.outcomes

    def _open_transaction(self) -> int:
        """Raise what stands against sending now; the number of the transaction that is open, 0 if there are
        none."""
        self._check_running()
        if self._transactions is None:
            return 0
        self._transactions.check_open()
        return self._transactions.rules.begun

    def _check_list(self, transaction: int, partition: TopicPartition | None = None) -> None:
        """Raise what stands against sending the rest of a list: one that has waited may have outlived its
        transaction. The transaction is told of the partition."""
        if self._open_transaction() != transaction:
            raise TransactionAborted("its transaction ended before it was sent, and another one has begun")
        if self._transactions is not None and partition is not None:
            self._transactions.want(partition)

    async def room(self, topic: str | None = None) -> None:
        """Wait until buffer memory is not full, and nothing of `topic` waits in line for it.

        Raises BufferExhausted after `max_block_ms`.
        """
        await self._room(0, self._cluster.deadline(self.config.max_block_ms), topic)

    async def flush(self) -> None:
        """Send without lingering, and wait until every record queued so far is acknowledged or given up."""
        behind = self._lined_up  # not behind what comes later, else it may never end
        while any(self._waits(topic, behind) for topic in self._lines):
            await self._next_freed()
        youngest = self._accumulator.close_all()
        self._wake()
        while (oldest := self._accumulator.oldest()) is not None and oldest <= youngest:
            await self._next_freed()

    # -- transactions

    async def init_transactions(self) -> None:
        """Get ready for transactions; needs a `transactional_id`. To be called once, before the first one.

        Another producer with the same id is fenced: its transaction is aborted, and its calls raise
        ProducerFenced from now on. Returns when all earlier transactions of this id are completed.
        """
        await self._transactional().init()

    def begin(self) -> None:
        """Begin a transaction: what is sent from now on becomes visible at once, or never."""
        self._transactional().begin()

    async def commit(self) -> None:
        """Send all that is queued, then commit the transaction.

        Raises the error with which a record failed, or the coordinator refused: then `abort` and begin again;
        if that raises too, as it does with ProducerFenced, this producer is at its end. RequestTimedOut after
        `max_block_ms`: the outcome is not known yet; call `commit` again to wait for it.
        """
        await self._transactional().commit()

    async def abort(self) -> None:
        """Abort the transaction. Records and offsets that were not sent yet fail with TransactionAborted."""
        await self._transactional().abort()

    async def send_offsets(
        self, offsets: Mapping[TopicPartition, int | CommittedOffset], group: GroupMetadata | str
    ) -> None:
        """Let the group have read so far once the transaction is committed, and only then.

        `group` is a consumer's `group_metadata()`, so that the coordinator refuses offsets of a member that
        its group has expelled; or the group's name alone, for a consumer that is no member. The consumer must
        not commit by itself: `enable_auto_commit=False`. RequestTimedOut after `max_block_ms`: call it again
        to wait on, or `abort`; what is not taken within `delivery_timeout_ms` fails the transaction.
        """
        await self._transactional().send_offsets(offsets, group)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Self]:
        """`async with producer.transaction():` commits at the end of the block, and aborts if it raises.

        Initializes the producer at first use. If the commit fails, the transaction is aborted and the error
        raised; unless the outcome is not known in time (RequestTimedOut): then call `commit` again. An error
        that ended the transaction in the middle is raised instead of TransactionAborted.
        """
        transactions = self._transactional()
        if transactions.rules.state is State.UNINITIALIZED:
            await transactions.init()
        transactions.begin()
        try:
            yield self
        except BaseException as failure:
            reason = transactions.rules.error  # why records were not sent tells more than that they were not
            await transactions.abort_after_failure()
            if isinstance(failure, TransactionAborted) and reason is not None:
                raise reason from failure
            raise
        try:
            await transactions.commit()
        except Exception:  # also what a partitioner has raised
            if not transactions.is_undecided:
                await transactions.abort_after_failure()
            raise

    def _transactional(self) -> Transactions:
        if self._transactions is None:
            raise RuntimeError("this producer has no transactions: give transactional_id=...")
        self._check_running()
        return self._transactions

    async def _drained(self, committed: bool) -> None:
        """Wait until no record waits, no batch is on its way; give up what is in line, but for a commit."""
        for line in self._lines.values() if not committed else ():
            line.give_up()
        await self.flush()
        while not self._accumulator.is_empty:
            await self._next_freed()

    def _check_running(self) -> None:
        if self._sender is None or self._closed:
            raise RuntimeError("the producer is not running: start it with `async with Producer(...)`")

    async def partitions_for(self, topic: str) -> list[int]:
        """The partitions of a topic."""
        return await self._cluster.partitions(topic, self._cluster.deadline(self.config.max_block_ms))

    # -- on the way in

    def _queue(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int | None,
        headers: Headers | None,
        timestamp_ms: int | None,
        sink: One | Many,
        index: int,
    ) -> None:
        self._check_running()
        if not self._interceptors:
            return self._take(topic, value, key, partition, headers, timestamp_ms, sink, index)
        given = ProducerRecord(topic, value, key, partition, headers, timestamp_ms)
        record = self._interceptors.pass_on(lambda one, what: one.on_send(what), given)
        observed = ObservedSink(self._interceptors, sink, record)
        try:
            return self._take(*record, observed, index)
        except BaseException as trouble:
            observed.not_sent(trouble)
            raise

    def _take(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int | None,
        headers: Headers | None,
        timestamp_ms: int | None,
        sink: Sink,
        index: int,
    ) -> None:
        if self._transactions is not None:
            self._transactions.check_open()
        raw_key, raw_value = self._key_out(key), self._value_out(value)
        checked = checked_headers(headers) if headers else ()
        size = record_bytes(raw_key, raw_value, checked)
        if size > self.config.max_request_size:
            raise MessageTooLarge(
                f"the record has {size} bytes, more than max_request_size = {self.config.max_request_size}"
            )
        timestamp = self._clock.wall_ms() if timestamp_ms is None else checked_timestamp(timestamp_ms)
        record, token = (timestamp, raw_key, raw_value, checked), (sink, index, timestamp)
        partition = None if partition is None else checked_partition(partition)
        known = self._cluster.view.topics.get(topic)
        if (
            topic in self._lines
            or known is None
            or not known.partitions
            or (partition is not None and partition not in known.partitions)  # it may be a new one
            or self._claims
            or self._is_full(size)
        ):
            deadline = self._now() + self.config.max_block_ms / 1000
            number = self._lined_up + 1
            self._line_up(checked_topic(topic), Pending(partition, record, token, size, deadline, number))
        else:
            self._place(topic, known, partition, record, token, size)

    def _is_full(self, size: int) -> bool:
        used = self._accumulator.used
        return used > 0 and used + size > self.config.buffer_memory

    def _free(self) -> int:
        used = self._accumulator.used
        return max(self.config.buffer_memory - used, 0) if used else BOUNDLESS

    def _line_up(self, topic: str, pending: Pending) -> None:
        if self._line_bytes and self._line_bytes + pending.size > self.config.buffer_memory:
            raise line_full(self._line_bytes)
        self._line_bytes += pending.size
        self._lined_up = pending.number
        line = self._lines.get(topic)
        if line is not None:
            line.append(pending)
            return
        self._lines[topic] = line = Line((pending,))
        line.admission = self._tasks.spawn(self._admit(topic, line), f"admit.{topic}")

    async def _admit(self, topic: str, line: Line) -> None:
        """Move a topic's line into the accumulator, in order, as its partitions and room allow. If lists wait
        for room, too, they have their turn after as much as they take in theirs."""
        moved = 0
        try:
            while line:
                if self._claims and moved >= self._gate.batch_size:
                    moved = 0
                    await asyncio.sleep(0)
                pending = line[0]
                try:
                    known = await self._cluster.partitions(topic, pending.deadline)
                    if pending.partition is not None and pending.partition not in known:
                        await self._cluster.has(TopicPartition(topic, pending.partition), pending.deadline)
                    await self._room(pending.size, pending.deadline)
                    self._place(topic, self._cluster.view.topics[topic], *pending[:4])
                except Exception as trouble:  # also whatever a partitioner of the caller's raises
                    if self._transactions is not None:
                        self._transactions.record_failed(trouble)
                    pending.token[0].refused(pending.token[1], never_sent(trouble))
                line.popleft()
                self._line_bytes -= pending.size
                moved += pending.size
                self._freed.set()  # a list may stand behind this record
        finally:
            self._line_bytes -= line.refuse()
            self._lines.pop(topic, None)
            self._freed.set()

    def _place(
        self,
        topic: str,
        known: TopicView,
        partition: int | None,
        record: Raw,
        token: tuple[Sink, int, int],
        size: int,
    ) -> None:
        """Choose the partition and append, without an await: the order of calls is the order in the log."""
        key, count = record[1], len(known.partitions)
        sticky = False
        if partition is None:
            if self.config.partitioner is not None:
                partition = whole_number(self.config.partitioner(key, count))
            elif key is not None:
                partition = partition_for_key(key, count)
            else:
                sticky = True
                partition = self._sticky.current(topic, count)
                if partition is None:
                    partition = self._sticky.choose(topic, known.led, count)
        if partition not in known.partitions:
            raise no_partition(topic, partition, count)
        if isinstance(token[0], ObservedSink):
            token[0].partition = partition
        name = TopicPartition(topic, partition)
        if self._transactions is not None:
            self._transactions.want(name)
        closed = self._accumulator.append(name, record, token, self._now(), size)
        if closed and sticky:
            self._sticky.move_on(topic, known.led, partition)
        self._wake()

    async def _room(self, size: int, deadline: float, topic: str | None = None) -> None:
        try:
            async with asyncio.timeout_at(deadline):
                while self._is_full(size) or topic in self._lines:
                    await self._next_freed()
        except TimeoutError:
            raise stayed_full(self.config.max_block_ms, None if self._is_full(size) else topic) from None

    async def _claim(self, size: int, deadline: float) -> None:
        """Wait for room for the next record of a list; single records that come meanwhile stand in line."""
        self._claims += 1
        try:
            await self._room(size, deadline)
        finally:
            self._claims -= 1

    async def _behind(self, topic: str, number: int, deadline: float) -> None:
        """Wait for those records of a topic's line that were there before a list."""
        try:
            async with asyncio.timeout_at(deadline):
                while self._waits(topic, number):
                    await self._next_freed()
        except TimeoutError:
            raise stayed_full(self.config.max_block_ms, None if self._is_full(0) else topic) from None

    def _waits(self, topic: str, number: int) -> bool:
        """Whether a record of the topic is still in line, from this number or before."""
        line = self._lines.get(topic)
        return bool(line and line[0].number <= number)

    async def _next_freed(self) -> None:
        self._freed.clear()
        await self._freed.wait()

    def _wake(self) -> None:
        if self._sender is not None:
            self._sender.wake()
