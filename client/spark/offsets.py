"""The offset of a stream: what Spark writes into a checkpoint, and how one follows from another. Pure.

The JSON is that of Spark's own Kafka source, `{"t": {"0": 123}}`: the next offset of every partition. What
that source cannot say is in keys that no topic can be called: `"#t 6a1b… 0:5 1:6@12": {}` is the id of topic
t and, for each partition, the leader epoch at its offset, and where its batch begins if not at the offset
before. To Spark's own source such a key is a topic without partitions. Spark compares offsets as text, so a
partition's part changes only when its offset does.
Left to others: asking brokers (stream.py), reading a range (fetch.py).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import ceil, floor
from typing import Any, NamedTuple
from uuid import UUID

from ...base.types import TopicPartition
from ...protocol.primitives import NO_UUID
from .plan import DataLoss, Span

MARK = "#"


class Place(NamedTuple):
    """How far one partition is read."""

    offset: int  # the next one
    epoch: int = -1  # no record before `offset` has a later leader epoch; -1: not known
    begin: int = -1  # of the batch that ends here; -1: at the offset before, 0 if there was none


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """The places of all partitions, and the ids of their topics as far as they are known."""

    places: dict[TopicPartition, Place]
    ids: dict[str, UUID] = field(default_factory=dict)

    def json(self) -> dict[str, Any]:
        """As Spark keeps it."""
        found: dict[str, Any] = {}
        topics: dict[str, dict[str, int]] = {}
        notes: dict[str, list[str]] = {}
        for tp, place in sorted(self.places.items()):
            topics.setdefault(tp.topic, {})[str(tp.partition)] = place.offset
            noted = notes.setdefault(tp.topic, [])
            if place[1:] != (-1, -1):
                noted.append(_note(tp.partition, place))
        for topic in topics:
            if notes[topic] or topic in self.ids:
                found[" ".join((MARK + topic, str(self.ids.get(topic, NO_UUID)), *notes[topic]))] = {}
        return {**found, **topics}

    @classmethod
    def of_json(cls, document: Mapping[str, Any]) -> "StreamOffset":
        """What `json` made, or Spark's own source."""
        notes: dict[TopicPartition, tuple[int, int]] = {}
        ids: dict[str, UUID] = {}
        for key in (key for key in document if key.startswith(MARK)):
            topic, topic_id, *rest = key[len(MARK) :].split(" ")
            if UUID(topic_id) != NO_UUID:
                ids[topic] = UUID(topic_id)
            notes |= {TopicPartition(topic, number): found for number, found in map(_of_note, rest)}
        places: dict[TopicPartition, Place] = {}
        for topic in (key for key in document if not key.startswith(MARK)):
            for number, offset in document[topic].items():
                tp = TopicPartition(topic, int(number))
                places[tp] = Place(int(offset), *notes.get(tp, (-1, -1)))
        return cls(places, ids)


class Found(NamedTuple):
    """A partition as its leader has it now."""

    latest: int
    epoch: int  # no record before `latest` has a later one
    earliest: int = -1  # -1: nobody asked
    epoch_end: int = -1  # where the epoch of the stream's place ends in this log; -1: not known


def _note(number: int, place: Place) -> str:
    return f"{number}:{place.epoch}" + (f"@{place.begin}" if place.begin >= 0 else "")


def _of_note(note: str) -> tuple[int, tuple[int, int]]:
    number, _, rest = note.partition(":")
    epoch, _, begin = rest.partition("@")
    return int(number), (int(epoch), int(begin or -1))


def is_again(start: StreamOffset, ids: Mapping[str, UUID], topic: str) -> bool:
    """Whether a topic is another one of the same name."""
    before, now = start.ids.get(topic, NO_UUID), ids.get(topic, NO_UUID)
    return NO_UUID not in (before, now) and before != now


def cut_at(place: Place, found: Found) -> int | None:
    """Where the log was cut, if it was cut before the place; a high watermark that only lags is no cut."""
    if 0 <= found.epoch_end < place.offset:
        return found.epoch_end
    if found.latest < place.offset and (place.epoch < 0 or found.epoch_end < 0):
        return found.latest
    return None


def is_stale(place: Place, found: Found) -> bool:
    """Whether a leader answered whose epoch was over when the place was reached: it does not know yet."""
    return -1 < found.epoch < place.epoch


def doubts(
    start: StreamOffset, found: Mapping[TopicPartition, Found], ids: Mapping[str, UUID]
) -> frozenset[str]:
    """What looks like loss in a look at the brokers, or like one at a broker that lags."""
    told: set[str] = set()
    for tp, place in start.places.items():
        if is_again(start, ids, tp.topic):
            told.add(f"{tp}: topic {tp.topic} has id {ids[tp.topic]} now")
        elif tp not in found:
            told.add(f"{tp} does not exist")
        elif _is_same(start, ids, tp.topic) and is_stale(place, found[tp]):
            told.add(f"{tp}: the leader is of epoch {found[tp].epoch}, before {place.epoch}")
        elif (cut := cut_at(place, found[tp])) is not None:
            told.add(f"{tp}: records [{cut}, {place.offset}) are gone")
    return frozenset(told)


def without_stale(
    start: StreamOffset, found: Mapping[TopicPartition, Found], ids: Mapping[str, UUID]
) -> dict[TopicPartition, Found]:
    """What was found; a partition of which only a former leader has told has nothing new."""
    places = start.places
    return {
        tp: Found(places[tp].offset, places[tp].epoch, each.earliest, places[tp].offset)
        if tp in places and _is_same(start, ids, tp.topic) and is_stale(places[tp], each)
        else each
        for tp, each in found.items()
    }


def _is_same(start: StreamOffset, ids: Mapping[str, UUID], topic: str) -> bool:
    """Whether a topic is known to be the same one: then its leaders' epochs never go back."""
    return ids.get(topic, NO_UUID) != NO_UUID and ids[topic] == start.ids.get(topic)


def begins(
    start: StreamOffset, found: Mapping[TopicPartition, Found], ids: Mapping[str, UUID], strict: bool
) -> dict[TopicPartition, Place]:
    """From where each partition goes on; `begin` is set where that is not its place in `start`.

    Raises DataLoss if `strict` and records are gone that were not read, or others stand where it has read.
    """
    places: dict[TopicPartition, Place] = {}
    for tp, now in sorted(found.items()):
        before = start.places.get(tp)
        if before is None:
            if now.earliest > 0:
                _lose(strict, f"{tp} is new, and its records [0, {now.earliest}) are gone already")
            places[tp] = Place(max(now.earliest, 0), now.epoch, now.earliest if now.earliest > 0 else -1)
        elif is_again(start, ids, tp.topic):
            _lose(strict, f"{tp}: topic {tp.topic} was deleted and created again; {before.offset} was next")
            places[tp] = Place(max(now.earliest, 0), now.epoch, max(now.earliest, 0))
        elif (cut := cut_at(before, now)) is not None:
            _lose(strict, f"{tp}: records [{cut}, {before.offset}) are gone, the log was truncated at {cut}")
            places[tp] = Place(cut, now.epoch, cut)
        else:
            places[tp] = before
    for tp in sorted(start.places.keys() - found.keys()):
        _lose(strict, f"{tp} does not exist any more; {start.places[tp].offset} was next")
        if not is_again(start, ids, tp.topic):
            places[tp] = start.places[tp]
    return places


def begun_at(start: StreamOffset, end: StreamOffset) -> StreamOffset:
    """The same end, and in it where its batch begins: `start` will not be known when it is run again."""
    places = {
        tp: place
        if place.begin >= 0 or tp not in start.places
        else place._replace(begin=start.places[tp].offset)
        for tp, place in end.places.items()
    }
    return replace(end, places=places)


def _lose(strict: bool, what: str) -> None:
    if strict:
        raise DataLoss(f"{what}. To go on with what is there now, set failOnDataLoss=false")


def advanced(
    start: StreamOffset,
    places: Mapping[TopicPartition, Place],
    latest: Mapping[TopicPartition, Found],
    ids: Mapping[str, UUID],
    offsets_max: int | None,
) -> StreamOffset:
    """The end of a batch from `places` on: up to the latest offsets, or each partition's share of them."""
    sizes = {tp: latest[tp].latest - place.offset for tp, place in places.items() if tp in latest}
    shares = sizes if offsets_max is None else shares_of(sizes, offsets_max)
    ends: dict[TopicPartition, Place] = {}
    for tp, place in places.items():
        if shares.get(tp, 0) > 0:
            ends[tp] = Place(place.offset + shares[tp], latest[tp].epoch, place.begin)
            if start.places.get(tp) == place:  # what stands there tells of the batch before
                ends[tp] = ends[tp]._replace(begin=-1)
        else:
            ends[tp] = place
    known = {**start.ids, **{topic: topic_id for topic, topic_id in ids.items() if topic_id != NO_UUID}}
    topics = {tp.topic for tp in ends}
    return StreamOffset(ends, {topic: known[topic] for topic in known if topic in topics})


def shares_of(sizes: Mapping[TopicPartition, int], offsets_max: int) -> dict[TopicPartition, int]:
    """Each partition's share of `offsets_max`, by size, as in Spark's own source: nobody starves."""
    total = sum(size for size in sizes.values() if size > 0)
    shares: dict[TopicPartition, int] = {}
    for tp, size in sizes.items():
        if size > 0:
            share = offsets_max * (size / total)
            shares[tp] = min(size, ceil(share) if share < 1 else floor(share))
    return shares


def waiting(places: Mapping[TopicPartition, Place], latest: Mapping[TopicPartition, Found]) -> int:
    """How many offsets are there to be read."""
    return sum(max(0, latest[tp].latest - place.offset) for tp, place in places.items() if tp in latest)


def spans(start: StreamOffset, end: StreamOffset, strict: bool) -> list[Span]:
    """The ranges of one batch, by these two alone: a batch that is run again reads the same.

    A partition is read if its place has changed. An end before its start reads nothing: that is a batch 0
    whose start was found anew after a crash.
    """
    found: list[Span] = []
    for tp, place in sorted(end.places.items()):
        before = start.places.get(tp)
        again = is_again(start, end.ids, tp.topic)
        if place == before and not again:
            continue
        begin = place.begin
        if begin < 0:
            if again:
                _lose(strict, f"{tp}: topic {tp.topic} was deleted and created again")
            begin = 0 if before is None or again else before.offset
        if begin < place.offset:
            found.append(Span(tp, begin, place.offset, place.epoch, end.ids.get(tp.topic, NO_UUID)))
    return found


def by_topic(offsets: Iterable[tuple[TopicPartition, int]]) -> dict[str, dict[str, int]]:
    """Offsets as Spark's own source writes them."""
    topics: dict[str, dict[str, int]] = {}
    for tp, offset in sorted(offsets):
        topics.setdefault(tp.topic, {})[str(tp.partition)] = offset
    return topics
