"""Rebuilds groups and offsets from the records of an offsets partition: the newest value of each key counts.

What a transaction committed counts from its marker on, if that says so. It is pending if the log ends before.
Takes the log in slices, from start to end, so that the caller can yield to the event loop in between.
Left to others: reading the log and serving what was found (shards.py), the formats (offset_records.py).
"""

from collections.abc import Iterator, Mapping
from dataclasses import field

import structlog

from ...base.types import TopicPartition
from ...base.values import dataclass
from ...protocol.batches import BatchHeader, headers
from ...protocol.errors import ApiError
from ...protocol.markers import EndMarker, read_marker
from ...protocol.primitives import Buffer, Malformed
from ...protocol.records import Record, iterate
from .consumer.records import FactKey, read_fact
from .consumer.state import Facts
from .group import Group
from .members import Member
from .offset_records import (
    NO_TIMESTAMP,
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
    offset_key,
    offset_value,
    read_group,
    read_key,
    read_offset,
)
from .offsets import CommittedOffsets, GroupOffset
from .state import Effects

logger = structlog.get_logger(__name__)

RECORDS_AT_ONCE = 500  # about ten milliseconds


@dataclass(slots=True)
class LoadedOffsets:
    """Groups and offsets, as far as the log has been read."""

    groups: dict[str, GroupMetadataValue] = field(default_factory=dict)
    offsets: dict[str, CommittedOffsets] = field(default_factory=dict)
    writers: dict[int, dict[str, None]] = field(default_factory=dict)
    """Producers with an open transaction, and the groups for which it has offsets."""
    facts: dict[str, Facts] = field(default_factory=dict)  # of groups by the new protocol
    damaged: int = 0  # records or batches that could not be decoded and were skipped
    after: int = -1  # the offset after the last batch taken in

    def feed(self, batches: Buffer) -> Iterator[None]:
        """Take in complete batches. Yields where other tasks may run: after every RECORDS_AT_ONCE records,
        whether in one batch or in many, and at the end.
        """
        taken = 0
        for pos, header in headers(batches):
            self.after = header.next_offset
            try:
                if header.is_control:
                    self._take_marker(header, read_marker(batches, pos, header))
                    continue
                producer_id = header.producer_id if header.is_transactional else None
                for record in iterate(batches[pos : pos + header.size]):
                    self._take(record, producer_id)
                    taken += 1
                    if taken % RECORDS_AT_ONCE == 0:
                        yield
            except (Malformed, ApiError) as error:
                self.damaged += 1
                logger.error("offsets_batch_corrupt", base_offset=header.base_offset, reason=str(error))
        yield

    def _take_marker(self, header: BatchHeader, marker: EndMarker | None) -> None:
        if marker is None:
            return
        for name in self.writers.pop(header.producer_id, ()):
            if (offsets := self.offsets.get(name)) is not None:
                offsets.transaction_ended(header.producer_id, marker.committed, header.base_offset)
                self._forget_if_empty(name, offsets)

    def _take(self, record: Record, producer_id: int | None) -> None:
        if record.key is None:
            return
        try:
            key = read_key(record.key)
            match key:
                case OffsetCommitKey():
                    self._take_offset(key, record, producer_id)
                case GroupMetadataKey():
                    self._take_group(key, record)
                case FactKey():
                    self._take_fact(key, record)
        except Malformed as error:
            self.damaged += 1
            logger.error("offsets_record_corrupt", offset=record.offset, reason=str(error))

    def _take_group(self, key: GroupMetadataKey, record: Record) -> None:
        if record.value is not None:
            self.groups[key.group] = read_group(record.value)
        else:
            self.groups.pop(key.group, None)

    def _take_fact(self, key: FactKey, record: Record) -> None:
        facts = self.facts.setdefault(key.group, {})
        if record.value is not None:
            facts[key.subject, key.member_id] = read_fact(key.subject, record.value)
        else:
            facts.pop((key.subject, key.member_id), None)
        if not facts:
            del self.facts[key.group]

    def _take_offset(self, key: OffsetCommitKey, record: Record, producer_id: int | None) -> None:
        partition = TopicPartition(key.topic, key.partition)
        if record.value is None:
            if producer_id is None and key.group in self.offsets:  # tombstones are in no transaction
                self.offsets[key.group].drop([partition], record.offset)
                self._forget_if_empty(key.group, self.offsets[key.group])
            return
        committed = committed_of(read_offset(record.value))
        offsets = self.offsets.setdefault(key.group, CommittedOffsets())
        if producer_id is None:
            offsets.put(partition, committed, record.offset)
        else:
            offsets.pend(producer_id, partition, committed, record.offset)
            self.writers.setdefault(producer_id, {})[key.group] = None

    def _forget_if_empty(self, name: str, offsets: CommittedOffsets) -> None:
        if not offsets.are_in_use:
            del self.offsets[name]

    def names(self) -> Iterator[str]:
        """Every group that has offsets, pending or not, or records of its own."""
        return iter(sorted(self.groups.keys() | self.offsets.keys() | self.facts.keys()))


def committed_of(value: OffsetCommitValue) -> GroupOffset:
    return GroupOffset(
        offset=value.offset,
        leader_epoch=value.leader_epoch,
        metadata=value.metadata,
        commit_ms=value.commit_timestamp,
        expire_ms=value.expire_timestamp,
    )


def value_of(committed: GroupOffset) -> OffsetCommitValue:
    return OffsetCommitValue(
        offset=committed.offset,
        leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        commit_timestamp=committed.commit_ms,
        expire_timestamp=committed.expire_ms,
    )


def offset_records(
    group_id: str, offsets: Mapping[TopicPartition, GroupOffset]
) -> list[tuple[bytes, bytes | None]]:
    """Keys and values by which the log keeps what a group commits, in the order of `offsets`."""
    return [
        (offset_key(group_id, partition.topic, partition.partition), offset_value(value_of(committed)))
        for partition, committed in offsets.items()
    ]


def restore(group: Group, value: GroupMetadataValue, now: float, wall_ms: int) -> Effects:
    """Set `group` to what its record says, including since when it has been in its state."""
    group.generation = value.generation
    group.protocol_type = value.protocol_type or None
    group.protocol = value.protocol
    if value.current_state_timestamp != NO_TIMESTAMP:
        group.since = now - max(0, wall_ms - value.current_state_timestamp) / 1000
    members = [_member_of(each, value.protocol or "") for each in value.members]
    return group.restore(members, value.leader, now)


def snapshot(group: Group, assignments: dict[str, bytes], wall_ms: int) -> GroupMetadataValue:
    """The record of a group as it is now, with the assignments that are about to hold."""
    return GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation,
        protocol=group.protocol,
        leader=group.members.leader,
        current_state_timestamp=wall_ms,
        members=[
            MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.metadata_for(group.protocol),
                assignment=assignments.get(member.member_id, b""),
            )
            for member in group.members
        ],
    )


def _member_of(stored: MemberMetadata, protocol: str) -> Member:
    rebalance_ms = stored.rebalance_timeout if stored.rebalance_timeout > 0 else stored.session_timeout
    return Member(
        member_id=stored.member_id,
        instance_id=stored.group_instance_id,
        client_id=stored.client_id,
        client_host=stored.client_host,
        session_timeout_ms=stored.session_timeout,
        rebalance_timeout_ms=rebalance_ms,
        protocols=((protocol, stored.subscription),),
        assignment=stored.assignment,
    )
