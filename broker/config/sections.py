"""The sections of BrokerConfig: replication, groups, transactions, the controller, ZooKeeper, the web.

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
        help="A follower that has not caught up for this long is removed from the ISR.",
    )
    lag_messages_max: int = option(
        4_000,
        ge=1,
        kafka="replica.lag.max.messages",
        help=(
            "Under profile 0.8 a follower that lags by more records is removed from the ISR. No "
            "effect otherwise."
        ),
    )
    fetch_wait_max_ms: int = option(
        500,
        ge=0,
        kafka="replica.fetch.wait.max.ms",
        help=(
            "How long a leader may delay its response to a follower's fetch; must be less than "
            "replica.lag.time.max.ms."
        ),
    )
    fetch_min_bytes: int = option(
        1,
        ge=0,
        kafka="replica.fetch.min.bytes",
        help="A follower's fetch is answered once this many bytes are available.",
    )
    fetch_max_bytes: int = option(
        1 << 20,
        ge=0,
        kafka="replica.fetch.max.bytes",
        help=("Bytes per partition in a response to a follower. At least one whole batch is always sent."),
    )
    fetch_response_max_bytes: int = option(
        10 << 20,
        ge=0,
        kafka="replica.fetch.response.max.bytes",
        help="Bytes in a response to a follower, over all partitions.",
    )
    leader_throttled_rate: int = option(
        (1 << 63) - 1,
        ge=1,
        le=(1 << 63) - 1,
        kafka="leader.replication.throttled.rate",
        restart=False,
        help="Bytes per second that this broker sends to followers of the partitions that topics name in "
        "leader.replication.throttled.replicas. Replicas that are in sync never wait.",
    )
    follower_throttled_rate: int = option(
        (1 << 63) - 1,
        ge=1,
        le=(1 << 63) - 1,
        kafka="follower.replication.throttled.rate",
        restart=False,
        help="Bytes per second that this broker copies of the replicas that topics name in "
        "follower.replication.throttled.replicas. Replicas that are in sync never wait.",
    )
    fetch_gather_ms: int = option(
        3,
        ge=0,
        le=100,
        kafka="strandline.replica.fetch.gather.ms",
        help=("While responses to a follower are full, the shortest interval between two of them; 0: none."),
    )
    fetch_backoff_ms: int = option(
        1_000,
        ge=0,
        kafka="replica.fetch.backoff.ms",
        help="How long a follower waits after a failed fetch.",
    )
    socket_timeout_ms: int = option(
        30_000,
        ge=1,
        kafka="replica.socket.timeout.ms",
        help=("How long a follower waits for its leader's response; must exceed replica.fetch.wait.max.ms."),
    )
    strict_min_isr: bool = option(
        False,
        kafka="strict.min.isr",
        help="Hold the high watermark back while the ISR has fewer than min.insync.replicas members.",
    )
    fence_on_zookeeper_loss: bool = option(
        False,
        kafka="leader.fence.on.zk.loss",
        help="A leader whose ZooKeeper session may have expired refuses acks=0 and acks=1, too.",
    )
    recorder_bytes_max: int = option(
        16 << 20,
        ge=0,
        le=1 << 30,
        kafka="strandline.flight.recorder.bytes.max",
        help="Size of the flight recorder, which keeps decisions and their reasons for `strandline "
        "why`: in memory, and twice this on disk; 16 KiB per partition. 0: off.",
    )


class GroupsConfig(BaseModel, frozen=True, extra="forbid"):
    """Consumer groups, and `__consumer_offsets`, the internal topic of their offsets."""

    offsets_partitions: int = option(
        50, ge=1, kafka="offsets.topic.num.partitions", help="Number of partitions of __consumer_offsets."
    )
    offsets_replication_factor: int = option(
        3,
        ge=1,
        le=32_767,
        kafka="offsets.topic.replication.factor",
        help="Replicas of __consumer_offsets, which is not created before this many brokers are alive.",
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
        help="How often expired offsets are looked for.",
    )
    offset_metadata_bytes_max: int = option(
        4_096,
        ge=0,
        kafka="offset.metadata.max.bytes",
        help="Longest metadata string of an offset commit, in bytes.",
    )
    offset_commit_timeout_ms: int = option(
        5_000,
        ge=1,
        kafka="offsets.commit.timeout.ms",
        help="How long an offset commit may wait for its replication.",
    )
    session_timeout_ms_min: int = option(
        6_000,
        ge=1,
        kafka="group.min.session.timeout.ms",
        help="Shortest session timeout that a member may ask for.",
    )
    session_timeout_ms_max: int = option(
        30 * MINUTE_MS,
        ge=1,
        kafka="group.max.session.timeout.ms",
        help="Longest session timeout that a member may ask for.",
    )
    initial_rebalance_delay_ms: int = option(
        3_000,
        ge=0,
        kafka="group.initial.rebalance.delay.ms",
        help="How long a new group waits for more members before its first rebalance.",
    )
    size_max: int = option(
        INT32_MAX, ge=1, kafka="group.max.size", help="Largest number of members in a group."
    )
    rebalance_protocols: str = option(
        "classic,consumer",
        kafka="group.coordinator.rebalance.protocols",
        help="`classic,consumer`, or `classic` to refuse groups whose assignments the broker computes.",
    )
    consumer_session_timeout_ms: int = option(
        45_000,
        ge=1,
        kafka="group.consumer.session.timeout.ms",
        help="When a member of a consumer group that is not heard any more is removed.",
    )
    consumer_heartbeat_interval_ms: int = option(
        5_000,
        ge=1,
        kafka="group.consumer.heartbeat.interval.ms",
        help="How often members of consumer groups are asked to send a heartbeat.",
    )
    consumer_session_timeout_ms_min: int = option(
        45_000,
        ge=1,
        kafka="group.consumer.min.session.timeout.ms",
        help="Shortest session timeout that a group may be given (consumer.session.timeout.ms).",
    )
    consumer_session_timeout_ms_max: int = option(
        60_000,
        ge=1,
        kafka="group.consumer.max.session.timeout.ms",
        help="Longest session timeout that a group may be given.",
    )
    consumer_heartbeat_interval_ms_min: int = option(
        5_000,
        ge=1,
        kafka="group.consumer.min.heartbeat.interval.ms",
        help="Shortest heartbeat interval that a group may be given (consumer.heartbeat.interval.ms).",
    )
    consumer_heartbeat_interval_ms_max: int = option(
        15_000,
        ge=1,
        kafka="group.consumer.max.heartbeat.interval.ms",
        help="Longest heartbeat interval that a group may be given.",
    )
    consumer_size_max: int = option(
        INT32_MAX,
        ge=1,
        kafka="group.consumer.max.size",
        help="Largest number of members in a consumer group.",
    )
    consumer_assignors: str = option(
        "uniform,range",
        kafka="group.consumer.assignors",
        help="Assignors that members may ask for, of `uniform` and `range`; the first is the default.",
    )
    consumer_migration_policy: str = option(
        "bidirectional",
        kafka="group.consumer.migration.policy",
        help=(
            "Whether a group with members changes its protocol when a member joins with the new one "
            "(`upgrade`), when the last such member leaves (`downgrade`), `bidirectional`, or `disabled`."
        ),
    )

    @property
    def consumer_assignor_names(self) -> tuple[str, ...]:
        """The assignors by their short names; Kafka 3.9 has classes there."""
        given = (each.strip().rpartition(".")[2] for each in self.consumer_assignors.split(","))
        return tuple(each.removesuffix("Assignor").lower() for each in given if each)

    @property
    def has_consumer_protocol(self) -> bool:
        """Whether groups by the new protocol are served."""
        return "consumer" in (each.strip().lower() for each in self.rebalance_protocols.split(","))


class TransactionsConfig(BaseModel, frozen=True, extra="forbid"):
    """Transactions, and `__transaction_state`, the internal topic of their coordinators."""

    log_partitions: int = option(
        50,
        ge=1,
        le=INT32_MAX,
        kafka="transaction.state.log.num.partitions",
        help="Number of partitions of __transaction_state.",
    )
    log_replication_factor: int = option(
        3,
        ge=1,
        le=32_767,
        kafka="transaction.state.log.replication.factor",
        help="Replicas of __transaction_state, which is not created before this many brokers are alive.",
    )
    log_min_isr: int = option(
        2,
        ge=1,
        le=INT32_MAX,
        kafka="transaction.state.log.min.isr",
        help="min.insync.replicas of __transaction_state; no more than it has replicas.",
    )
    log_segment_bytes: int = option(
        100 << 20,
        ge=14,
        le=INT32_MAX,
        kafka="transaction.state.log.segment.bytes",
        help="Segment size of __transaction_state.",
    )
    timeout_ms_max: int = option(
        15 * MINUTE_MS,
        ge=1,
        le=INT32_MAX,
        kafka="transaction.max.timeout.ms",
        help="Longest timeout that a producer may ask for its transactions.",
    )
    id_expiration_ms: int = option(
        7 * 24 * 60 * MINUTE_MS,
        ge=1,
        le=INT32_MAX,
        kafka="transactional.id.expiration.ms",
        help="A transactional id is forgotten after it has been without a transaction for this long.",
    )
    time_out_interval_ms: int = option(
        10_000,
        ge=1,
        le=INT32_MAX,
        kafka="transaction.abort.timed.out.transaction.cleanup.interval.ms",
        help="How often transactions are looked for that have been open for longer than their timeout.",
    )
    expiry_interval_ms: int = option(
        3_600_000,
        ge=1,
        le=INT32_MAX,
        kafka="transaction.remove.expired.transaction.cleanup.interval.ms",
        help="How often expired transactional ids are looked for.",
    )
    partition_verification: bool = option(
        True,
        kafka="transaction.partition.verification.enable",
        restart=False,
        help="Ask the coordinator before a partition takes the first batch of a transaction, so that no "
        "late batch opens a transaction which nobody ends.",
    )


class ControllerConfig(BaseModel, frozen=True, extra="forbid"):
    """Defaults of new topics, leader balance, and how long the controller waits."""

    num_partitions: int = option(
        1,
        ge=1,
        kafka="num.partitions",
        restart=False,
        help="Partitions of a topic that is created without a number of partitions.",
    )
    default_replication_factor: int = option(
        1,
        ge=1,
        le=32_767,
        kafka="default.replication.factor",
        restart=False,
        help="Replicas of a topic that is created without a replication factor.",
    )
    delete_topic_enable: bool = option(
        True, kafka="delete.topic.enable", help="Whether topics can be deleted."
    )
    socket_timeout_ms: int = option(
        30_000,
        ge=1,
        kafka="controller.socket.timeout.ms",
        help="How long the controller waits for a broker's response.",
    )
    auto_leader_rebalance_enable: bool = option(
        True,
        kafka="auto.leader.rebalance.enable",
        restart=False,
        help=("Whether leadership moves back to preferred replicas (first in the assignment) automatically."),
    )
    leader_imbalance_check_interval_s: int = option(
        300,
        ge=1,
        kafka="leader.imbalance.check.interval.seconds",
        restart=False,
        help="How often the controller checks the balance of leaders.",
    )
    leader_imbalance_percentage: int = option(
        10,
        ge=0,
        kafka="leader.imbalance.per.broker.percentage",
        restart=False,
        help=(
            "Leadership moves back when more than this percentage of the partitions that prefer a "
            "broker have another leader."
        ),
    )
    unclean_recovery_timeout_ms: int = option(
        300_000,
        ge=0,
        kafka="unclean.recovery.timeout.ms",
        restart=False,
        help="With unclean.recovery.strategy=balanced: how long the controller waits for replicas "
        "outside the ISR. It waits for ISR members without limit.",
    )


class ZookeeperConfig(BaseModel, frozen=True, extra="forbid"):
    """The ensemble, and its timeouts."""

    connect: str = option(
        ...,
        kafka="zookeeper.connect",
        help="host:port,host:port with an optional /chroot at the end, which is created if missing.",
    )
    session_timeout_ms: int = option(
        18_000,
        ge=1,
        kafka="zookeeper.session.timeout.ms",
        help="ZooKeeper takes this broker for dead after this much silence.",
    )
    connection_timeout_ms: int = option(
        18_000,
        ge=1,
        kafka="zookeeper.connection.timeout.ms",
        help="How long a start waits for the first response of ZooKeeper.",
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


class WebConfig(BaseModel, frozen=True, extra="forbid"):
    """The HTTP port for people, probes and Prometheus."""

    listener: str = option(
        "",
        kafka="strandline.web.listener",
        help="host:port of the HTTP server (web page, health, readiness, metrics). No host: 127.0.0.1; "
        "port 0: the system chooses one. Empty: no HTTP server. It has no access control.",
    )
    hosts: str = option(
        "",
        kafka="strandline.web.hosts",
        help="Further host names, separated by commas, by which the HTTP server may be asked. IP addresses, "
        "`localhost`, this machine's name and the names in the listeners are accepted without.",
    )
    metrics_partitions_max: int = option(
        5_000,
        ge=0,
        le=INT32_MAX,
        kafka="strandline.web.metrics.partitions.max",
        restart=False,
        help="`/metrics` has series of single partitions, topics and consumer groups as long as this broker "
        "has no more than so many replicas, topics, and groups with committed offsets; else totals only.",
    )
    create_topics: bool = option(
        False,
        kafka="strandline.web.create.topics",
        help="Whether the web page may create topics. There is no access control: all that reach the HTTP "
        "server may.",
    )
