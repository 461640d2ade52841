"""The sections of BrokerConfig: replication, groups, the controller, ZooKeeper.

Names and defaults are Kafka's wherever Kafka has them (docs/configuration.md is rendered from here).
Left to others: listeners, and how sections are nested (broker.py), logs (storage/config.py).
"""

from pydantic import BaseModel

from ...base.options import option

INT32_MAX = (1 << 31) - 1
MINUTE_MS = 60_000


class ReplicationConfig(BaseModel, frozen=True, extra="forbid"):
    """How followers fetch, and when they count as late."""

    lag_time_max_ms: int = option(
        30_000,
        ge=1,
        kafka="replica.lag.time.max.ms",
        help="A follower that has not caught up for so long leaves the ISR.",
    )
    lag_messages_max: int = option(
        4_000,
        ge=1,
        kafka="replica.lag.max.messages",
        help="Under the profile 0.8, a follower that lacks more records leaves the ISR. No effect otherwise.",
    )
    fetch_wait_max_ms: int = option(
        500,
        ge=0,
        kafka="replica.fetch.wait.max.ms",
        help="How long a leader may hold a follower's fetch back; less than replica.lag.time.max.ms.",
    )
    fetch_min_bytes: int = option(
        1,
        ge=0,
        kafka="replica.fetch.min.bytes",
        help="A follower's fetch is answered when so many bytes are there.",
    )
    fetch_max_bytes: int = option(
        1 << 20,
        ge=0,
        kafka="replica.fetch.max.bytes",
        help="Bytes of one partition in one answer to a follower; at least one whole batch is always sent.",
    )
    fetch_response_max_bytes: int = option(
        10 << 20,
        ge=0,
        kafka="replica.fetch.response.max.bytes",
        help="Bytes of one whole answer to a follower.",
    )
    fetch_gather_ms: int = option(
        3,
        ge=0,
        le=100,
        kafka="strandline.replica.fetch.gather.ms",
        help="A follower that takes much in every answer is answered at most once in so long; 0 at once.",
    )
    fetch_backoff_ms: int = option(
        1_000,
        ge=0,
        kafka="replica.fetch.backoff.ms",
        help="How long a follower waits after a fetch that failed.",
    )
    socket_timeout_ms: int = option(
        30_000,
        ge=1,
        kafka="replica.socket.timeout.ms",
        help="How long a follower waits for its leader's answer; more than replica.fetch.wait.max.ms.",
    )
    strict_min_isr: bool = option(
        False,
        kafka="strict.min.isr",
        help="Expose nothing to consumers while fewer than min.insync.replicas replicas hold it.",
    )
    fence_on_zookeeper_loss: bool = option(
        False,
        kafka="leader.fence.on.zk.loss",
        help="A leader whose ZooKeeper session must be taken as ended refuses acks=0 and acks=1, too.",
    )
    recorder_bytes_max: int = option(
        16 << 20,
        ge=0,
        le=1 << 30,
        kafka="strandline.flight.recorder.bytes.max",
        help="How much of what was decided, and why, is kept for `strandline why`: in memory, and twice as "
        "much on disk; 16 KiB for each partition. 0 keeps nothing.",
    )


class GroupsConfig(BaseModel, frozen=True, extra="forbid"):
    """Consumer groups, and `__consumer_offsets`, the internal topic of their offsets."""

    offsets_partitions: int = option(
        50, ge=1, kafka="offsets.topic.num.partitions", help="Partitions of __consumer_offsets."
    )
    offsets_replication_factor: int = option(
        3,
        ge=1,
        le=32_767,
        kafka="offsets.topic.replication.factor",
        help="Replicas of __consumer_offsets; it is not created before so many brokers are alive.",
    )
    offsets_segment_bytes: int = option(
        100 << 20, ge=14, kafka="offsets.topic.segment.bytes", help="Segment size of __consumer_offsets."
    )
    offsets_retention_minutes: int = option(
        10_080,
        ge=1,
        kafka="offsets.retention.minutes",
        help="How long the offsets of a group without members are kept.",
    )
    offsets_retention_check_interval_ms: int = option(
        600_000,
        ge=1,
        kafka="offsets.retention.check.interval.ms",
        help="How often to look for offsets that may go.",
    )
    offset_metadata_bytes_max: int = option(
        4_096, ge=0, kafka="offset.metadata.max.bytes", help="The longest note that a commit may carry."
    )
    offset_commit_timeout_ms: int = option(
        5_000,
        ge=1,
        kafka="offsets.commit.timeout.ms",
        help="How long a commit may wait until it is replicated.",
    )
    session_timeout_ms_min: int = option(
        6_000, ge=1, kafka="group.min.session.timeout.ms", help="The shortest session a member may ask for."
    )
    session_timeout_ms_max: int = option(
        30 * MINUTE_MS,
        ge=1,
        kafka="group.max.session.timeout.ms",
        help="The longest session a member may ask for.",
    )
    initial_rebalance_delay_ms: int = option(
        3_000,
        ge=0,
        kafka="group.initial.rebalance.delay.ms",
        help="How long an empty group waits for more members before its first rebalance.",
    )
    size_max: int = option(INT32_MAX, ge=1, kafka="group.max.size", help="Members of one group.")


class ControllerConfig(BaseModel, frozen=True, extra="forbid"):
    """Defaults of new topics, leader balance, and how long the controller waits."""

    num_partitions: int = option(
        1, ge=1, kafka="num.partitions", restart=False, help="Partitions of a topic created without a number."
    )
    default_replication_factor: int = option(
        1,
        ge=1,
        le=32_767,
        kafka="default.replication.factor",
        restart=False,
        help="Replicas of a topic that is created without a number.",
    )
    delete_topic_enable: bool = option(
        True, kafka="delete.topic.enable", help="Whether topics may be deleted."
    )
    socket_timeout_ms: int = option(
        30_000,
        ge=1,
        kafka="controller.socket.timeout.ms",
        help="How long the controller waits for a broker's answer.",
    )
    auto_leader_rebalance_enable: bool = option(
        True,
        kafka="auto.leader.rebalance.enable",
        restart=False,
        help="Whether leadership goes back by itself to the replica that stands first in the assignment.",
    )
    leader_imbalance_check_interval_s: int = option(
        300,
        ge=1,
        kafka="leader.imbalance.check.interval.seconds",
        restart=False,
        help="How often the controller looks at the balance of leaders.",
    )
    leader_imbalance_percentage: int = option(
        10,
        ge=0,
        kafka="leader.imbalance.per.broker.percentage",
        restart=False,
        help="If more percent of the partitions that a broker is first for are led elsewhere, they go back.",
    )
    unclean_recovery_timeout_ms: int = option(
        60_000,
        ge=0,
        kafka="unclean.recovery.timeout.ms",
        restart=False,
        help="With the strategy balanced: how long replicas outside the ISR are waited for. "
        "Members of the ISR are waited for without bound.",
    )


class ZookeeperConfig(BaseModel, frozen=True, extra="forbid"):
    """The ensemble, and its timeouts."""

    connect: str = option(
        ...,
        kafka="zookeeper.connect",
        help="host:port,host:port with an optional /chroot at the end, which is created if it is absent.",
    )
    session_timeout_ms: int = option(
        18_000,
        ge=1,
        kafka="zookeeper.session.timeout.ms",
        help="After so much silence ZooKeeper takes this broker for dead.",
    )
    connection_timeout_ms: int = option(
        18_000,
        ge=1,
        kafka="zookeeper.connection.timeout.ms",
        help="How long a start waits for the first answer of ZooKeeper.",
    )

    @property
    def hosts(self) -> str:
        """The addresses without the chroot."""
        return self.connect.partition("/")[0]

    @property
    def chroot(self) -> str:
        """The node below which all our nodes are; empty for the root."""
        _, slash, path = self.connect.partition("/")
        return (slash + path).rstrip("/")
