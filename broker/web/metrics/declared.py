"""Every metric that `/metrics` has: its name, its type, its labels and what it means.

Names that begin with `kafka_` are those of Kafka's metrics under the common rules of the JMX exporter
(lowercaseOutputName, `PerSec` becomes `_total`), of consumer groups those of kafka_exporter: dashboards made
for them find what they look for. What Kafka has no name for begins with `strandline_`.
docs/metrics.md is rendered from here. Left to others: the values (cluster.py, replicas.py, requests.py,
coordinators.py), the format (page.py).
"""

from enum import StrEnum

from ....base.values import dataclass


class Kind(StrEnum):
    """The type of a metric."""

    GAUGE = "gauge"
    COUNTER = "counter"
    SUMMARY = "summary"
    HISTOGRAM = "histogram"


class Scope(StrEnum):
    """What there is one series of; each has its limit."""

    BROKER = "broker"
    TOPIC = "topic"
    PARTITION = "partition"
    GROUP = "group"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric. Of a counter, `name` ends in `_total`."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    scope: Scope = Scope.BROKER
    section: str = ""


DECLARED: list[Metric] = []
_section = ""


def _begin(section: str) -> None:
    global _section
    _section = section


def _add(name: str, kind: Kind, help: str, labels: tuple[str, ...], scope: Scope = Scope.BROKER) -> Metric:
    made = Metric(name, kind, help, labels, scope, _section)
    DECLARED.append(made)
    return made


def _gauge(name: str, help: str, *labels: str) -> Metric:
    return _add(name, Kind.GAUGE, help, labels)


def _count(name: str, help: str, *labels: str) -> Metric:
    return _add(name, Kind.COUNTER, help, labels)


def _of_topic(name: str, kind: Kind, help: str) -> Metric:
    return _add(name, kind, help, ("topic",), Scope.TOPIC)


def _of_partition(name: str, help: str, *labels: str) -> Metric:
    return _add(name, Kind.GAUGE, help, (*labels, "topic", "partition"), Scope.PARTITION)


def _of_group(name: str, help: str, *labels: str, kind: Kind = Kind.GAUGE) -> Metric:
    return _add(name, kind, help, ("consumergroup", *labels), Scope.GROUP)


FIRST_BITS, LAST_BITS = 14, 35  # of the bounds in nanoseconds that are shown
BOUNDS_S = tuple((1 << bits) / 1e9 for bits in range(FIRST_BITS, LAST_BITS + 1))  # 16 µs to 34 s
QUANTILES = ("0.50", "0.75", "0.95", "0.98", "0.99", "0.999")

MANAGER = "kafka_server_replicamanager_"
TRAFFIC = "kafka_server_brokertopicmetrics_"
REQUEST = "kafka_network_requestmetrics_"
CONTROLLER = "kafka_controller_kafkacontroller_"
GROUPS = "kafka_coordinator_group_groupmetadatamanager_"

_begin("The broker")
BROKER_STATE = _gauge(
    "kafka_server_kafkaserver_brokerstate",
    "1 while it starts, 3 while it runs, 6 while it stops, 0 once it has failed",
)
INFO = _gauge(
    "strandline_broker_info", "always 1; the labels tell which broker", "broker", "version", "cluster"
)
LATE = _gauge(
    "strandline_event_loop_late_seconds", "by how much the event loop was late at most, in the last 10 s"
)
ZK_CONNECTED = _gauge("strandline_zookeeper_connected", "1 if ZooKeeper answers, as far as is known")
ZK_SESSIONS = _count(
    "strandline_zookeeper_sessions_total",
    "sessions with ZooKeeper; each after the first means that one expired",
)
SCRAPE = _gauge(
    "strandline_scrape_seconds", "how long it took to gather this page, with pauses for the broker"
)
LEFT_OUT = _gauge(
    "strandline_series_left_out",
    "1 if series of this scope are left out: there are more than strandline.web.metrics.partitions.max",
    "scope",
)

_begin("Replication")
PARTITIONS = _gauge(f"{MANAGER}partitioncount", "replicas on this broker")
LEADERS = _gauge(f"{MANAGER}leadercount", "partitions that this broker leads")
UNDER_REPLICATED = _gauge(
    f"{MANAGER}underreplicatedpartitions",
    "led here, with an ISR smaller than the replicas; those that a move brings are not missed",
)
UNDER_MIN_ISR = _gauge(f"{MANAGER}underminisrpartitioncount", "led here, and `acks=all` is refused")
AT_MIN_ISR = _gauge(
    f"{MANAGER}atminisrpartitioncount", "led here; without one more replica `acks=all` is refused"
)
OFFLINE_REPLICAS = _gauge(
    f"{MANAGER}offlinereplicacount", "replicas here that are not served: a disk, or damage"
)
REASSIGNING = _gauge(f"{MANAGER}reassigningpartitions", "led here, while replicas move")
ISR_SHRINKS = _count(f"{MANAGER}isrshrinks_total", "ISRs made smaller by leaders here")
ISR_EXPANDS = _count(f"{MANAGER}isrexpands_total", "ISRs made larger by leaders here")
ISR_FAILED = _count(
    f"{MANAGER}failedisrupdates_total", "changes of an ISR that failed or whose outcome is unknown"
)
LATE_TRANSACTIONS = _gauge(
    f"{MANAGER}partitionswithlatetransactionscount",
    "led here, with a transaction open five minutes longer than transaction.max.timeout.ms: it hangs",
)
MAX_LAG = _gauge(
    "kafka_server_replicafetchermanager_maxlag",
    "committed records that a follower here lacks, at most",
    "clientId",
)
LAG_OF = _gauge("strandline_replica_lag_max", "the same, by the broker that leads", "leader")
TRUNCATED = _count(
    "strandline_truncated_below_high_watermark_total",
    "truncations of what this replica knew to be committed: above 0 records are gone",
)
REPLICATION_IN = _count(f"{TRAFFIC}replicationbytesin_total", "bytes of batches from leaders")
REPLICATION_OUT = _count(f"{TRAFFIC}replicationbytesout_total", "bytes of batches to followers")
LEADER_RATE = _gauge(
    "kafka_server_leaderreplication_byte_rate",
    "bytes a second, of the last 10 s, sent to throttled replicas (leader.replication.throttled.*)",
)
FOLLOWER_RATE = _gauge(
    "kafka_server_followerreplication_byte_rate",
    "bytes a second, of the last 10 s, copied by throttled replicas (follower.replication.throttled.*)",
)
THROTTLED = _count(
    "strandline_throttled_replication_bytes_total",
    "bytes of batches that counted for such a throttle, by its `side`: `leader` or `follower`",
    "side",
)

_begin("Topics")
MESSAGES_IN = _of_topic(
    f"{TRAFFIC}messagesin_total",
    Kind.COUNTER,
    "records appended by this broker as a leader; without a topic: all",
)
BYTES_IN = _of_topic(f"{TRAFFIC}bytesin_total", Kind.COUNTER, "bytes of these; without a topic: all")
BYTES_OUT = _of_topic(
    f"{TRAFFIC}bytesout_total", Kind.COUNTER, "bytes of batches sent to consumers; without a topic: all"
)
PRODUCES = _of_topic(
    f"{TRAFFIC}totalproducerequests_total", Kind.COUNTER, "batches appended; without a topic: all"
)
FAILED_PRODUCES = _count(
    f"{TRAFFIC}failedproducerequests_total", "partitions of Produce requests with an error"
)
FAILED_FETCHES = _count(f"{TRAFFIC}failedfetchrequests_total", "partitions of Fetch requests with an error")
TOPIC_SIZE = _of_topic("strandline_topic_log_size_bytes", Kind.GAUGE, "size of its logs on this broker")
TOPIC_UNDER_REPLICATED = _of_topic(
    "strandline_topic_under_replicated_partitions", Kind.GAUGE, "of it, led here and under-replicated"
)

_begin("Partitions")
LOG_SIZE = _of_partition("kafka_log_log_size", "size of the log here, in bytes")
LOG_END = _of_partition("kafka_log_log_logendoffset", "log end offset of the replica here")
LOG_START = _of_partition("kafka_log_log_logstartoffset", "log start offset of the replica here")
LOG_SEGMENTS = _of_partition("kafka_log_log_numlogsegments", "segments of the log here")
P_UNDER_REPLICATED = _of_partition(
    "kafka_cluster_partition_underreplicated", "led here: 1 if under-replicated"
)
P_UNDER_MIN_ISR = _of_partition("kafka_cluster_partition_underminisr", "led here: 1 if `acks=all` is refused")
P_IN_SYNC = _of_partition("kafka_cluster_partition_insyncreplicascount", "led here: members of the ISR")
P_REPLICAS = _of_partition("kafka_cluster_partition_replicascount", "led here: replicas")
P_STABLE_LAG = _of_partition(
    "kafka_cluster_partition_laststableoffsetlag",
    "led here: committed records that readers with `read_committed` wait for",
)
P_CURRENT = _of_partition(
    "kafka_topic_partition_current_offset", "led here: the high watermark, where consumers end"
)
P_EPOCH = _of_partition("strandline_partition_leader_epoch", "led here: the leader epoch")
P_LAG = _of_partition(
    "kafka_server_fetcherlagmetrics_consumerlag",
    "followed here: committed records that are missing",
    "clientId",
)

_begin("Logs and disks")
SEGMENTS = _gauge("strandline_log_segments", "segments of all logs here")
SIZE = _gauge("strandline_log_size_bytes", "size of all logs here")
FLUSHES = _add(
    "kafka_log_logflushstats_logflushrateandtimems",
    Kind.SUMMARY,
    "how long flushes take (each of up to 32 logs), in milliseconds",
    (),
)
FLUSH_S = _add("strandline_log_flush_seconds", Kind.HISTOGRAM, "the same, since the start", ())
OFFLINE_DIRS = _gauge("kafka_log_logmanager_offlinelogdirectorycount", "log directories that failed")
DIR_OFFLINE = _gauge("kafka_log_logmanager_logdirectoryoffline", "1 if this one has failed", "logDirectory")
DIR_FULL = _gauge("strandline_log_dir_full", "1 if appends here are refused for lack of room", "logDirectory")
DIR_FREE = _gauge("strandline_log_dir_free_bytes", "free bytes of its file system", "logDirectory")
DIR_SIZE = _gauge("strandline_log_dir_total_bytes", "size of its file system", "logDirectory")
UNCLEANABLE = _gauge(
    "kafka_log_logcleanermanager_uncleanable_partitions_count",
    "logs that compaction leaves alone until the next start",
)
CLEANINGS = _count("strandline_cleaner_cleanings_total", "logs compacted")
CLEANINGS_GIVEN_UP = _count(
    "strandline_cleaner_given_up_total", "compactions given up: the log was truncated or deleted meanwhile"
)
CLEANING_FAILURES = _count("strandline_cleaner_failures_total", "compactions that failed")
CLEANED_BYTES = _count("strandline_cleaner_freed_bytes_total", "bytes that compaction has freed")

_begin("Requests")
REQUESTS = _count(f"{REQUEST}requests_total", "requests executed", "request", "version")
ERRORS = _count(
    f"{REQUEST}errors_total",
    "requests refused as a whole, and partitions of Produce and Fetch with an error",
    "request",
    "error",
)
TIMES = {
    phase: _add(f"{REQUEST}{name}", Kind.SUMMARY, help, ("request", "quantile"))
    for phase, name, help in (
        (
            "total",
            "totaltimems",
            "from its bytes to its answer, in milliseconds; quantiles of the last minute",
        ),
        ("queue", "requestqueuetimems", "of it: requests before it were executed"),
        ("local", "localtimems", "of it: it was executed"),
        (
            "remote",
            "remotetimems",
            "of it: it waited for replicas (Produce), for records (Fetch), for others",
        ),
        ("send", "responsesendtimems", "of it: its answer waited for answers before it, or for the peer"),
    )
}
REQUEST_S = _add(
    "strandline_request_seconds",
    Kind.HISTOGRAM,
    "the same for Produce, FetchConsumer and FetchFollower, since the start",
    ("request", "phase"),
)
PURGATORY = _gauge(
    "kafka_server_delayedoperationpurgatory_purgatorysize",
    "requests that wait: for replicas (Produce), for records (Fetch), or else (Other)",
    "delayedOperation",
)

_begin("Connections")
CONNECTIONS = _gauge(
    "kafka_server_socket_server_metrics_connection_count",
    "connections to a listener",
    "listener",
    "networkProcessor",
)
CONNECTIONS_OF = _gauge(
    "strandline_connections",
    "clients: to listeners for clients; brokers: to the listener between brokers (if it is the only one, "
    "clients too); controller: from this broker as the controller; web: to the HTTP server",
    "type",
)
OPENED = _count("strandline_connections_opened_total", "connections accepted")
CLOSED = _count("strandline_connections_closed_total", "connections that ended")
EXPIRED = _count("strandline_connections_expired_total", "connections closed because a deadline had passed")
MALFORMED = _count("strandline_requests_malformed_total", "requests that ended their connection")
NETWORK_IN = _count("strandline_network_bytes_in_total", "bytes received, all requests")
NETWORK_OUT = _count("strandline_network_bytes_out_total", "bytes sent, all answers")
PAUSED = _count(
    "strandline_reading_paused_total",
    "how often a connection was not read: its peer or its requests had to wait",
)
REQUEST_MEMORY = _gauge("strandline_request_memory_bytes", "of large requests of clients that are arriving")
REQUESTS_WAITING = _gauge(
    "strandline_requests_waiting_for_memory", "connections not read until queued.max.request.bytes permits it"
)

_begin("Consumer groups that this broker coordinates")
NUM_GROUPS = _gauge(f"{GROUPS}numgroups", "groups")
NUM_OFFSETS = _gauge(f"{GROUPS}numoffsets", "committed offsets")
GROUP_STATES = {
    state: _gauge(f"{GROUPS}numgroups{state.lower()}", f"groups of the classic protocol that are {state}")
    for state in ("PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Empty")
}
CONSUMER_PROTOCOL = _gauge("strandline_consumer_protocol_groups", "groups by the consumer protocol (KIP-848)")
OFFSETS_COMMITTED = _count("strandline_group_offset_commits_total", "offsets committed")
OFFSETS_EXPIRED = _count("strandline_group_offset_expirations_total", "offsets that expired")
OFFSETS_DELETED = _count(
    "strandline_group_offset_deletions_total", "offsets deleted with their topic or group"
)
REBALANCES = _count("strandline_group_rebalances_total", "rebalances completed, by protocol", "protocol")
LOADING = _gauge(
    "strandline_coordinator_loading_partitions",
    "partitions of an internal topic that are being read: until then the coordinator refuses",
    "coordinator",
)
LOAD_MAX = _gauge(
    "strandline_coordinator_load_seconds_max",
    "the longest load of such a partition since the start",
    "coordinator",
)
G_MEMBERS = _of_group("kafka_consumergroup_members", "members")
G_STATE = _of_group("strandline_consumergroup_state", "1 for the state that it is in", "state", "protocol")
G_GENERATION = _of_group(
    "strandline_consumergroup_generation", "its generation or epoch: what it rises by is rebalances"
)
G_OFFSET = _of_group("kafka_consumergroup_current_offset", "committed offset", "topic", "partition")
G_LAG = _of_group(
    "kafka_consumergroup_lag",
    "records from the committed offset to the high watermark of the replica here; absent without one",
    "topic",
    "partition",
)
G_LAG_SUM = _of_group(
    "kafka_consumergroup_lag_sum", "the same for all partitions that have a replica here", "topic"
)

_begin("Transactions that this broker coordinates")
TRANSACTIONAL_IDS = _gauge("strandline_transactional_ids", "transactional ids")
TRANSACTIONS_OPEN = _gauge("strandline_transactions_open", "transactions that are open")
TRANSACTION_AGE = _gauge(
    "strandline_transaction_oldest_seconds", "since when the oldest of them is open; 0: none"
)
TRANSACTIONS_PREPARED = _gauge("strandline_transactions_preparing", "decided, and markers are on their way")
MARKERS = _gauge("strandline_transaction_pending_markers", "partitions that have not been marked yet")
HOMELESS = _gauge(
    "kafka_coordinator_transaction_transactionmarkerchannelmanager_unknowndestinationqueuesize",
    "markers that wait for a leader",
)
COMMITS = _count("strandline_transaction_commits_total", "transactions committed")
ABORTS = _count("strandline_transaction_aborts_total", "transactions aborted")
TIMEOUTS = _count("strandline_transaction_timeouts_total", "of them because their time was over")
IDS_EXPIRED = _count("strandline_transactional_id_expirations_total", "transactional ids that expired")

_begin("The controller")
ACTIVE = _gauge(
    f"{CONTROLLER}activecontrollercount", "1 on the controller; the sum over all brokers must be 1"
)
EPOCH = _gauge(
    "strandline_controller_epoch", "the controller's epoch; only on the controller, as what follows"
)
OFFLINE = _gauge(f"{CONTROLLER}offlinepartitionscount", "partitions without a leader; 0 on other brokers")
IMBALANCE = _gauge(
    f"{CONTROLLER}preferredreplicaimbalancecount", "partitions led by another than their preferred replica"
)
ACTIVE_BROKERS = _gauge(f"{CONTROLLER}activebrokercount", "brokers that are registered and not suspected")
BROKERS = _gauge("kafka_brokers", "the same, under the name of kafka_exporter")
GLOBAL_TOPICS = _gauge(f"{CONTROLLER}globaltopiccount", "topics of the cluster")
GLOBAL_PARTITIONS = _gauge(f"{CONTROLLER}globalpartitioncount", "partitions of the cluster")
EVENTS = _gauge(
    "kafka_controller_controllereventmanager_eventqueuesize", "events that the controller has not handled yet"
)
TOPIC_PARTITIONS = _of_topic("kafka_topic_partitions", Kind.GAUGE, "partitions of the topic")
ELECTIONS = _add(
    "kafka_controller_controllerstats_leaderelectionrateandtimems",
    Kind.SUMMARY,
    "its `_count`: leaders elected by this broker as the controller",
    (),
)
LAST_ELECTION = _gauge(
    "strandline_controller_last_election_timestamp_seconds",
    "when it last elected one, in Unix time; absent: never",
)
UNCLEAN = _count(
    "kafka_controller_controllerstats_uncleanleaderelections_total",
    "of them outside the ISR: above 0 records are gone",
)
LOSSES = _count(
    "strandline_controller_potential_data_loss_total",
    "leaders elected without proof that their data is complete",
)
CHANNEL_FAILURES = _count(
    "strandline_controller_channel_failures_total", "channels to brokers that failed in a way nobody foresaw"
)
