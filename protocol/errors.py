"""The exceptions for the protocol's error codes, one class for each code that is caught by name.

First those about partitions, topics, records and brokers, then those about groups, producers, transactions,
identities and permissions. Left to others: the codes and `ApiError` (error_codes.py).
"""

from collections.abc import Sequence

from .error_codes import ApiError as ApiError
from .error_codes import ErrorCode as ErrorCode
from .error_codes import error_for as error_for


class UnknownServerError(ApiError):
    """The broker met an error that it did not expect."""

    code = ErrorCode.UNKNOWN_SERVER_ERROR


class OffsetOutOfRange(ApiError):
    """The offset is outside of the partition's log."""

    code = ErrorCode.OFFSET_OUT_OF_RANGE


class CorruptMessage(ApiError):
    """A batch does not match its checksum or is damaged otherwise."""

    code = ErrorCode.CORRUPT_MESSAGE


class UnknownTopicOrPartition(ApiError):
    """This broker knows no such topic or partition."""

    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class LeaderNotAvailable(ApiError):
    """The partition has no leader at the moment."""

    code = ErrorCode.LEADER_NOT_AVAILABLE


class NotLeaderOrFollower(ApiError):
    """This broker is neither leader nor follower of the partition."""

    code = ErrorCode.NOT_LEADER_OR_FOLLOWER


class RequestTimedOut(ApiError):
    """The request did not complete in time."""

    code = ErrorCode.REQUEST_TIMED_OUT


class BrokerNotAvailable(ApiError):
    """The broker is not available."""

    code = ErrorCode.BROKER_NOT_AVAILABLE


class ReplicaNotAvailable(ApiError):
    """This broker holds no replica of the partition."""

    code = ErrorCode.REPLICA_NOT_AVAILABLE


class LogDirNotFound(ApiError):
    """The broker has no such log directory."""

    code = ErrorCode.LOG_DIR_NOT_FOUND


class MessageTooLarge(ApiError):
    """A batch is larger than the topic allows."""

    code = ErrorCode.MESSAGE_TOO_LARGE


class StaleControllerEpoch(ApiError):
    """The controller that asks has been replaced by a newer one."""

    code = ErrorCode.STALE_CONTROLLER_EPOCH


class NetworkException(ApiError):
    """The connection ended before the answer."""

    code = ErrorCode.NETWORK_EXCEPTION


class InvalidTopic(ApiError):
    """The topic cannot have this name or be used like this."""

    code = ErrorCode.INVALID_TOPIC_EXCEPTION


class RecordListTooLarge(ApiError):
    """The batch is larger than a segment."""

    code = ErrorCode.RECORD_LIST_TOO_LARGE


class NotEnoughReplicas(ApiError):
    """Messages are rejected since there are fewer in-sync replicas than required."""

    code = ErrorCode.NOT_ENOUGH_REPLICAS


class NotEnoughReplicasAfterAppend(ApiError):
    """Messages are written to the log, but to fewer in-sync replicas than required."""

    code = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


class InvalidRequiredAcks(ApiError):
    """Acks must be -1, 0 or 1."""

    code = ErrorCode.INVALID_REQUIRED_ACKS


class InvalidTimestamp(ApiError):
    """A record's timestamp is outside of what the topic accepts."""

    code = ErrorCode.INVALID_TIMESTAMP


class UnsupportedVersion(ApiError):
    """This version of the request is not supported."""

    code = ErrorCode.UNSUPPORTED_VERSION


class TopicAlreadyExists(ApiError):
    """There already is a topic of this name."""

    code = ErrorCode.TOPIC_ALREADY_EXISTS


class InvalidPartitions(ApiError):
    """The number of partitions is not valid."""

    code = ErrorCode.INVALID_PARTITIONS


class InvalidReplicationFactor(ApiError):
    """The replication factor is not valid."""

    code = ErrorCode.INVALID_REPLICATION_FACTOR


class InvalidReplicaAssignment(ApiError):
    """The assignment of replicas is not valid."""

    code = ErrorCode.INVALID_REPLICA_ASSIGNMENT


class InvalidConfig(ApiError):
    """A setting is not valid."""

    code = ErrorCode.INVALID_CONFIG


class NotController(ApiError):
    """This broker is not the controller."""

    code = ErrorCode.NOT_CONTROLLER


class InvalidRequest(ApiError):
    """The request contradicts itself or the protocol."""

    code = ErrorCode.INVALID_REQUEST


class UnsupportedForMessageFormat(ApiError):
    """The record format does not support this."""

    code = ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


class KafkaStorageError(ApiError):
    """The broker's disk failed."""

    code = ErrorCode.KAFKA_STORAGE_ERROR


class ReassignmentInProgress(ApiError):
    """The partition is being moved."""

    code = ErrorCode.REASSIGNMENT_IN_PROGRESS


class NoReassignmentInProgress(ApiError):
    """The partition is not being moved."""

    code = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


class FetchSessionIdNotFound(ApiError):
    """There is no such fetch session."""

    code = ErrorCode.FETCH_SESSION_ID_NOT_FOUND


class InvalidFetchSessionEpoch(ApiError):
    """The fetch session is at another epoch."""

    code = ErrorCode.INVALID_FETCH_SESSION_EPOCH


class ListenerNotFound(ApiError):
    """The leader has no listener like the one asked."""

    code = ErrorCode.LISTENER_NOT_FOUND


class TopicDeletionDisabled(ApiError):
    """This cluster does not delete topics."""

    code = ErrorCode.TOPIC_DELETION_DISABLED


class FencedLeaderEpoch(ApiError):
    """The leader epoch in the request is older than the broker's."""

    code = ErrorCode.FENCED_LEADER_EPOCH


class UnknownLeaderEpoch(ApiError):
    """The leader epoch in the request is newer than the broker's."""

    code = ErrorCode.UNKNOWN_LEADER_EPOCH


class UnsupportedCompressionType(ApiError):
    """This version of the request does not carry that compression."""

    code = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


class StaleBrokerEpoch(ApiError):
    """The request is meant for another incarnation of the broker."""

    code = ErrorCode.STALE_BROKER_EPOCH


class OffsetNotAvailable(ApiError):
    """The new leader does not know yet what is committed."""

    code = ErrorCode.OFFSET_NOT_AVAILABLE


class PreferredLeaderNotAvailable(ApiError):
    """The preferred leader is not available."""

    code = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE


class EligibleLeadersNotAvailable(ApiError):
    """No replica may become leader."""

    code = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE


class ElectionNotNeeded(ApiError):
    """The leader is the right one already."""

    code = ErrorCode.ELECTION_NOT_NEEDED


class InvalidRecord(ApiError):
    """The broker refused the batch; `indexes` are the positions of the bad records, if known."""

    code = ErrorCode.INVALID_RECORD
    indexes: Sequence[int] = ()


class UnknownTopicId(ApiError):
    """This broker knows no topic with this id."""

    code = ErrorCode.UNKNOWN_TOPIC_ID


class DuplicateBrokerRegistration(ApiError):
    """Another live broker is registered with this id."""

    code = ErrorCode.DUPLICATE_BROKER_REGISTRATION


class InconsistentTopicId(ApiError):
    """The topic's id is not the log's."""

    code = ErrorCode.INCONSISTENT_TOPIC_ID


class InconsistentClusterId(ApiError):
    """The request is meant for another cluster."""

    code = ErrorCode.INCONSISTENT_CLUSTER_ID


class FetchSessionTopicIdError(ApiError):
    """The fetch session mixes names and ids of topics."""

    code = ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


class IneligibleReplica(ApiError):
    """The new in-sync set names a replica that may not join it."""

    code = ErrorCode.INELIGIBLE_REPLICA


class NewLeaderElected(ApiError):
    """The request was carried out, and changed the leader."""

    code = ErrorCode.NEW_LEADER_ELECTED


# ------------------------------------------------------------ groups, producers, permissions


class OffsetMetadataTooLarge(ApiError):
    """The text stored with an offset is too long."""

    code = ErrorCode.OFFSET_METADATA_TOO_LARGE


class CoordinatorLoadInProgress(ApiError):
    """The coordinator is still loading its groups or transactions."""

    code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


class CoordinatorNotAvailable(ApiError):
    """There is no coordinator at the moment."""

    code = ErrorCode.COORDINATOR_NOT_AVAILABLE


class NotCoordinator(ApiError):
    """This broker does not coordinate the group."""

    code = ErrorCode.NOT_COORDINATOR


class IllegalGeneration(ApiError):
    """The group has moved on to another generation."""

    code = ErrorCode.ILLEGAL_GENERATION


class InconsistentGroupProtocol(ApiError):
    """The member shares no protocol with the others of its group."""

    code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL


class InvalidGroupId(ApiError):
    """The group id is not valid."""

    code = ErrorCode.INVALID_GROUP_ID


class UnknownMemberId(ApiError):
    """The group has no such member."""

    code = ErrorCode.UNKNOWN_MEMBER_ID


class InvalidSessionTimeout(ApiError):
    """The session timeout is outside of the broker's bounds."""

    code = ErrorCode.INVALID_SESSION_TIMEOUT


class RebalanceInProgress(ApiError):
    """The group is rebalancing: join again."""

    code = ErrorCode.REBALANCE_IN_PROGRESS


class InvalidCommitOffsetSize(ApiError):
    """The committed offset and its text are too large."""

    code = ErrorCode.INVALID_COMMIT_OFFSET_SIZE


class GroupAuthorizationFailed(ApiError):
    """Not allowed on this group."""

    code = ErrorCode.GROUP_AUTHORIZATION_FAILED


class UnsupportedSaslMechanism(ApiError):
    """The SASL mechanism is not supported."""

    code = ErrorCode.UNSUPPORTED_SASL_MECHANISM


class IllegalSaslState(ApiError):
    """The request does not fit the state of authentication."""

    code = ErrorCode.ILLEGAL_SASL_STATE


class OutOfOrderSequenceNumber(ApiError):
    """Batches of the producer are missing before this one."""

    code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


class DuplicateSequenceNumber(ApiError):
    """The producer's batch was appended before."""

    code = ErrorCode.DUPLICATE_SEQUENCE_NUMBER


class InvalidProducerEpoch(ApiError):
    """A newer producer of the same id has taken over."""

    code = ErrorCode.INVALID_PRODUCER_EPOCH


class InvalidTxnState(ApiError):
    """The transaction is not in a state for this."""

    code = ErrorCode.INVALID_TXN_STATE


class InvalidProducerIdMapping(ApiError):
    """The producer id does not belong to the transactional id."""

    code = ErrorCode.INVALID_PRODUCER_ID_MAPPING


class InvalidTransactionTimeout(ApiError):
    """The transaction's timeout is larger than the broker allows."""

    code = ErrorCode.INVALID_TRANSACTION_TIMEOUT


class ConcurrentTransactions(ApiError):
    """The transaction before this one is still being completed."""

    code = ErrorCode.CONCURRENT_TRANSACTIONS


class TransactionCoordinatorFenced(ApiError):
    """The coordinator that decided has been replaced since."""

    code = ErrorCode.TRANSACTION_COORDINATOR_FENCED


class TransactionalIdNotFound(ApiError):
    """The coordinator does not know the transactional id."""

    code = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


class TransactionAbortable(ApiError):
    """The transaction cannot go on, but its producer can abort it and begin another."""

    code = ErrorCode.TRANSACTION_ABORTABLE


class SaslAuthenticationFailed(ApiError):
    """The credentials were refused."""

    code = ErrorCode.SASL_AUTHENTICATION_FAILED


class UnknownProducerId(ApiError):
    """The producer id is no longer known."""

    code = ErrorCode.UNKNOWN_PRODUCER_ID


class NonEmptyGroup(ApiError):
    """The group has members."""

    code = ErrorCode.NON_EMPTY_GROUP


class GroupIdNotFound(ApiError):
    """There is no such group."""

    code = ErrorCode.GROUP_ID_NOT_FOUND


class MemberIdRequired(ApiError):
    """Join again with the member id given here."""

    code = ErrorCode.MEMBER_ID_REQUIRED


class GroupMaxSizeReached(ApiError):
    """The group is full."""

    code = ErrorCode.GROUP_MAX_SIZE_REACHED


class FencedInstanceId(ApiError):
    """Another member uses the same instance id."""

    code = ErrorCode.FENCED_INSTANCE_ID


class UnstableOffsetCommit(ApiError):
    """Offsets of an open transaction are not settled yet."""

    code = ErrorCode.UNSTABLE_OFFSET_COMMIT


class ProducerFenced(ApiError):
    """A newer producer of the same transactional id has taken over."""

    code = ErrorCode.PRODUCER_FENCED


class TopicAuthorizationFailed(ApiError):
    """Not allowed on this topic."""

    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED


class ClusterAuthorizationFailed(ApiError):
    """Not allowed on this cluster."""

    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


class PolicyViolation(ApiError):
    """A policy of this cluster forbids it."""

    code = ErrorCode.POLICY_VIOLATION


class ThrottlingQuotaExceeded(ApiError):
    """Too many changes in a short time."""

    code = ErrorCode.THROTTLING_QUOTA_EXCEEDED
