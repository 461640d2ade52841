"""What consumer groups know of their broker: its options, and the topics of the cluster."""

from ....protocol.primitives import NO_UUID
from ...config.sections import GroupsConfig
from ...metadata.cache import Picture
from .state import ConsumerLimits, TopicFacts, Topics


def limits_of(config: GroupsConfig) -> ConsumerLimits:
    """The options that hold for every consumer group."""
    policy = config.consumer_migration_policy
    return ConsumerLimits(
        session_ms=config.consumer_session_timeout_ms,
        interval_ms=config.consumer_heartbeat_interval_ms,
        members_max=config.consumer_size_max,
        assignors=config.consumer_assignor_names,
        may_upgrade=policy in ("upgrade", "bidirectional"),
        may_downgrade=policy in ("downgrade", "bidirectional"),
    )


def topics_of(picture: Picture) -> Topics:
    """The topics of this picture, the same object each time: groups look again when it is another."""
    found: Topics | None = picture.described.get(Topics)
    if found is None:

        def find(name: str) -> TopicFacts | None:
            topic = picture.topics.get(name)
            if topic is None or topic.id == NO_UUID:
                return None
            return TopicFacts(topic.id, max(topic.partitions) + 1)

        found = picture.described[Topics] = Topics(find, picture.topics, picture.is_whole)
    return found
