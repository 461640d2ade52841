"""Subscriptions and assignments, as group members exchange them through the coordinator. Pure.

Kafka's ConsumerProtocol. Subscription: v1 owned partitions, v2 generation, v3 rack. Assignment: v0 suffices.
A later version only adds fields at the end, so that an older reader leaves them unread.
A subscription also has room for the assignor's own data. The sticky assignors tell there what a member had:
`sticky` its partitions and their generation, because an eager member owns none while it joins;
`cooperative-sticky` the generation alone, for leaders that know no version 2.
"""

from collections.abc import Iterable
from dataclasses import replace
from struct import Struct, error

from ...base.types import TopicPartition
from ...protocol.primitives import Malformed
from .assignors import COOPERATIVE_STICKY, STICKY, SubscribedMember

SUBSCRIPTION_VERSION = 2
ASSIGNMENT_VERSION = 1
NO_GENERATION = -1
_I16, _I32 = Struct(">h"), Struct(">i")
NO_BYTES = _I32.pack(-1)
VERSIONS_BEFORE = (b"\0\1",)  # as kafka-python 3 writes version 1 of the sticky assignor's data


def encode_subscription(
    topics: Iterable[str], owned: Iterable[TopicPartition], generation: int, user_data: bytes = b""
) -> bytes:
    """The subscription that a member sends when it joins."""
    names = sorted(topics)
    told = _I32.pack(len(user_data)) + user_data if user_data else NO_BYTES
    parts = [_I16.pack(SUBSCRIPTION_VERSION), _I32.pack(len(names)), *map(_string, names), told]
    return b"".join((*parts, _partitions(owned), _I32.pack(generation)))


def decode_subscription(member_id: str, instance_id: str | None, data: bytes) -> SubscribedMember:
    """A member's subscription, in any version."""
    reader = _Reader(data)
    version = reader.i16()
    topics = tuple(reader.string() for _ in range(reader.count()))
    user_data = reader.sized()
    owned = tuple(reader.partitions()) if version >= 1 else ()
    generation = reader.i32() if version >= 2 else NO_GENERATION
    rack_id = reader.nullable_string() if version >= 3 else None
    return SubscribedMember(member_id, topics, instance_id, owned, generation, user_data, rack_id)


def user_data_of(strategy: str, had: Iterable[TopicPartition], generation: int) -> bytes:
    """What a member tells the assignor `strategy`: what it was assigned last, and in which generation."""
    if strategy == COOPERATIVE_STICKY:
        return _I32.pack(generation)
    if strategy == STICKY and generation != NO_GENERATION:
        return _partitions(had) + _I32.pack(generation)
    return b""


def seen_by(strategy: str, member: SubscribedMember) -> SubscribedMember:
    """The member as the assignor `strategy` has to see it. User data that cannot be read tell nothing."""
    if strategy == STICKY:
        had, generation = _previous(member.user_data)
        return replace(member, owned=had, generation=generation)
    if strategy == COOPERATIVE_STICKY and member.generation == NO_GENERATION:
        if len(member.user_data) == _I32.size:
            return replace(member, generation=_I32.unpack(member.user_data)[0])
        return replace(member, generation=_previous(member.user_data)[1])
    return member


def _previous(user_data: bytes) -> tuple[tuple[TopicPartition, ...], int]:
    """Partitions and their generation; the oldest clients leave the generation out, kafka-python 3 puts a
    version before them, which no number of topics looks like.
    """
    has_version = user_data[:2] in VERSIONS_BEFORE and user_data[2:4] == b"\0\0"
    reader = _Reader(user_data[2:] if has_version else user_data)
    try:
        had = tuple(reader.partitions())
        return had, NO_GENERATION if reader.is_at_end else reader.i32()
    except Malformed:
        return (), NO_GENERATION


def topics_of(data: bytes) -> tuple[str, ...]:
    """The topics of a subscription, which every version begins with; raises Malformed."""
    reader = _Reader(data)
    reader.i16()
    return tuple(reader.string() for _ in range(reader.count()))


def encode_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    """The assignment that the group leader gives a member."""
    return b"".join((_I16.pack(ASSIGNMENT_VERSION), _partitions(partitions), NO_BYTES))


def decode_assignment(data: bytes) -> list[TopicPartition]:
    """The partitions assigned to a member; none if there are no bytes at all."""
    if not data:
        return []
    reader = _Reader(data)
    reader.i16()
    return reader.partitions()


def _string(text: str) -> bytes:
    raw = text.encode()
    return _I16.pack(len(raw)) + raw


def _partitions(partitions: Iterable[TopicPartition]) -> bytes:
    topics: dict[str, list[int]] = {}
    for one in sorted(partitions):
        topics.setdefault(one.topic, []).append(one.partition)
    parts = [_I32.pack(len(topics))]
    for topic, indexes in topics.items():
        parts += (_string(topic), _I32.pack(len(indexes)), *map(_I32.pack, indexes))
    return b"".join(parts)


class _Reader:
    """Reads fields one after the other; damage raises Malformed."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def i16(self) -> int:
        return self._number(_I16)

    def i32(self) -> int:
        return self._number(_I32)

    def count(self) -> int:
        count = self.i32()
        if count > len(self._data):
            raise Malformed(f"{count} entries do not fit in {len(self._data)} bytes")
        return max(count, 0)

    def nullable_string(self) -> str | None:
        length = self.i16()
        return None if length < 0 else self._text(length)

    def string(self) -> str:
        return self._text(self.i16())

    def _text(self, length: int) -> str:
        raw = self._take(length)
        try:
            return raw.decode()
        except UnicodeDecodeError as trouble:
            raise Malformed(str(trouble)) from trouble

    @property
    def is_at_end(self) -> bool:
        return self._at == len(self._data)

    def sized(self) -> bytes:
        return self._take(max(self.i32(), 0))

    def partitions(self) -> list[TopicPartition]:
        found = []
        for _ in range(self.count()):
            topic = self.string()
            found += [TopicPartition(topic, self.i32()) for _ in range(self.count())]
        return found

    def _number(self, packing: Struct) -> int:
        try:
            (number,) = packing.unpack_from(self._data, self._at)
        except error as trouble:
            raise Malformed(str(trouble)) from trouble
        self._at += packing.size
        return int(number)

    def _take(self, length: int) -> bytes:
        end = self._at + length
        if length < 0 or end > len(self._data):
            raise Malformed(f"a field of {length} bytes ends beyond the data")
        taken, self._at = self._data[self._at : end], end
        return taken
