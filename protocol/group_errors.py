"""Errors about groups, producers, transactions, identities and permissions, one class for each code.

Left to others: errors about partitions, topics and brokers, and the name to import all from (errors.py).
"""

from .error_codes import ApiError, ErrorCode


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
