"""The protocol's error codes, their meaning, which are retriable, and the exception that carries one.

An `ApiError` is an expected outcome: it is sent in the response, never logged as a fault.
Left to others: a class for each code that is caught by name (errors.py), which code fits which version of a
request, and responses made of errors (broker/handlers).
"""

from enum import IntEnum
from typing import ClassVar


class ErrorCode(IntEnum):
    """The codes with Kafka's names."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    INVALID_FETCH_SIZE = 4
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    STALE_CONTROLLER_EPOCH = 11
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    LOG_DIR_NOT_FOUND = 57
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    REASSIGNMENT_IN_PROGRESS = 60
    DELEGATION_TOKEN_AUTH_DISABLED = 61
    DELEGATION_TOKEN_NOT_FOUND = 62
    DELEGATION_TOKEN_OWNER_MISMATCH = 63
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65
    DELEGATION_TOKEN_EXPIRED = 66
    INVALID_PRINCIPAL_TYPE = 67
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    LISTENER_NOT_FOUND = 72
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    STALE_BROKER_EPOCH = 77
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNACCEPTABLE_CREDENTIAL = 93
    INCONSISTENT_VOTER_SET = 94
    INVALID_UPDATE_VERSION = 95
    FEATURE_UPDATE_FAILED = 96
    PRINCIPAL_DESERIALIZATION_FAILURE = 97
    SNAPSHOT_NOT_FOUND = 98
    POSITION_OUT_OF_RANGE = 99
    UNKNOWN_TOPIC_ID = 100
    DUPLICATE_BROKER_REGISTRATION = 101
    BROKER_ID_NOT_REGISTERED = 102
    INCONSISTENT_TOPIC_ID = 103
    INCONSISTENT_CLUSTER_ID = 104
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FETCH_SESSION_TOPIC_ID_ERROR = 106
    INELIGIBLE_REPLICA = 107
    NEW_LEADER_ELECTED = 108
    OFFSET_MOVED_TO_TIERED_STORAGE = 109
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115
    UNKNOWN_CONTROLLER_ID = 116
    UNKNOWN_SUBSCRIPTION_ID = 117
    TELEMETRY_TOO_LARGE = 118
    INVALID_REGISTRATION = 119
    TRANSACTION_ABORTABLE = 120
    INVALID_RECORD_STATE = 121
    SHARE_SESSION_NOT_FOUND = 122
    INVALID_SHARE_SESSION_EPOCH = 123
    FENCED_STATE_EPOCH = 124
    INVALID_VOTER_KEY = 125
    DUPLICATE_VOTER = 126
    VOTER_NOT_FOUND = 127
    INVALID_REGULAR_EXPRESSION = 128

    @property
    def retriable(self) -> bool:
        """Whether the same request may succeed a little later, perhaps at another broker."""
        return self in RETRIABLE

    @property
    def meaning(self) -> str:
        """One sentence for people."""
        return MEANINGS[self]


RETRIABLE = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)


MEANINGS: dict[ErrorCode, str] = {
    ErrorCode.UNKNOWN_SERVER_ERROR: "the broker met an unexpected error",
    ErrorCode.NONE: "no error",
    ErrorCode.OFFSET_OUT_OF_RANGE: "the offset is out of the partition's range",
    ErrorCode.CORRUPT_MESSAGE: "a batch fails its checksum or is otherwise corrupt",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "this broker does not know the topic or partition",
    ErrorCode.INVALID_FETCH_SIZE: "the fetch size is invalid",
    ErrorCode.LEADER_NOT_AVAILABLE: "the partition has no leader at the moment",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "this broker is neither leader nor follower of the partition",
    ErrorCode.REQUEST_TIMED_OUT: "the request timed out",
    ErrorCode.BROKER_NOT_AVAILABLE: "the broker is not available",
    ErrorCode.REPLICA_NOT_AVAILABLE: "this broker holds no replica of the partition",
    ErrorCode.MESSAGE_TOO_LARGE: "a batch is larger than the topic's max.message.bytes",
    ErrorCode.STALE_CONTROLLER_EPOCH: "the request's controller has been replaced by a newer one",
    ErrorCode.OFFSET_METADATA_TOO_LARGE: "the metadata string of the offset is too long",
    ErrorCode.NETWORK_EXCEPTION: "the connection ended before the answer",
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "the coordinator is still loading its partition",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "there is no coordinator at the moment",
    ErrorCode.NOT_COORDINATOR: "this broker does not coordinate the group",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "the topic has an invalid name or does not allow this operation",
    ErrorCode.RECORD_LIST_TOO_LARGE: "the batch is larger than segment.bytes",
    ErrorCode.NOT_ENOUGH_REPLICAS: "Messages are rejected since there are fewer in-sync replicas "
    "than required.",
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: "Messages are written to the log, but to fewer in-sync "
    "replicas than required.",
    ErrorCode.INVALID_REQUIRED_ACKS: "acks must be -1, 0 or 1",
    ErrorCode.ILLEGAL_GENERATION: "the generation is not the group's current one",
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: "the member has no protocol in common with its group",
    ErrorCode.INVALID_GROUP_ID: "the group id is invalid",
    ErrorCode.UNKNOWN_MEMBER_ID: "the group has no such member",
    ErrorCode.INVALID_SESSION_TIMEOUT: "the session timeout is outside group.(min,max).session.timeout.ms",
    ErrorCode.REBALANCE_IN_PROGRESS: "the group is rebalancing, rejoin",
    ErrorCode.INVALID_COMMIT_OFFSET_SIZE: "the committed offset and its metadata are too large",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "not authorized to access the topic",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "not authorized to access the group",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "not authorized to access the cluster",
    ErrorCode.INVALID_TIMESTAMP: "a record's timestamp is outside the topic's bounds",
    ErrorCode.UNSUPPORTED_SASL_MECHANISM: "the SASL mechanism is not supported",
    ErrorCode.ILLEGAL_SASL_STATE: "the request is not valid in this SASL state",
    ErrorCode.UNSUPPORTED_VERSION: "this version of the request is not supported",
    ErrorCode.TOPIC_ALREADY_EXISTS: "the topic exists already",
    ErrorCode.INVALID_PARTITIONS: "the number of partitions is invalid",
    ErrorCode.INVALID_REPLICATION_FACTOR: "the replication factor is invalid",
    ErrorCode.INVALID_REPLICA_ASSIGNMENT: "the replica assignment is invalid",
    ErrorCode.INVALID_CONFIG: "a setting is invalid",
    ErrorCode.NOT_CONTROLLER: "this broker is not the controller",
    ErrorCode.INVALID_REQUEST: "the request is invalid",
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: "the record format does not support this",
    ErrorCode.POLICY_VIOLATION: "a policy of the cluster forbids it",
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: "the batch's sequence is not the next one of its producer",
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER: "the producer's batch was already appended",
    ErrorCode.INVALID_PRODUCER_EPOCH: "a newer producer with the same id has taken over",
    ErrorCode.INVALID_TXN_STATE: "the transaction is in the wrong state for this",
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: "the transactional id has another producer id",
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: "the transaction's timeout is larger than the broker allows",
    ErrorCode.CONCURRENT_TRANSACTIONS: "the previous transaction is still being completed",
    ErrorCode.TRANSACTION_COORDINATOR_FENCED: "a newer transaction coordinator has taken over",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "not authorized to use the transactional id",
    ErrorCode.SECURITY_DISABLED: "security features are disabled",
    ErrorCode.OPERATION_NOT_ATTEMPTED: "not attempted, because another part of the request failed",
    ErrorCode.KAFKA_STORAGE_ERROR: "the broker's disk failed",
    ErrorCode.LOG_DIR_NOT_FOUND: "the broker has no such log directory",
    ErrorCode.SASL_AUTHENTICATION_FAILED: "SASL authentication failed",
    ErrorCode.UNKNOWN_PRODUCER_ID: "the broker has no state for the producer id",
    ErrorCode.REASSIGNMENT_IN_PROGRESS: "the partition is being reassigned",
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: "delegation tokens are disabled",
    ErrorCode.DELEGATION_TOKEN_NOT_FOUND: "the delegation token does not exist",
    ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH: "the delegation token belongs to another principal",
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: "delegation tokens are not available on this connection",
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: "not authorized to use the delegation token",
    ErrorCode.DELEGATION_TOKEN_EXPIRED: "the delegation token has expired",
    ErrorCode.INVALID_PRINCIPAL_TYPE: "this type of principal is not supported",
    ErrorCode.NON_EMPTY_GROUP: "the group is not empty",
    ErrorCode.GROUP_ID_NOT_FOUND: "the group does not exist",
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND: "the fetch session does not exist",
    ErrorCode.INVALID_FETCH_SESSION_EPOCH: "the fetch session is at another epoch",
    ErrorCode.LISTENER_NOT_FOUND: "the leader lacks the listener that the request came through",
    ErrorCode.TOPIC_DELETION_DISABLED: "topic deletion is disabled (delete.topic.enable)",
    ErrorCode.FENCED_LEADER_EPOCH: "the leader epoch in the request is older than the broker's",
    ErrorCode.UNKNOWN_LEADER_EPOCH: "the leader epoch in the request is newer than the broker's",
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: "this request version does not support the compression codec",
    ErrorCode.STALE_BROKER_EPOCH: "the broker epoch in the request is not this broker's",
    ErrorCode.OFFSET_NOT_AVAILABLE: "the new leader does not know its high watermark yet",
    ErrorCode.MEMBER_ID_REQUIRED: "rejoin with the member id of this response",
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: "the preferred leader is not available",
    ErrorCode.GROUP_MAX_SIZE_REACHED: "the group has group.max.size members",
    ErrorCode.FENCED_INSTANCE_ID: "another member uses the same instance id",
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: "no replica is eligible as leader",
    ErrorCode.ELECTION_NOT_NEEDED: "the partition already has the requested leader",
    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS: "the partition is not being reassigned",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "the group is subscribed to the topic",
    ErrorCode.INVALID_RECORD: "the broker refused the record and its batch",
    ErrorCode.UNSTABLE_OFFSET_COMMIT: "the offset is part of an open transaction",
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: "the throttling quota is exceeded",
    ErrorCode.PRODUCER_FENCED: "a newer producer with the same transactional id has taken over",
    ErrorCode.RESOURCE_NOT_FOUND: "the resource does not exist",
    ErrorCode.DUPLICATE_RESOURCE: "the same resource is named twice",
    ErrorCode.UNACCEPTABLE_CREDENTIAL: "the credential does not meet the requirements",
    ErrorCode.INCONSISTENT_VOTER_SET: "the voters of the metadata quorum differ",
    ErrorCode.INVALID_UPDATE_VERSION: "the update version is invalid",
    ErrorCode.FEATURE_UPDATE_FAILED: "the features could not be changed",
    ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE: "the forwarded principal cannot be deserialized",
    ErrorCode.SNAPSHOT_NOT_FOUND: "the snapshot does not exist",
    ErrorCode.POSITION_OUT_OF_RANGE: "the position is out of the snapshot's range",
    ErrorCode.UNKNOWN_TOPIC_ID: "this broker does not know the topic id",
    ErrorCode.DUPLICATE_BROKER_REGISTRATION: "another live broker is registered with this id",
    ErrorCode.BROKER_ID_NOT_REGISTERED: "no broker is registered with this id",
    ErrorCode.INCONSISTENT_TOPIC_ID: "the topic id is not that of the log",
    ErrorCode.INCONSISTENT_CLUSTER_ID: "the request is meant for another cluster",
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "the transactional id does not exist",
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR: "the fetch session mixes names and ids of topics",
    ErrorCode.INELIGIBLE_REPLICA: "the new ISR has an ineligible replica",
    ErrorCode.NEW_LEADER_ELECTED: "the request was completed and changed the leader",
    ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE: "the offset is in tiered storage",
    ErrorCode.FENCED_MEMBER_EPOCH: "the member epoch is not the coordinator's",
    ErrorCode.UNRELEASED_INSTANCE_ID: "another member still holds the instance id",
    ErrorCode.UNSUPPORTED_ASSIGNOR: "the coordinator does not support the assignor",
    ErrorCode.STALE_MEMBER_EPOCH: "the member epoch is out of date",
    ErrorCode.MISMATCHED_ENDPOINT_TYPE: "the request went to the wrong kind of endpoint",
    ErrorCode.UNSUPPORTED_ENDPOINT_TYPE: "this kind of endpoint is not supported",
    ErrorCode.UNKNOWN_CONTROLLER_ID: "no controller is registered with this id",
    ErrorCode.UNKNOWN_SUBSCRIPTION_ID: "the telemetry subscription is out of date",
    ErrorCode.TELEMETRY_TOO_LARGE: "the telemetry is larger than the broker accepts",
    ErrorCode.INVALID_REGISTRATION: "the registration is invalid",
    ErrorCode.TRANSACTION_ABORTABLE: "the transaction cannot go on, but the producer can abort it",
    ErrorCode.INVALID_RECORD_STATE: "the record is in another state than the share group acknowledges",
    ErrorCode.SHARE_SESSION_NOT_FOUND: "the share session is not found",
    ErrorCode.INVALID_SHARE_SESSION_EPOCH: "the share session has another epoch",
    ErrorCode.FENCED_STATE_EPOCH: "the share coordinator has a newer state epoch",
    ErrorCode.INVALID_VOTER_KEY: "the key of the voter does not match",
    ErrorCode.DUPLICATE_VOTER: "the voter is one already",
    ErrorCode.VOTER_NOT_FOUND: "there is no such voter",
    ErrorCode.INVALID_REGULAR_EXPRESSION: "the regular expression is not valid",
}


MESSAGE_MAX = 4_000
"""Characters of a message, which may quote what was asked. It has to fit in a string of the oldest responses,
whose 32,767 bytes hold twice as many characters of any kind.
"""


class ApiError(Exception):
    """A request failed for a reason that the protocol has a code for."""

    code: ErrorCode = ErrorCode.UNKNOWN_SERVER_ERROR
    by_code: ClassVar[dict[ErrorCode, type["ApiError"]]] = {}

    def __init__(self, message: str | None = None, *, code: ErrorCode | None = None) -> None:
        if code is not None:
            self.code = code
        self.message = self.code.meaning if message is None else _shortened(message)
        super().__init__(self.message)

    def __init_subclass__(cls) -> None:
        if "code" in cls.__dict__:  # not for subclasses that are special cases of an error
            ApiError.by_code[cls.code] = cls

    @property
    def retriable(self) -> bool:
        """Whether the same request may succeed a little later, perhaps at another broker."""
        return self.code.retriable

    def __str__(self) -> str:
        return f"{self.code.name}: {self.message}"


def _shortened(message: str) -> str:
    """Without its middle, where the quotation is: the reason stands at its end."""
    if len(message) <= MESSAGE_MAX:
        return message
    half = (MESSAGE_MAX - 1) // 2
    return f"{message[:half]}…{message[-half:]}"


def error_for(code: int, message: str | None = None) -> ApiError:
    """The exception for `code`, of its own class if there is one; an unknown code is UNKNOWN_SERVER_ERROR."""
    try:
        known = ErrorCode(code)
    except ValueError:
        return error_for(ErrorCode.UNKNOWN_SERVER_ERROR, message or f"error code {code}")
    cls = ApiError.by_code.get(known)
    return ApiError(message, code=known) if cls is None else cls(message)
