"""The target of a group: which topics its members read, as they are now, and who shall have which partition.

The group epoch rises whenever a member comes, goes or changes its mind, or a topic does; the target is
computed for it when the next member is heard. Regular expressions are matched here.
Left to others: the assignors (assignors.py), how members get there (reconciliation.py).
"""

from collections import Counter
from collections.abc import Mapping
from typing import TypeAlias

from ....protocol.errors import ApiError, ErrorCode, error_for
from .assignors import ASSIGNORS, Assigned
from .group import ConsumerGroup
from .regex import BadExpression, TopicRegex
from .state import Subject, Subscription, TopicFacts, Topics

EXPRESSIONS_MAX = 1_000  # that are kept ready, over all groups
SHOWN_MAX = 200  # characters of a bad expression; the protocol's strings end somewhere

Wish: TypeAlias = tuple[frozenset[str], str | None]  # topics by name, and those that match an expression

_expressions: dict[str, TopicRegex] = {}


def expression(text: str) -> TopicRegex:
    """The expression, ready to match; raises ApiError if it is none."""
    found = _expressions.get(text)
    if found is None:
        try:
            found = TopicRegex(text)
        except (BadExpression, RecursionError) as error:
            raise error_for(
                ErrorCode.INVALID_REGULAR_EXPRESSION,
                f"SubscribedTopicRegex {text[:SHOWN_MAX]!r} is not a valid expression: {error}",
            ) from error
        if len(_expressions) >= EXPRESSIONS_MAX:
            _expressions.clear()
        _expressions[text] = found
    return found


def topics_of(subscription: Subscription, topics: Topics, known: Mapping[str, TopicFacts]) -> frozenset[str]:
    """The names of the topics that a member reads. Those that the group knows are believed to exist as long
    as this broker may not have heard of them.
    """
    if not subscription.regex:
        return subscription.topics
    try:
        regex = expression(subscription.regex)
    except ApiError:
        return subscription.topics  # another broker accepted it: this one finds no topic by it
    names = topics.names if topics.is_whole else known.keys() | topics.names
    return subscription.topics.union(name for name in names if regex.matches(name))


def _read_by(group: ConsumerGroup, topics: Topics) -> dict[Wish, frozenset[str]]:
    """The names of the topics that members read, by what they wish. Most members of a group wish the same: it
    is looked up once, for there may be a hundred members, and each expression meets every topic there is.
    """
    wishes = {(said.topics, said.regex): said for said in group.subscriptions.values()}
    return {wish: topics_of(said, topics, group.topics) for wish, said in wishes.items()}


def refresh(group: ConsumerGroup, topics: Topics) -> bool:
    """Look up the group's topics, as far as they exist. Returns whether they have changed."""
    wanted: set[str] = set().union(*_read_by(group, topics).values())
    known: Mapping[str, TopicFacts] = {}
    if not topics.is_whole:  # what is missing may just not have been heard of yet
        known = group.topics
        wanted.update(known)
    found = ((name, topics.find(name) or known.get(name)) for name in sorted(wanted))
    facts = {name: each for name, each in found if each is not None}
    group.seen = topics
    changed = facts != group.topics
    group.put(Subject.TOPICS, facts)
    return changed


def retarget(group: ConsumerGroup, topics: Topics) -> None:
    """Compute who shall have which partition, if the group has changed since that was last done."""
    if group.epoch == group.target_epoch:
        return
    ids = {
        wish: frozenset(group.topics[name].id for name in names if name in group.topics)
        for wish, names in _read_by(group, topics).items()
    }
    members = {
        member_id: Assigned(
            topics=ids[subscription.topics, subscription.regex],
            instance_id=subscription.instance_id,
            now=group.target_of(member_id),
        )
        for member_id, subscription in group.subscriptions.items()
    }
    counts = {facts.id: facts.partitions for _, facts in sorted(group.topics.items())}
    for member_id, partitions in ASSIGNORS[assignor_of(group)](members, counts).items():
        group.put(Subject.TARGET, partitions, member_id)
    group.put(Subject.TARGET_EPOCH, group.epoch)


def assignor_of(group: ConsumerGroup) -> str:
    """The assignor that most members want, or the first of the configured ones."""
    known = group.limits.assignors
    votes = Counter(one.assignor for one in group.subscriptions.values() if one.assignor in known)
    return max(known, key=lambda name: (votes[name], -known.index(name)))
