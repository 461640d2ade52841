"""How each feature is tried, once for all clients: written over the vocabulary of driving.py."""

import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from typing import Any

from driving import Read, Row, until

from strandline.base.types import TopicPartition
from strandline.client.sync import Admin
from tests.conformance.matrix.flow import Feeding, Reading, Writing
from tests.conformance.matrix.remote import Refused
from tests.conformance.matrix.scene import OFFSETS, TRANSACTIONS, Scene

THREE = (0, 1, 2)
SOME = 30  # so many records show that it flows


def values_of(reads: Iterable[Read]) -> list[bytes]:
    return [one.row.value for one in reads if one.row.value is not None]


def in_log(scene: Scene, topic: str, partitions: Iterable[int] = (0,)) -> list[Read]:
    """Everything that is in the topic, as the bundled client reads it."""
    count = sum(scene.ours.ends(topic, one)[1] for one in partitions)
    found: list[Read] = scene.ours.read(topic, partitions, count)
    return found


def _produced(scene: Scene, idempotent: bool) -> tuple[Writing, list[bytes]]:
    topic = scene.topic(1)
    with scene.driver.sender(topic, idempotent=idempotent) as sender, Writing(sender) as writing:
        tells = scene.driver.name != "kcat"  # it tells what was acknowledged when it ends
        enough = (lambda: len(writing.acked) > SOME) if tells else (lambda: writing.sent > SOME)
        writing.wait(enough, "records are acknowledged")
        scene.strike(topic, OFFSETS, "")
        if tells:
            writing.more(SOME, "records are acknowledged again")
        else:
            sent = writing.sent
            writing.wait(lambda: writing.sent > sent + SOME, "records are sent")
        writing.finish()
        if tells:
            scene.silent([writing.acked.values()])
    found = values_of(in_log(scene, topic))
    lost = set(writing.acked) - set(found)
    assert not lost, f"acknowledged and lost: {sorted(lost)[:5]}, {len(lost)} in all"
    return writing, found


def produce(scene: Scene) -> None:
    _produced(scene, idempotent=False)


def produce_idempotent(scene: Scene) -> None:
    writing, found = _produced(scene, idempotent=True)
    twice = [value for value, count in Counter(found).items() if count > 1]
    assert not twice, f"written twice: {twice[:5]}, {len(twice)} in all"
    assert found == sorted(found, key=int), "in another order than they were sent"
    assert len(writing.acked) == writing.sent, f"{len(writing.acked)} of {writing.sent} were acknowledged"


ROWS = [
    Row(b"alice", b"plain"),
    Row(None, b"no key"),
    Row(b"bob", b"with headers", (("trace", b"1"), ("trace", b"2"), ("kind", b"order"))),
    Row(b"carol", b"x" * 5000),
    *(Row(f"key-{i}".encode(), f"value {i} {'z' * (i % 50)}".encode()) for i in range(100)),
]


def _alike(found: Iterable[Read], sent: Iterable[Row]) -> None:
    read = sorted((one.row for one in found), key=repr)
    assert read == sorted((row._replace(timestamp_ms=None) for row in sent), key=repr)


def codec(name: str) -> Callable[[Scene], None]:
    def compressed(scene: Scene) -> None:
        topic = scene.topic(3)
        scene.driver.produce(topic, ROWS, name, idempotent=False)
        _alike(scene.ours.read(topic, THREE, len(ROWS)), ROWS)
        scene.ours.produce(topic, ROWS, name, idempotent=True)
        _alike(scene.driver.read(topic, THREE, 2 * len(ROWS)), 2 * ROWS)

    return compressed


def headers_and_timestamps(scene: Scene) -> None:
    """kcat stamps records itself: that they are near to now is what is asked of it."""
    now, topic = int(time.time() * 1000), scene.topic(3)
    at = [now - 86_400_000 + number for number in range(4)]
    rows = [*ROWS[:3], Row(b"alice", None)]
    stamped = [row._replace(timestamp_ms=when) for row, when in zip(rows, at, strict=True)]
    scene.driver.produce(topic, stamped, "none", idempotent=False)
    found = scene.ours.read(topic, THREE, 4)
    _alike(found, rows)
    told = sorted(one.timestamp_ms for one in found)
    if scene.driver.name == "kcat":
        assert all(now <= when <= time.time() * 1000 + 1 for when in told), told
    else:
        assert told == at, told
    scene.ours.produce(topic, stamped, "none", idempotent=True)
    again = scene.driver.read(topic, THREE, 8)
    _alike(again, 2 * rows)
    assert set(at) <= {one.timestamp_ms for one in again}


def consume_assigned(scene: Scene) -> None:
    topic = scene.topic(3)
    with scene.ours.sender(topic) as sender, Feeding(sender, 3) as writing:
        with scene.driver.reader(topic, THREE) as reader, Reading(reader) as reading:
            reading.more(THREE, SOME, "every partition is read")
            scene.strike(topic, OFFSETS, "")
            reading.more(THREE, SOME, "every partition is read again")
            writing.finish()
            _all_read(reading, writing)
            reading.end()
        scene.silent(reading.lines(THREE))
    for partition in THREE:
        offsets = [one.offset for _, _, one in reading.reads if one.partition == partition]
        assert offsets == list(range(len(offsets))), f"partition {partition}: not every record once, in order"


def _all_read(reading: Reading, writing: Writing) -> None:
    try:
        reading.wait(lambda: reading.values >= set(writing.acked), "everything is read")
    except AssertionError as error:
        missing = sorted(set(writing.acked) - reading.values, key=int)
        where = {int(value) % len(THREE) for value in missing}
        raise AssertionError(
            f"{error}: {len(missing)} of {len(writing.acked)} records of partitions {where} miss, from "
            f"{missing[:3]} to {missing[-3:]}"
        ) from None


def group(kind: str) -> Callable[[Scene], None]:
    def shared(scene: Scene) -> None:
        topic, group = scene.topic(3), f"group-{scene.name}"
        with ExitStack() as first, ExitStack() as second:
            writing = first.enter_context(Feeding(first.enter_context(scene.ours.sender(topic)), len(THREE)))
            members = [one.enter_context(scene.driver.member(topic, group, kind)) for one in (first, second)]
            reading = first.enter_context(Reading(*members))
            reading.wait(lambda: _share(*reading.assigned), "two members share three partitions")
            reading.more(THREE, SOME, "every partition is read")
            scene.strike(topic, OFFSETS, group)
            reading.more(THREE, SOME, "every partition is read again")
            scene.silent(reading.lines(THREE))
            reading.wait(lambda: _share(*reading.assigned), "two members share three partitions, still")
            if scene.driver.name == "kcat":  # told to end, it may commit a record that it has not printed
                writing.pause()
                _all_read(reading, writing)
            reading.leave(1, second.close)
            writing.flows.set()
            reading.wait(lambda: reading.assigned[0] == set(THREE), "who stays has all partitions")
            reading.more(THREE, SOME, "every partition is read by who stays")
            writing.finish()
            _all_read(reading, writing)
            reading.end()

    return shared


def _share(mine: set[int], its: set[int]) -> bool:
    return bool(mine and its) and mine | its == set(THREE) and not mine & its


def _eventually(call: Callable[[], Any], what: str) -> Any:
    """What it returns once it raises nothing; for calls that clients do not repeat themselves."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return call()
        except Exception as error:
            assert time.monotonic() < deadline, f"after 60 s still not: {what}: {error!r}"
            time.sleep(0.05)


def _drained(poll: Callable[[], Any], count: int) -> list[bytes]:
    found: list[bytes] = []
    until(lambda: found.extend(values_of(poll())) or len(found) >= count, f"{count} records are read")
    return sorted(found)


def _commit(member: Any) -> None:
    try:
        member.commit()
    except Exception:
        member.poll()  # it may have to join again, and to read again
        raise


def _commit_again(scene: Scene, member: Any, topic: str, group: str) -> bool:
    """Whether the group has everything; if not, what comes again is committed, too."""
    places = [TopicPartition(topic, one) for one in THREE]
    with Admin(scene.cluster.bootstrap) as admin:
        if len(admin.list_group_offsets(group, places)) == len(places):
            return True
    member.poll()
    with suppress(Refused):  # it is tried again
        member.commit()
    return False


def commit_and_resume(scene: Scene) -> None:
    topic, group = scene.topic(3), f"group-{scene.name}"
    first, second = (
        [Row(b"%d" % n, f"{name} {n}".encode()) for n in range(100)] for name in ("first", "second")
    )
    scene.ours.produce(topic, first, "none", idempotent=True)
    with scene.driver.member(topic, group) as member:
        assert _drained(member.poll, len(first)) == sorted(row.value for row in first if row.value)
        scene.strike(topic, OFFSETS, group)
        if scene.driver.name != "kcat":  # it commits when it ends
            _eventually(lambda: _commit(member), "committed")
            # A new session of franz-go has forgotten what was read; sarama may tell later of what failed.
            if scene.driver.name in ("franz-go", "sarama"):
                until(lambda: _commit_again(scene, member, topic, group), "everything is committed")
            scene.done()
    ends = [scene.ours.ends(topic, one)[1] for one in THREE]
    assert [scene.ours.committed(topic, group, one) for one in THREE] == ends
    scene.ours.produce(topic, second, "none", idempotent=True)
    with scene.driver.member(topic, group) as late:
        found = _drained(lambda: _eventually(late.poll, "polled"), len(second))
        assert found == sorted(row.value for row in second if row.value)


class Attempts:
    """Transactions that were tried, and what the client said of each."""

    def __init__(self, topic: str, producer: Any) -> None:
        self.topic, self.producer = topic, producer
        self.committed: list[bytes] = []
        self.aborted: list[bytes] = []
        self.failures: list[Exception] = []

    def one(self, name: str, commits: bool = True, middle: Callable[[], None] = lambda: None) -> bool:
        """Whether it went as it was meant; what fails is aborted."""
        values = [f"{name} {n}".encode() for n in range(20)]
        try:
            self.producer.begin()
            for value in values[:10]:
                self.producer.send(self.topic, value)
            middle()
            for value in values[10:]:
                self.producer.send(self.topic, value)
            if commits:
                self.producer.commit()
                self.committed += values
                return True
        except AssertionError:
            raise
        except Exception as error:
            self.failures.append(error)
            self.aborted += values
            _eventually(self.producer.abort, f"aborted after {error!r}")
            return False
        self.producer.abort()
        self.aborted += values
        return True

    def until_committed(self, name: str, middle: Callable[[], None]) -> None:
        """Try it, and try again under another name."""
        attempt, deadline = 0, time.monotonic() + 90
        while not self.one(f"{name}, attempt {attempt}", True, middle if attempt == 0 else lambda: None):
            attempt += 1
            assert time.monotonic() < deadline, (
                f"none is committed: {self.failures[:2]}, {self.failures[-2:]}"
            )


def transactions(scene: Scene) -> None:
    topic = scene.topic(1)
    with scene.ours.transactional(f"first-{scene.name}"):
        pass  # the first one of a cluster makes the topic of the coordinators
    name = scene.apart(topic, TRANSACTIONS, f"transactional-{scene.name}")
    written: list[bytes] = []

    def in_the_log(value: bytes) -> None:
        until(
            lambda: written.extend(values_of(reader.poll())) or value in written, f"{value!r} is in the log"
        )

    with scene.driver.transactional(name) as producer, scene.ours.reader(topic, [0]) as reader:
        tried = Attempts(topic, producer)
        assert tried.one("committed")
        assert tried.one("aborted", commits=False, middle=lambda: in_the_log(b"aborted 9"))
        tried.until_committed("struck", lambda: scene.strike(topic, TRANSACTIONS, name))
        scene.done()
        assert tried.one("after"), "the one that follows is committed"
        in_the_log(tried.committed[-1])
    assert set(tried.committed) <= set(written) and max(Counter(written).values()) == 1
    with scene.ours.reader(topic, [0], "read_committed") as reader:
        assert _drained(reader.poll, len(tried.committed)) == sorted(tried.committed)


def read_committed(scene: Scene) -> None:
    topic, name = scene.topic(1), f"transactional-{scene.name}"
    with scene.ours.transactional(name) as producer:
        tried = Attempts(topic, producer)
        with scene.driver.reader(topic, [0], "read_committed") as reader, Reading(reader) as reading:

            def write(what: str) -> None:
                for number in range(5):
                    tried.one(f"{what} {number}, committed")
                    tried.one(f"{what} {number}, aborted", commits=False)

            write("before")
            reading.wait(lambda: reading.values >= set(tried.committed), "what was committed is read")
            scene.strike(topic, TRANSACTIONS, name)
            write("after")
            reading.wait(lambda: reading.values >= set(tried.committed), "what was committed is read")
            tried.one("last")
            reading.wait(lambda: reading.values >= set(tried.committed), "the last one is read")
            reading.end()
            scene.silent(reading.lines([0]))
    found = values_of(one for _, _, one in reading.reads)
    assert Counter(found) == Counter(tried.committed)


def topics(scene: Scene) -> None:
    name = f"made-{scene.name}"
    scene.driver.create_topic(name, 4)
    until(lambda: scene.driver.topics().get(name) == 4, "the topic is told")
    scene.driver.delete_topic(name)
    until(lambda: name not in scene.driver.topics(), "the topic is gone")


def configs(scene: Scene) -> None:
    topic = scene.topic(1)
    scene.driver.set_config(topic, "retention.ms", "123456")
    until(lambda: scene.driver.config(topic, "retention.ms") == "123456", "the setting is told")


def list_offsets(scene: Scene) -> None:
    topic = scene.topic(1)
    scene.ours.produce(topic, ROWS, "none", idempotent=True)
    scene.ours.delete_records(topic, {0: 10})
    assert scene.driver.ends(topic, 0) == (10, len(ROWS))
    scene.strike(topic, OFFSETS, "")
    assert _eventually(lambda: scene.driver.ends(topic, 0), "offsets are told") == (10, len(ROWS))
    scene.done()


def offsets_for_times(scene: Scene) -> None:
    topic, start = scene.topic(1), int(time.time() * 1000) - 86_400_000
    rows = [Row(None, b"%d" % n, (), start + 1000 * n) for n in range(10)]
    scene.ours.produce(topic, rows, "none", idempotent=True)
    for asked, offset in ((start, 0), (start + 1, 1), (start + 5000, 5), (start + 8999, 9)):
        assert scene.driver.offset_at(topic, 0, asked) == offset


def groups(scene: Scene) -> None:
    topic, group = scene.topic(3), f"group-{scene.name}"
    scene.ours.produce(topic, ROWS, "none", idempotent=True)
    with scene.ours.member(topic, group) as member, Reading(member) as reading:
        reading.wait(lambda: len(reading.reads) >= len(ROWS), "everything is read")
        member.commit()
        scene.strike(topic, OFFSETS, group)

        def state() -> str:
            return _eventually(lambda: scene.driver.group_state(group), "the group is described")

        found = state()
        scene.done()
        until(lambda: state() == "stable", f"the group is stable ({found} at first)")
        assert group in _eventually(scene.driver.groups, "groups are listed")
        for one in THREE:
            told = _eventually(lambda one=one: scene.driver.committed(topic, group, one), "offsets are told")
            assert told == scene.ours.ends(topic, one)[1]


TRIED: dict[str, Callable[[Scene], None]] = {
    "produce, acks=all": produce,
    "produce, idempotent": produce_idempotent,
    **{name: codec(name) for name in ("gzip", "snappy", "lz4", "zstd")},
    "headers, timestamps": headers_and_timestamps,
    "consume, assigned": consume_assigned,
    "group, eager": group("range"),
    "group, cooperative": group("cooperative"),
    "group, KIP-848": group("consumer"),
    "commit and resume": commit_and_resume,
    "transactions": transactions,
    "read committed": read_committed,
    "topics": topics,
    "configs": configs,
    "list offsets": list_offsets,
    "offsets for times": offsets_for_times,
    "groups": groups,
}
