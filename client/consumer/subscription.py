"""What a consumer reads: partitions by name, all partitions of topics, or what its group assigns.

Keeps the fetcher's positions in step with the group: offsets are committed before partitions are revoked, and
a partition that comes back in the next generation goes on at its position. A caller who commits by hand may
have let go of what it had not committed when the partition was revoked, and found nothing to seek back in: so
when it wants more, such a partition goes on at what is committed, as with Kafka's consumer.
Left to others: membership (group.py), fetching (fetcher.py), the API (consumer.py).
Why: docs/decisions/0071-a-listeners-commit-covers-what-is-done.md
"""

import inspect
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from contextvars import ContextVar
from typing import Any

from ...base.logger import get_logger
from ...base.types import TopicPartition
from ...protocol.errors import ApiError, error_for
from ..arguments import as_partitions
from ..config import ConsumerConfig
from ..network.cluster import Cluster
from ..results import CommittedOffset
from .commits import Accepted, Commit, CommitFailed, Commits, GroupMember
from .fetcher import Fetcher
from .group import REJOIN, Membership
from .positions import PartitionPosition

log = get_logger(__name__)

COMMIT_ON_REVOKE_MS = 5_000
_is_telling = ContextVar("is_telling", default=False)


class RebalanceListener:
    """Called when partitions are assigned or revoked. Override what is wanted, plain or async."""

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> Any:
        """Called before these are given to others: the last moment to commit. `commit()` without offsets
        commits what the caller is done with: a listener is called amid its work."""

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> Any:
        """Called when these are read from now on; nothing of them is handed out before it returns."""

    def on_partitions_lost(self, partitions: list[TopicPartition]) -> Any:
        """Called when these were taken away without notice. By default calls `on_partitions_revoked`."""
        return self.on_partitions_revoked(partitions)


class Subscription:
    """The source of a fetcher's places. `dropped` is called with partitions that are no longer read;
    `progress` is another value than before if the caller has taken records since."""

    def __init__(
        self,
        cluster: Cluster,
        config: ConsumerConfig,
        fetcher: Fetcher,
        dropped: Callable[[set[TopicPartition]], None],
        progress: Callable[[], object],
    ) -> None:
        self._cluster = cluster
        self._config = config
        self._fetcher = fetcher
        self._dropped = dropped
        self._progress = progress
        self._topics: list[str] = []
        self._pattern: re.Pattern[str] | None = None
        self._listener = RebalanceListener()
        self._parked: dict[TopicPartition, tuple[PartitionPosition, int]] = {}
        self._returned: dict[TopicPartition, PartitionPosition] = {}  # since the caller last came back
        self._dropped_places: dict[TopicPartition, PartitionPosition] = {}  # by assign(), to be committed yet
        self._commits = Commits()
        fetcher.on_made_again = self._forget_commits
        self._is_assigned = False
        self.membership: Membership | None = None

    @property
    def topics(self) -> list[str]:
        """Topics subscribed to; with a pattern, the known ones that match, without internal ones."""
        if self._pattern is None:
            return self._topics
        view = self._cluster.view.topics
        return sorted(name for name, one in view.items() if not one.is_internal and self._pattern.match(name))

    @property
    def missing(self) -> list[str]:
        """Topics to be read that do not exist, as far as metadata tells. A pattern misses none."""
        view = self._cluster.view.topics
        return [name for name in self._named() if name in view and view[name].is_gone]

    @property
    def refused(self) -> dict[str, ApiError]:
        """Topics to be read that metadata refuses for good, and why."""
        view = self._cluster.view.topics
        troubled = [name for name in self._named() if name in view and view[name].error]
        errors = {name: error_for(view[name].error, name) for name in troubled}
        return {name: one for name, one in errors.items() if not one.retriable}

    def _named(self) -> Collection[str]:
        return {one.topic for one in self._fetcher.places} if self._is_assigned else self._topics

    @property
    def is_empty(self) -> bool:
        """Whether nothing was subscribed or assigned."""
        return not (self._topics or self._pattern or self._is_assigned)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions and no others; no group decides."""
        if self._topics or self._pattern:
            raise ValueError("assign() and subscribe() exclude each other: take another consumer")
        chosen = set(as_partitions(partitions))
        self._is_assigned = True
        if self._config.enable_auto_commit and self._config.group is not None:
            for one, place in self._fetcher.places.items():
                if one not in chosen and place.position is not None:
                    place.is_paused = False
                    place.go_on()
                    self._dropped_places[one] = place
        self._adopt(chosen)

    def subscribe(
        self, topics: Iterable[str], pattern: str | None, listener: RebalanceListener | None
    ) -> None:
        """Read these topics: the partitions that the group assigns, or all of them without a group."""
        if self._is_assigned:
            raise ValueError("assign() and subscribe() exclude each other: take another consumer")
        if isinstance(topics, str):
            topics = [topics]
        self._topics = sorted(set(topics))
        self._pattern = re.compile(pattern) if pattern is not None else None
        self._listener = listener or self._listener
        if self._pattern is not None:
            self._cluster.track_everything()
        self._cluster.track(self._topics)
        if self._config.group is None:
            self._cluster.on_change.subscribe(self._read_all)
            self._read_all()
        elif self.membership is None:
            self.membership = Membership(
                self._cluster,
                self._config,
                lambda: self.topics,
                self._progress,
                self._revoked,
                self._lost,
                self._given,
                self._ended,
            )
            self.membership.start()
        else:
            self.membership.topics_changed()

    def tell_commits_to(self, callback: Accepted) -> None:
        """Call this with all offsets that the coordinator accepts."""
        self._commits.on_accepted = callback

    async def stop(self) -> None:
        """Leave the group."""
        if self.membership is not None:
            await self.membership.stop()

    @property
    def places(self) -> dict[TopicPartition, PartitionPosition]:
        """Positions that may be committed: those being read, and those given up that no other member can have
        yet, because the members are still joining."""
        generation = self._generation
        held = {one: place for one, (place, left_at) in self._parked.items() if left_at == generation}
        return {**held, **self._fetcher.places}

    def offsets_to_commit(self) -> dict[TopicPartition, CommittedOffset]:
        """What is committed where no offsets are named: all that was handed out. But a listener may be called
        while the caller works on the last of it: then what it is done with."""
        amid_work = _is_telling.get()
        found = {}
        for name, place in self.places.items():
            offset = place.processed if amid_work else place.position
            epoch = place.processed_epoch if amid_work else place.position_epoch
            if offset is not None:
                found[name] = CommittedOffset(offset, leader_epoch=epoch)
        return found

    async def commit(
        self, group: str, offsets: Mapping[TopicPartition, CommittedOffset], member: GroupMember | None
    ) -> None:
        """Commit the offsets that the caller gives."""
        deadline = self._cluster.deadline()
        async with self._commits.turn(deadline):
            commit = Commit(self._cluster, group, offsets, member)
            try:
                await self._commits.write(commit, deadline)
            finally:
                for partition, offset in commit.accepted.items():
                    self._dropped_places.pop(partition, None)
                    place = self.places.get(partition)
                    if place is not None and place.processed is not None and place.processed < offset:
                        place.done_up_to(offset, offsets[partition].leader_epoch)

    async def commit_processed(self, timeout_ms: float, *, once: bool = False) -> None:
        """Commit what the caller is done with, as far as it is not committed yet."""
        deadline = self._cluster.deadline(timeout_ms)
        async with self._commits.turn(deadline):
            places = {**self._dropped_places, **self.places}
            offsets = {
                partition: CommittedOffset(place.processed, leader_epoch=place.processed_epoch)
                for partition, place in places.items()
                if place.processed is not None and self._commits.latest.get(partition) != place.processed
            }
            if offsets and self._config.group is not None:
                commit = Commit(self._cluster, self._config.group, offsets, self.member_to_commit())
                try:
                    await self._commits.write(commit, deadline, once=once)
                finally:
                    self._let_go(commit.unknown)
            self._let_go(
                one
                for one, place in self._dropped_places.items()
                if place.processed == place.position == self._commits.latest.get(one)
            )

    def _let_go(self, partitions: Iterable[TopicPartition]) -> None:
        """Of these nothing is to be committed any more, if they were dropped."""
        for one in list(partitions):
            self._dropped_places.pop(one, None)

    def member_to_commit(
        self,
        partitions: Iterable[TopicPartition] = (),
        in_hand: Mapping[TopicPartition, PartitionPosition] | None = None,
    ) -> GroupMember | None:
        """As which member to commit `partitions`; None if they were set by assign().

        Raises CommitFailed if the consumer has subscribed but is no member; also for a partition that is not
        this member's, or was assigned to it again since it got the records that it has `in_hand`. The
        coordinator checks only membership, so committing what was read in an earlier generation would move
        the group back behind the member that has read on since.
        """
        if self.membership is None:
            return None
        member = self.membership.member.may_commit(self._config.group or "")
        places = self.places
        for one in partitions:
            place = places.get(one)
            if place is None or (in_hand or {}).get(one, place) is not place:
                raise CommitFailed(
                    f"{TopicPartition(*one)} was reassigned to another member, so its offset was not "
                    "committed: the new owner starts at the last committed offset and reads the "
                    "later records again"
                )
        return member

    @property
    def _generation(self) -> int:
        return self.membership.member.generation if self.membership is not None else -1

    # -- partitions come and go

    def caller_came_back(self) -> set[TopicPartition]:
        """The caller wants more. Returns the partitions that came back to it, or may yet, where something
        that it got is not committed: they go on at what is.
        """
        returned, self._returned = self._returned, {}
        returned = {one: place for one, place in returned.items() if self._fetcher.places.get(one) is place}
        if not self._config.enable_auto_commit:
            returned.update((one, place) for one, (place, _) in self._parked.items())
        unsure = {
            one: place
            for one, place in returned.items()
            if place.position is not None and self._commits.latest.get(one) != place.position
        }
        for place in unsure.values():
            place.look_up_commit()
        return set(unsure)

    def sought(self, partitions: Iterable[TopicPartition]) -> None:
        """The caller has said where to go on."""
        for one in partitions:
            self._returned.pop(one, None)

    def _forget_commits(self, partition: TopicPartition) -> None:
        """What was committed of it went with its topic."""
        self._commits.latest.pop(partition, None)

    def _read_all(self) -> None:
        """Without a group: read every partition of the topics, also those that are added later."""
        view = self._cluster.view.topics
        names = (name for name in self.topics if name in view)
        self._adopt({TopicPartition(name, index) for name in names for index in view[name].partitions})

    def _adopt(self, partitions: set[TopicPartition]) -> None:
        before = self._fetcher.places
        if partitions == set(before):
            return
        self._dropped(set(before) - partitions)
        places = {one: before.get(one) or self._dropped_places.pop(one, None) for one in sorted(partitions)}
        for one, place in places.items():
            if place is None:
                self._commits.latest.pop(one, None)
        self._fetcher.assign({one: place or PartitionPosition(one) for one, place in places.items()})

    async def _revoked(self, partitions: set[TopicPartition]) -> None:
        """Nothing more of them is handed out from now on: whoever has them next would get it again."""
        places = {one: place for one, place in self._fetcher.places.items() if one in partitions}
        for place in places.values():
            place.is_withheld = True
            if place.position is not None:
                place.go_on()
        self._dropped(partitions)
        try:
            await self._commit_and_tell(partitions)
        except BaseException:
            self._hand_out(places.values())  # the member may keep them
            raise
        for one, place in places.items():
            if place.position is not None:
                place.go_on()
                self._parked[one] = (place, self._generation)
        self._adopt(set(self._fetcher.places) - partitions)

    async def _commit_and_tell(self, partitions: set[TopicPartition]) -> None:
        if self._config.enable_auto_commit:
            try:
                await self.commit_processed(COMMIT_ON_REVOKE_MS)
            except ApiError as trouble:
                log.warning("commit_failed", group=self._config.group, reason=str(trouble))
        await _tell(self._listener.on_partitions_revoked, partitions)

    async def _lost(self, partitions: set[TopicPartition]) -> None:
        self._parked.clear()
        self._adopt(set(self._fetcher.places) - partitions)
        await _tell(self._listener.on_partitions_lost, partitions)

    async def _given(self, fresh: set[TopicPartition]) -> None:
        generation = self._generation
        places = dict(self._fetcher.places)
        for one in sorted(fresh):
            place, left_at = self._parked.get(one, (None, -1))
            if place is None or left_at != generation - 1:
                places[one] = PartitionPosition(one)
                self._commits.latest.pop(one, None)
            else:
                places[one] = place
                if not self._config.enable_auto_commit:
                    self._returned[one] = place
        self._parked = {one: parked for one, parked in self._parked.items() if parked[1] == generation}
        for one in fresh:
            places[one].is_withheld = True
        self._fetcher.assign(places)
        try:
            await _tell(self._listener.on_partitions_assigned, fresh)
        except ApiError as refused:
            if refused.code in REJOIN:  # they stay while it joins again; after another error nothing does
                self._hand_out(places[one] for one in fresh)
            raise
        self._hand_out(places[one] for one in fresh)

    def _hand_out(self, places: Iterable[PartitionPosition]) -> None:
        for place in places:
            place.is_withheld = False
        self._fetcher.arrived.set()

    def _ended(self) -> None:
        self._parked.clear()
        self._adopt(set())
        self._fetcher.arrived.set()


async def _tell(callback: Callable[[list[TopicPartition]], Any], partitions: set[TopicPartition]) -> None:
    token = _is_telling.set(True)
    try:
        result = callback(sorted(partitions))
        if inspect.isawaitable(result):
            await result
    finally:
        _is_telling.reset(token)
