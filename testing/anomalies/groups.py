"""What consumer groups commit, and what they are told of it: searches of the checker.

Offsets that a group commits outside of transactions. Members commit what they have been handed, and nobody
seeks back, so a group goes forward only. Left to others: offsets that are committed in transactions; those
show in what was copied (checker.py).
"""

from collections.abc import Iterator
from typing import TypeAlias

from ...base.types import TopicPartition
from ..history import Evidence
from .operations import Action, Operation, Type
from .story import Story, place

Mark: TypeAlias = tuple[str, TopicPartition]  # of a group in a partition


def offsets_back(story: Story) -> Iterator[Evidence]:
    """A group was told less than what it had committed, or been told, before it asked."""
    known: dict[Mark, int] = {}
    when_asked: dict[str, dict[Mark, int]] = {}  # by process
    for operation in story.offsets:
        if operation.type is Type.INVOKE and operation.action is Action.TOLD:
            when_asked[operation.process] = dict(known)
        if operation.type is not Type.OK:
            continue
        before = when_asked.get(operation.process, {})
        for mark, offset in _marks(operation):
            if operation.action is Action.TOLD and offset < before.get(mark, -1):
                yield Evidence(
                    f"{operation.process} was told that {mark[0]} had committed {offset} in {mark[1]}: "
                    f"{before[mark]} before it asked",
                    _read_before(story, mark[1], before[mark]),
                )
            known[mark] = max(known.get(mark, -1), offset)


def offsets_of_nobody(story: Story) -> Iterator[Evidence]:
    """A group was told more than anybody had tried to commit."""
    tried: dict[Mark, int] = {}
    for operation in story.offsets:
        for mark, offset in _marks(operation):
            if operation.action is Action.OFFSETS:
                tried[mark] = max(tried.get(mark, -1), offset)
            elif operation.type is Type.OK and offset > tried.get(mark, -1):
                yield Evidence(
                    f"{operation.process} was told that {mark[0]} had committed {offset} in {mark[1]}; "
                    f"nobody had tried more than {tried.get(mark, 'nothing')}",
                    _read_before(story, mark[1], offset),
                )


def committed_unread(story: Story) -> Iterator[Evidence]:
    """A group has committed that it read a record that none of its members was handed."""
    reached: dict[Mark, int] = {}
    members: dict[str, str] = {}
    for operation in story.offsets:
        members[operation.process] = operation.producer
        for mark, offset in _marks(operation) if operation.type is Type.OK else ():
            reached[mark] = max(reached.get(mark, -1), offset)
    handed = {
        (members[poll.by], found.partition, found.value)
        for poll in story.history.polls
        if poll.by in members
        for found in poll.records
    }
    for (group, partition), offset in reached.items():
        for found in story.history.final.get(partition, ()):
            if found.offset < offset and (group, partition, found.value) not in handed:
                yield Evidence(
                    f"{group} has committed {offset} in {partition}, and was never handed {found.value} at "
                    f"{partition}@{found.offset}",
                    (found.value,),
                )


def _marks(operation: Operation) -> Iterator[tuple[Mark, int]]:
    return (((operation.producer, place(one)), one.offset) for one in operation.records)


def _read_before(story: Story, partition: TopicPartition, offset: int) -> tuple[int, ...]:
    """The value that stands just before an offset, if anybody has read it."""
    read = (found for poll in story.history.polls for found in poll.records)
    return next(((f.value,) for f in read if f.partition == partition and f.offset == offset - 1), ())
