"""Who is in a group: members by id and by instance id, ids promised, the leader, the common protocol.

Bookkeeping only: `group.py` decides when to add, drop or answer a member.
"""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import field

from ...base.values import dataclass
from ...protocol.errors import ErrorCode
from .state import JoinAsked, JoinReply, Listed, SyncReply, Terms

NEVER = math.inf
NEWCOMER_WAIT_SECONDS = 300.0  # then its parked join is dropped: its client will have retried


@dataclass(slots=True)
class Member:
    """One member; `joining` and `syncing` hold its parked requests."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    assignment: bytes = b""
    joining: JoinReply | None = None
    syncing: SyncReply | None = None
    is_new: bool = False
    has_synced: bool = True
    deadline: float = NEVER

    @property
    def is_excused(self) -> bool:
        """A member with a parked request need not heartbeat, except a newcomer: its client may have gone."""
        return not self.is_new and (self.joining is not None or self.syncing is not None)

    def metadata_for(self, protocol: str | None) -> bytes:
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    def heard(self, now: float) -> None:
        """It is alive. A newcomer cannot heartbeat before its first generation, so its deadline is longer."""
        self.deadline = now + (NEWCOMER_WAIT_SECONDS if self.is_new else self.session_timeout_ms / 1000)

    def terms(self) -> Terms:
        """What it said of itself in its last join."""
        return Terms(
            self.client_id,
            self.client_host,
            self.session_timeout_ms,
            self.rebalance_timeout_ms,
            self.protocols,
        )

    def adopt(self, asked: JoinAsked | Terms, reply: JoinReply | None) -> None:
        """Replace what it said of itself by a new join, or go back to an earlier one."""
        assert self.joining is None, "a parked join is answered before another takes its place"
        self.client_id = asked.client_id
        self.client_host = asked.client_host
        self.session_timeout_ms = asked.session_timeout_ms
        self.rebalance_timeout_ms = asked.rebalance_timeout_ms
        self.protocols = asked.protocols
        self.joining = reply


def member_of(asked: JoinAsked, member_id: str, reply: JoinReply) -> Member:
    """A newcomer, waiting for its first generation."""
    return Member(
        member_id=member_id,
        instance_id=asked.instance_id,
        client_id=asked.client_id,
        client_host=asked.client_host,
        session_timeout_ms=asked.session_timeout_ms,
        rebalance_timeout_ms=asked.rebalance_timeout_ms,
        protocols=asked.protocols,
        joining=reply,
        is_new=True,
        has_synced=False,
    )


@dataclass(slots=True)
class GroupMembers:
    """All members of a group. Insertion order is the order of seniority."""

    by_id: dict[str, Member] = field(default_factory=dict)
    static_ids: dict[str, str] = field(default_factory=dict)  # instance id -> member id
    promised: dict[str, float] = field(default_factory=dict)  # ids given out, not yet joined -> deadline
    leader: str | None = None

    def __len__(self) -> int:
        return len(self.by_id)

    def __iter__(self) -> Iterator[Member]:
        return iter(self.by_id.values())

    def __contains__(self, member_id: str) -> bool:
        return member_id in self.by_id

    def add(self, member: Member) -> None:
        assert member.member_id not in self.by_id, "the member has joined already"
        self.by_id[member.member_id] = member
        self.promised.pop(member.member_id, None)
        if member.instance_id is not None:
            self.static_ids[member.instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id

    def remove(self, member_id: str) -> Member:
        member = self.by_id.pop(member_id)
        if member.instance_id is not None and self.static_ids.get(member.instance_id) == member_id:
            del self.static_ids[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.by_id), None)
        assert (self.leader is None) == (not self.by_id), "a group has a leader as long as it has members"
        return member

    def rename(self, instance_id: str, new_id: str) -> Member:
        """The instance came back: same member, same place, new id."""
        old_id = self.static_ids[instance_id]
        assert new_id not in self.by_id, "a member id is given out once"
        member = self.by_id[old_id]
        member.member_id = new_id
        self.by_id = {new_id if key == old_id else key: each for key, each in self.by_id.items()}
        self.static_ids[instance_id] = new_id
        if self.leader == old_id:
            self.leader = new_id
        return member

    def check(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Is this caller the member it says it is?"""
        if instance_id is not None:
            current = self.static_ids.get(instance_id)
            if current is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if current != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.by_id else ErrorCode.UNKNOWN_MEMBER_ID

    def elect_joined_leader(self) -> bool:
        """Keep the leader if it rejoined, else take the most senior member that did. False if none did."""
        current = self.by_id.get(self.leader) if self.leader is not None else None
        if current is not None and current.joining is not None:
            return True
        joined = next((member for member in self if member.joining is not None), None)
        if joined is None:
            return False
        self.leader = joined.member_id
        return True

    def promised_beside(self, member_id: str) -> int:
        """How many others were given a member id and have not joined with it."""
        return len(self.promised) - (member_id in self.promised)

    @property
    def joined_count(self) -> int:
        return sum(member.joining is not None for member in self)

    @property
    def all_joined(self) -> bool:
        return not self.promised and self.joined_count == len(self.by_id)

    @property
    def rebalance_timeout(self) -> float:
        """The longest rebalance timeout of any member, in seconds."""
        return max((member.rebalance_timeout_ms for member in self), default=0) / 1000

    def common_protocols(self) -> set[str]:
        """The protocols every member can speak."""
        counts = Counter(name for member in self for name in {name for name, _ in member.protocols})
        return {name for name, count in counts.items() if count == len(self.by_id)}

    def choose_protocol(self) -> str:
        """Each member votes for the first common protocol of its list; the leader's order breaks a tie."""
        common = self.common_protocols()
        assert common, "the members have no protocol in common"
        votes = Counter(next(name for name, _ in member.protocols if name in common) for member in self)
        first = self.by_id[self.leader] if self.leader is not None else next(iter(self))
        order = {name: place for place, (name, _) in enumerate(first.protocols)}
        return min(votes, key=lambda name: (-votes[name], order[name]))

    def listing(self, protocol: str | None) -> tuple[Listed, ...]:
        """The members as the leader gets them, to compute the assignment."""
        return tuple(
            Listed(member.member_id, member.instance_id, member.metadata_for(protocol)) for member in self
        )
