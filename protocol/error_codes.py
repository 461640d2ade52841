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
    ErrorCode.UNKNOWN_SERVER_ERROR: "the broker met an error that it did not expect",
    ErrorCode.NONE: "no error",
    ErrorCode.OFFSET_OUT_OF_RANGE: "the offset lies outside of what the partition holds",
    ErrorCode.CORRUPT_MESSAGE: "a batch does not match its checksum or is damaged otherwise",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "this broker knows no such topic or partition",
    ErrorCode.INVALID_FETCH_SIZE: "the fetch size is not valid",
    ErrorCode.LEADER_NOT_AVAILABLE: "the partition has no leader at the moment",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "this broker is neither leader nor follower of the partition",
    ErrorCode.REQUEST_TIMED_OUT: "the request was not completed in its time",
    ErrorCode.BROKER_NOT_AVAILABLE: "the broker is not available",
    ErrorCode.REPLICA_NOT_AVAILABLE: "this broker holds no replica of the partition",
    ErrorCode.MESSAGE_TOO_LARGE: "a batch is larger than the topic allows",
    ErrorCode.STALE_CONTROLLER_EPOCH: "the controller that asks has been succeeded by another",
    ErrorCode.OFFSET_METADATA_TOO_LARGE: "the text stored with an offset is too long",
    ErrorCode.NETWORK_EXCEPTION: "the connection ended before the answer",
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "the coordinator is still reading what it shall coordinate",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "there is no coordinator at the moment",
    ErrorCode.NOT_COORDINATOR: "this broker does not coordinate the group",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "the topic cannot have this name or be used like this",
    ErrorCode.RECORD_LIST_TOO_LARGE: "the batch is larger than a segment",
    ErrorCode.NOT_ENOUGH_REPLICAS: "Messages are rejected since there are fewer in-sync replicas "
    "than required.",
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: "Messages are written to the log, but to fewer in-sync "
    "replicas than required.",
    ErrorCode.INVALID_REQUIRED_ACKS: "acks must be -1, 0 or 1",
    ErrorCode.ILLEGAL_GENERATION: "the group has moved on to another generation",
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: "the member shares no protocol with the others of its group",
    ErrorCode.INVALID_GROUP_ID: "the group id is not valid",
    ErrorCode.UNKNOWN_MEMBER_ID: "the group has no such member",
    ErrorCode.INVALID_SESSION_TIMEOUT: "the session timeout is outside of the broker's bounds",
    ErrorCode.REBALANCE_IN_PROGRESS: "the group is forming its next generation, join again",
    ErrorCode.INVALID_COMMIT_OFFSET_SIZE: "the committed offset and its text are too large",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "not allowed on this topic",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "not allowed on this group",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "not allowed on this cluster",
    ErrorCode.INVALID_TIMESTAMP: "a record's timestamp is outside of what the topic accepts",
    ErrorCode.UNSUPPORTED_SASL_MECHANISM: "the SASL mechanism is not supported",
    ErrorCode.ILLEGAL_SASL_STATE: "the request does not fit the state of authentication",
    ErrorCode.UNSUPPORTED_VERSION: "this version of the request is not supported",
    ErrorCode.TOPIC_ALREADY_EXISTS: "there is a topic of this name",
    ErrorCode.INVALID_PARTITIONS: "the number of partitions is not valid",
    ErrorCode.INVALID_REPLICATION_FACTOR: "the replication factor is not valid",
    ErrorCode.INVALID_REPLICA_ASSIGNMENT: "the assignment of replicas is not valid",
    ErrorCode.INVALID_CONFIG: "a setting is not valid",
    ErrorCode.NOT_CONTROLLER: "this broker is not the controller",
    ErrorCode.INVALID_REQUEST: "the request contradicts itself or the protocol",
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: "the record format does not support this",
    ErrorCode.POLICY_VIOLATION: "a policy of this cluster forbids it",
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: "batches of the producer are missing before this one",
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER: "the producer's batch was appended before",
    ErrorCode.INVALID_PRODUCER_EPOCH: "a newer producer of the same id has taken over",
    ErrorCode.INVALID_TXN_STATE: "the transaction is not in a state for this",
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: "the producer id does not belong to the transactional id",
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: "the transaction's timeout is larger than the broker allows",
    ErrorCode.CONCURRENT_TRANSACTIONS: "the transaction before this one is still being completed",
    ErrorCode.TRANSACTION_COORDINATOR_FENCED: "a newer transaction coordinator has taken over",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "not allowed on this transactional id",
    ErrorCode.SECURITY_DISABLED: "security features are not in use",
    ErrorCode.OPERATION_NOT_ATTEMPTED: "not tried, because another part of the request failed",
    ErrorCode.KAFKA_STORAGE_ERROR: "the broker's disk failed",
    ErrorCode.LOG_DIR_NOT_FOUND: "the broker has no such log directory",
    ErrorCode.SASL_AUTHENTICATION_FAILED: "the credentials were refused",
    ErrorCode.UNKNOWN_PRODUCER_ID: "nothing is known of the producer id any more",
    ErrorCode.REASSIGNMENT_IN_PROGRESS: "the partition is being moved",
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: "delegation tokens are not in use",
    ErrorCode.DELEGATION_TOKEN_NOT_FOUND: "there is no such delegation token",
    ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH: "the delegation token belongs to somebody else",
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: "no delegation tokens are given on this connection",
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: "not allowed on this delegation token",
    ErrorCode.DELEGATION_TOKEN_EXPIRED: "the delegation token has expired",
    ErrorCode.INVALID_PRINCIPAL_TYPE: "this type of principal is not supported",
    ErrorCode.NON_EMPTY_GROUP: "the group has members",
    ErrorCode.GROUP_ID_NOT_FOUND: "there is no such group",
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND: "there is no such fetch session",
    ErrorCode.INVALID_FETCH_SESSION_EPOCH: "the fetch session is at another epoch",
    ErrorCode.LISTENER_NOT_FOUND: "the leader has no listener like the one asked",
    ErrorCode.TOPIC_DELETION_DISABLED: "this cluster does not delete topics",
    ErrorCode.FENCED_LEADER_EPOCH: "the leader epoch in the request is older than the broker's",
    ErrorCode.UNKNOWN_LEADER_EPOCH: "the leader epoch in the request is newer than the broker's",
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: "this version of the request does not carry that compression",
    ErrorCode.STALE_BROKER_EPOCH: "the request is meant for another incarnation of the broker",
    ErrorCode.OFFSET_NOT_AVAILABLE: "the new leader does not know yet what is committed",
    ErrorCode.MEMBER_ID_REQUIRED: "join again with the member id given here",
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: "the preferred leader is not available",
    ErrorCode.GROUP_MAX_SIZE_REACHED: "the group is full",
    ErrorCode.FENCED_INSTANCE_ID: "another member uses the same instance id",
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: "no replica may become leader",
    ErrorCode.ELECTION_NOT_NEEDED: "the leader is the right one already",
    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS: "the partition is not being moved",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "the group reads this topic now",
    ErrorCode.INVALID_RECORD: "the broker refused the batch as a whole",
    ErrorCode.UNSTABLE_OFFSET_COMMIT: "offsets of an open transaction are not settled yet",
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: "too many changes in a short time",
    ErrorCode.PRODUCER_FENCED: "a newer producer of the same transactional id has taken over",
    ErrorCode.RESOURCE_NOT_FOUND: "there is no such resource",
    ErrorCode.DUPLICATE_RESOURCE: "the same resource is named twice",
    ErrorCode.UNACCEPTABLE_CREDENTIAL: "the credential does not meet the requirements",
    ErrorCode.INCONSISTENT_VOTER_SET: "the voters of the metadata quorum differ",
    ErrorCode.INVALID_UPDATE_VERSION: "the given update version is not valid",
    ErrorCode.FEATURE_UPDATE_FAILED: "the features could not be changed",
    ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE: "the forwarded principal cannot be read",
    ErrorCode.SNAPSHOT_NOT_FOUND: "there is no such snapshot",
    ErrorCode.POSITION_OUT_OF_RANGE: "the position lies outside of the snapshot",
    ErrorCode.UNKNOWN_TOPIC_ID: "this broker knows no topic of this id",
    ErrorCode.DUPLICATE_BROKER_REGISTRATION: "another live broker is registered with this id",
    ErrorCode.BROKER_ID_NOT_REGISTERED: "no broker is registered with this id",
    ErrorCode.INCONSISTENT_TOPIC_ID: "the topic's id is not the one that the log was made with",
    ErrorCode.INCONSISTENT_CLUSTER_ID: "the request is meant for another cluster",
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "there is no such transactional id",
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR: "the fetch session mixes names and ids of topics",
    ErrorCode.INELIGIBLE_REPLICA: "the new in-sync set names a replica that may not join it",
    ErrorCode.NEW_LEADER_ELECTED: "the request was carried out, and changed the leader",
    ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE: "the offset lies in remote storage",
    ErrorCode.FENCED_MEMBER_EPOCH: "the member's epoch is not the coordinator's",
    ErrorCode.UNRELEASED_INSTANCE_ID: "another member still holds the instance id",
    ErrorCode.UNSUPPORTED_ASSIGNOR: "the coordinator does not know this assignor",
    ErrorCode.STALE_MEMBER_EPOCH: "the member's epoch is out of date",
}


class ApiError(Exception):
    """A request failed for a reason that the protocol has a code for."""

    code: ErrorCode = ErrorCode.UNKNOWN_SERVER_ERROR
    by_code: ClassVar[dict[ErrorCode, type["ApiError"]]] = {}

    def __init__(self, message: str | None = None, *, code: ErrorCode | None = None) -> None:
        if code is not None:
            self.code = code
        self.message = self.code.meaning if message is None else message
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


def error_for(code: int, message: str | None = None) -> ApiError:
    """The exception for `code`, of its own class if there is one; an unknown code is UNKNOWN_SERVER_ERROR."""
    try:
        known = ErrorCode(code)
    except ValueError:
        return error_for(ErrorCode.UNKNOWN_SERVER_ERROR, message or f"error code {code}")
    cls = ApiError.by_code.get(known)
    return ApiError(message, code=known) if cls is None else cls(message)
