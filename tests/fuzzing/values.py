"""Plausible values of fields: names that exist nowhere or nearly, settings with values of each kind, numbers
that mean something, enumerations with what is beside them. All of it is fixed; what exists at the broker is
known.py's. Left to others: which fields get which (plausible.py).
"""

from typing import Any, Literal, get_args, get_origin

import msgpack

from strandline.base.log_levels import NUMBERS
from strandline.base.options import Option
from strandline.broker.config.addresses import ADVERTISED
from strandline.broker.config.broker import OPTIONS
from strandline.broker.config.dynamic import DIRECTORIES_RATE, LAGS, LISTS, THROTTLED_REPLICAS
from strandline.broker.config.files import NO_EFFECT, OTHER_NAMES
from strandline.broker.config.groups import GROUP_OPTIONS
from strandline.storage.config import TOPIC_OPTIONS
from strandline.storage.idle_settings import IDLE

INT8_MAX, INT16_MAX, INT32_MAX, INT64_MAX = (1 << 7) - 1, (1 << 15) - 1, (1 << 31) - 1, (1 << 63) - 1

# --- names -----------------------------------------------------------------------------------------

ODD_NAMES = (
    "", ".", "..", "...", "../t", "./t", "t/..", "/", "//", "/brokers", "t/partitions", "a\0", "\0", "a\n",
    "a ",
    " ", "a\x7f", "\x1b[31m", "a\u0085", "é", "名前", "😀", "\uf8ff", "%2E", "%2e%2e", "%", "%00", "%zz",
    "a:b",
    "a,b", "*", "<default>", "null", "None", "-1", "00", "x" * 248, "x" * 249, "x" * 250, "é" * 124,
    "é" * 125,
    "." * 249, "z" * 3_000, "q" * 32_767, "é" * 16_383, "stil", "Still", "victim.0", "victim_0", "_", "-",
)  # fmt: skip
"""Of topics, groups, transactional ids and all else: paths in ZooKeeper and on disks are made of some."""
CLIENT_IDS = ("", "é", "a\n\0", "c" * 32_767, None)
INTERNAL = ("__consumer_offsets", "__transaction_state")
MADE = ("made-1", "made-2", "made.3", "made_3", "m" * 249, "x" * 249)
"""Topics that requests make and delete."""
NO_RESOURCES = ("0", "3", "01", "+1", " 1", "1 ", "-1", "2147483647", "2147483648", "9" * 5_000, "١", "²")

# --- settings --------------------------------------------------------------------------------------

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
KINDS = (TOPIC, TOPIC, TOPIC, BROKER, BROKER, BROKER, BROKER, GROUP, GROUP, LOGGER, METRICS)
UNALTERED = (LOGGER, METRICS)  # not by AlterConfigs
NO_KINDS = (0, 1, 3, 64, -1, INT8_MAX, -INT8_MAX - 1)
OPERATIONS = (0, 0, 0, 0, 1, 1, 2, 2, 3, 3)
OF_LISTS = (2, 3)
NO_OPERATIONS = (4, -1, INT8_MAX, -INT8_MAX - 1)
LOGGERS = (
    "root", "strandline", "strandline.broker", "strandline.broker.node",
    "strandline.controller.requests.configs",
)  # fmt: skip
OF_TOPICS = (*TOPIC_OPTIONS, *IDLE)
OF_BROKERS = (
    *(name for name, place in OPTIONS.items() if not place.option.restart), DIRECTORIES_RATE,
)  # fmt: skip
AT_STARTS = tuple(name for name, place in OPTIONS.items() if place.option.restart)
OF_METRICS = ("interval.ms", "metrics", "match")
OF_NOBODY = (
    "",
    "no.such.setting",
    "a=b",
    "\0",
    "é" * 300,
    ".",
    "..",
    *sorted(OTHER_NAMES),
    *sorted(NO_EFFECT)[:20],
)
LIST_SETTINGS = (*sorted(LISTS | THROTTLED_REPLICAS), "log.dirs", ADVERTISED)
LISTS_OF = {
    TOPIC: ("cleanup.policy", *sorted(THROTTLED_REPLICAS)),
    BROKER: ("log.cleanup.policy", ADVERTISED, "log.cleanup.policy", "cleanup.policy"),
}
SPECIAL = (
    *sorted(LISTS | THROTTLED_REPLICAS | LAGS),
    ADVERTISED,
    *[DIRECTORIES_RATE] * 4,
)
"""The code says something of them that it says of no other: lists, pairs, one that does nothing."""
NAMES: dict[int, tuple[str, ...]] = {
    TOPIC: OF_TOPICS,
    BROKER: OF_BROKERS,
    LOGGER: LOGGERS,
    METRICS: OF_METRICS,
    GROUP: tuple(GROUP_OPTIONS),
}
ALL_NAMES = (*OF_TOPICS, *OF_BROKERS, *AT_STARTS, *LOGGERS, *OF_METRICS, *GROUP_OPTIONS)

NO_VALUES = (
    "", " ", "null", "None", "-1", "-2", "0", "1", "x", "true", "1.5", "1e3", "0x10", "+1", " 5 ", "1_000",
    "١", "nan",
    "inf", "1e400", "-0", "9" * 19, "9" * 20, "9" * 5_000, "-" + "9" * 5_000, ",", ",,", "a,b", "*", "\0",
    "é",
    '"', "{}", "y" * 30_000, str(INT32_MAX), str(INT32_MAX + 1), str(INT64_MAX), str(INT64_MAX + 1),
    str(-INT64_MAX - 1),
)  # fmt: skip
TRUTHS = ("true", "false", "TRUE", " false ", "yes", "1", "")
POLICIES = (
    "delete",
    "compact",
    "delete,compact",
    "compact, delete",
    "delete,delete",
    "",
    ",",
    "compact,",
    "remove",
)
LONG_LISTS = tuple(",".join(f"{number}:{broker}" for number in range(4_500)) for broker in (1, 2))
"""As long as they may be; together they are too long."""
REPLICA_LISTS = (
    "*", "none", "0:1", "0:1,1:1", "0:2,1:1", "0:1,", "0", ":", "0:-1", "0:" + "9" * 30, "9" * 30 + ":1", "",
    *LONG_LISTS, *LONG_LISTS, *LONG_LISTS,
)  # fmt: skip
FEW = {
    "num.partitions": (1, 2, 3, 0, -1, 200_000, INT32_MAX),
    "default.replication.factor": (1, 2, 3, 0, -1, 4),
}
"""Of these, more would be made than a run has time for."""
LEVELS = (*(level for level in NUMBERS if level != "FATAL"), "info", "WARNING", "OFF", "")
"""FATAL would hide what the run looks for."""
OF_OPTIONS: dict[str, Option] = (
    {name: place.option for name, place in OPTIONS.items()} | TOPIC_OPTIONS | GROUP_OPTIONS
)


def values_of(name: str) -> tuple[str, ...]:
    """Values that this setting may have, or nearly may."""
    if name in LOGGERS:
        return LEVELS
    if name in FEW:
        return tuple(map(str, FEW[name]))
    if name in THROTTLED_REPLICAS:
        return REPLICA_LISTS
    if name.endswith("cleanup.policy"):
        return POLICIES
    if name == ADVERTISED:
        return ("", ",", "X://h:1", "CLIENT://:1", "://", "PLAINTEXT://[::1]:99999", "CLIENT")
    option, idle = OF_OPTIONS.get(name), IDLE.get(name)
    if option is None:
        return (idle.default, "true", "false", "-1", "-2", "3.0") if idle else ("1", "a", "")
    if option.type is bool:
        return TRUTHS
    if get_origin(option.type) is Literal:
        return (*get_args(option.type), str(option.default).upper(), "")
    if option.type in (int, float):
        return tuple(map(str, _numbers(option)))
    return (str(option.default), "", "a,b")


def _numbers(option: Option) -> list[Any]:
    """The option's default, its bounds, what is beside them, and what lies between."""
    bounds = [int(each) if abs(each) < 1e300 else each for each in option.bounds.values()]
    found = [option.default, *bounds, *(each - 1 for each in bounds), *(each + 1 for each in bounds)]
    found += [each for each in (0, 1, 2, 50, 1_000_000, 0.5) if option.type is float or isinstance(each, int)]
    return found


VALUES: dict[str, tuple[str, ...]] = {name: values_of(name) for name in ALL_NAMES}
SOME_VALUES = (
    *NO_VALUES,
    *TRUTHS,
    *POLICIES,
    *REPLICA_LISTS,
    "lz4",
    "zstd",
    "gzip",
    "uniform",
    "classic,consumer",
)

PIECES_OF_EXPRESSIONS = (
    "still", "victim", "made", "s", ".", ".*", ".+", "*", "+", "?", "*?", "++", "^", "$", "|", "(", ")",
    "(?:", "(?i)",
    "(?-i:", "(?<n>", "(?P<n>", "(?=", "(?<!", "\\", "\\d", "\\W", "\\b", "\\1", "\\x41", "\\x{1F600}",
    "\\p{L}",
    "\\p{Nope}", "\\Q", "\\E", "\\0", "\\u0041", "[", "]", "[^", "[a-z]", "[z-a]", "[[:alpha:]]",
    "[a&&[b]]", "-", "{",
    "}", "{2}", "{,2}", "{2,}", "{3,2}", "{99999}", "{1,1000}", "{0}", "é", "\0", "\n", "_", "1",
)  # fmt: skip

# --- numbers and enumerations ----------------------------------------------------------------------

PARTITIONS = (0, 0, 0, 0, 1, 1, 1, 2, 5, -1, INT32_MAX, -INT32_MAX - 1)
EPOCHS = (-1, -1, 0, 0, 1, 2, 5, INT32_MAX, -2, -INT32_MAX - 1)
OFFSETS = (0, 0, 1, 5, 100, -1, -2, -3, -4, -5, -6, INT64_MAX, -INT64_MAX - 1)
TIMES = (*OFFSETS, 1_700_000_000_000, 4_000_000_000_000)
COUNTS = (-1, 0, 1, 2, 3, 4, 5, -INT32_MAX - 1, INT32_MAX, 200_000)
FACTORS = (-1, -1, 1, 1, 2, 3, 0, 4, -2, INT16_MAX, -INT16_MAX - 1)
SUBJECTS = ("broker", "led", "bounds", "groups", "group", "newest", "history")
ARGUMENTS: tuple[dict[Any, Any], ...] = (
    {}, {"search": ""}, {"search": "g"}, {"search": 1}, {"name": "g"}, {"name": None}, {"limit": 5},
    {"limit": -1},
    {"limit": "x"}, {"limit": None}, {"limit": 1e300}, {"partitions": []}, {"partitions": [["victim", 0]]},
    {"partitions": [["still", 0], ["nobody", 7]]}, {"partitions": [["victim", "0"]]},
    {"partitions": [["victim"]]},
    {"partitions": [[1, 2, 3]]}, {"partitions": "victim"}, {"partitions": None}, {"partitions": [{}]}, {1: 2},
    {"topics": ["victim"]}, {"topics": 5}, {"partitions": [["..", -1]]}, {"partitions": [["victim",
    1 << 63]]},
)  # fmt: skip
QUESTIONS: tuple[Any, ...] = (
    *({subject: arguments} for subject in SUBJECTS for arguments in ARGUMENTS),
    {}, [], 5, None, {"x": {}}, {"led": []}, {"led": None}, {1: {}}, {"led": {}, "x": {}}, {b"led": {}},
)  # fmt: skip
ENUMERATIONS: dict[tuple[str, str], tuple[Any, ...]] = {
    **{
        (f"{each}Request", "validate_only"): (False, False, False, True)
        for each in ("CreateTopics", "CreatePartitions", "AlterConfigs", "IncrementalAlterConfigs")
    },
    ("FetchRequest", "isolation_level"): (0, 1, 2, -1),
    ("ListOffsetsRequest", "isolation_level"): (0, 1, 2, -1),
    ("ListOffsetsPartition", "timestamp"): TIMES,
    ("FetchRequest", "replica_id"): (-1, -1, -1, -2, 0, 1, 2, 3),
    ("ReplicaState", "replica_id"): (-1, -1, -2, 0, 1, 2, 3),
    ("ListOffsetsRequest", "replica_id"): (-1, -1, -2, 0, 1, 2),
    ("OffsetForLeaderEpochRequest", "replica_id"): (-1, -1, -2, 0, 1, 2),
    ("FetchRequest", "session_epoch"): (-1, 0, 0, 1, 2, INT32_MAX),
    ("FindCoordinatorRequest", "key_type"): (0, 0, 1, 1, 2, -1),
    ("ElectLeadersRequest", "election_type"): (0, 0, 1, 1, 2, -1),
    ("DescribeClusterRequest", "endpoint_type"): (1, 1, 0, 2, 3, -1),
    ("ListConfigResourcesRequest", "resource_types"): (*KINDS, *NO_KINDS),
    ("FeatureUpdateKey", "upgrade_type"): (1, 2, 3, 0, 4, -1),
    ("FeatureUpdateKey", "max_version_level"): (0, 1, 20, -1, INT16_MAX),
    ("FeatureUpdateKey", "feature"): ("metadata.version", "group.version", "kraft.version", "", "x"),
    ("ListGroupsRequest", "states_filter"): (
        "Empty", "Stable", "stable", "Dead", "PreparingRebalance", "CompletingRebalance", "Assigning",
        "Reconciling",
        "", "x",
    ),
    ("ListGroupsRequest", "types_filter"): ("classic", "consumer", "Consumer", "share", "", "x"),
    ("ListTransactionsRequest", "state_filters"): (
        "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead",
        "ongoing", "",
    ),
    ("ListTransactionsRequest", "duration_filter"): (-1, 0, 1, INT64_MAX, -2, -INT64_MAX - 1),
    ("ConsumerGroupHeartbeatRequest", "member_epoch"): (0, 0, 0, 1, 2, -1, -2, -3, INT32_MAX),
    ("ConsumerGroupHeartbeatRequest", "server_assignor"): ("uniform", "range", "", "Uniform", "sticky"),
    ("ConsumerGroupHeartbeatRequest", "subscribed_topic_regex"): (
        ".*", "s.*", "^still$", "(", "[", "a{99999}", "(a+)+$", "", "\\", "(?i)STILL", "(?<=s)t",
        "\\p{L}+", "x" * 3_000,
        "*", "\0",
    ),
    ("InspectRequest", "about"): (
        "partition", "metrics", "overview", "process", "web", "recorder", "removals", "removed", "", "x",
    ),
    ("InspectRequest", "limit"): (0, 1, -1, INT32_MAX, -INT32_MAX - 1),
    ("InspectRequest", "position"): OFFSETS,
    ("InspectRequest", "questions"): (
        *(msgpack.packb(each) for each in QUESTIONS), b"", b"\xc1", b"\xdf\xff\xff\xff\xff",
    ),
    ("ProduceRequest", "acks"): (-1, -1, 1, 1, 2, -2),
    ("DeleteTopicsRequest", "topic_names"): (*MADE, *MADE, *MADE, *MADE, *INTERNAL, "victim", "..", ""),
    ("DeleteRecordsPartition", "offset"): OFFSETS,
    ("OffsetCommitRequestPartition", "committed_offset"): OFFSETS,
    ("TxnOffsetCommitRequestPartition", "committed_offset"): OFFSETS,
    ("OffsetCommitRequest", "retention_time_ms"): (-1, 0, 1, INT64_MAX, -INT64_MAX - 1),
    ("WritableTxnMarker", "coordinator_epoch"): EPOCHS,
    ("InitProducerIdRequest", "producer_epoch"): (-1, 0, 1, INT16_MAX, INT16_MAX - 1),
    ("CreatePartitionsTopic", "grows_from"): (-1, 0, 1, 2),
}  # fmt: skip
"""What a field may say, and what it just may not."""
