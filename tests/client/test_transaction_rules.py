"""The rules of transactions without a socket: states, verdicts, and numbers in a transaction."""

from itertools import product

import pytest

from strandline.base.types import TopicPartition
from strandline.client.producer.accumulator import Accumulator, Limits
from strandline.client.producer.partition_queues import Identity, PartitionQueue
from strandline.client.producer.transaction_rules import (
    TRANSITIONS,
    Answer,
    State,
    Step,
    TransactionRules,
    Verdict,
    judge,
    weightiest,
)
from strandline.protocol.errors import ErrorCode, ProducerFenced, error_for

T0 = TopicPartition("t", 0)
LIMITS = Limits(300, 0.01, 10.0, 5, True, True, 1 << 31, 0, None)


def in_transaction(*, can_bump: bool = True) -> TransactionRules:
    rules = TransactionRules()
    rules.go(State.INITIALIZING)
    rules.initialized(Identity(7, 0), can_bump)
    rules.go(State.READY)
    rules.go(State.IN_TRANSACTION)
    return rules


def test_no_other_transition_than_those_of_the_table() -> None:
    for before, after in product(State, State):
        rules = TransactionRules()
        rules.state = before
        if after is State.FATAL_ERROR or after in TRANSITIONS[before]:
            rules.go(after)
        else:
            with pytest.raises(AssertionError):
                rules.go(after)


def test_what_may_still_arrive_asks_for_a_new_epoch_and_ends_a_producer_that_gets_none() -> None:
    rules = in_transaction()
    rules.ending(committed=False)
    rules.left_pending()
    assert rules.state is State.ABORTING and rules.bump_required
    old = in_transaction(can_bump=False)
    old.ending(committed=False)
    old.left_pending()
    assert old.state is State.FATAL_ERROR and "no new epoch" in str(old.error)


@pytest.mark.parametrize(
    ("step", "code", "verdict"),
    [
        (Step.INIT, ErrorCode.CONCURRENT_TRANSACTIONS, Verdict.RETRY),
        (Step.INIT, ErrorCode.INVALID_TRANSACTION_TIMEOUT, Verdict.FATAL),
        (Step.INIT, ErrorCode.INVALID_PRODUCER_ID_MAPPING, Verdict.FATAL),
        (Step.INIT, ErrorCode.PRODUCER_FENCED, Verdict.FATAL),
        (Step.ADD_PARTITIONS, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, Verdict.RETRY),
        (Step.ADD_PARTITIONS, ErrorCode.TOPIC_AUTHORIZATION_FAILED, Verdict.ABORT),
        (Step.ADD_PARTITIONS, ErrorCode.INVALID_TXN_STATE, Verdict.FATAL),
        (Step.ADD_OFFSETS, ErrorCode.GROUP_AUTHORIZATION_FAILED, Verdict.ABORT),
        (Step.ADD_OFFSETS, ErrorCode.INVALID_PRODUCER_ID_MAPPING, Verdict.ABORT_AND_BUMP),
        (Step.COMMIT_OFFSETS, ErrorCode.ILLEGAL_GENERATION, Verdict.ABORT),
        (Step.COMMIT_OFFSETS, ErrorCode.UNKNOWN_MEMBER_ID, Verdict.ABORT),
        (Step.COMMIT_OFFSETS, ErrorCode.FENCED_INSTANCE_ID, Verdict.ABORT),
        (Step.COMMIT_OFFSETS, ErrorCode.REQUEST_TIMED_OUT, Verdict.LOOK_UP),
        (Step.COMMIT_OFFSETS, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, Verdict.FATAL),
        (Step.END, ErrorCode.NOT_COORDINATOR, Verdict.LOOK_UP),
        (Step.END, ErrorCode.TRANSACTION_ABORTABLE, Verdict.ABORT),
        (Step.END, ErrorCode.INVALID_PRODUCER_EPOCH, Verdict.FATAL),
        (Step.END, ErrorCode.UNKNOWN_SERVER_ERROR, Verdict.FATAL),
    ],
)
def test_where_answers_lead_as_in_kafka(step: Step, code: ErrorCode, verdict: Verdict) -> None:
    assert judge(step, code) is verdict


def test_of_several_partitions_the_weightiest_answer_decides_and_names_the_reason() -> None:
    untried = Answer(ErrorCode.OPERATION_NOT_ATTEMPTED, "t-0")
    denied = Answer(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "t-1")
    fenced = Answer(ErrorCode.PRODUCER_FENCED, "t-2")
    assert weightiest(Step.ADD_PARTITIONS, [untried, denied, untried]) == (Verdict.ABORT, denied)
    assert weightiest(Step.ADD_PARTITIONS, [denied, fenced]) == (Verdict.FATAL, fenced)
    late = Answer(ErrorCode.NOT_COORDINATOR, "t-3")
    assert weightiest(Step.ADD_PARTITIONS, [untried, late]) == (Verdict.LOOK_UP, late)


def test_a_batch_that_fails_while_aborting_changes_nothing_but_the_numbers() -> None:
    rules = in_transaction()
    rules.ending(committed=False)
    rules.batch_failed(error_for(ErrorCode.MESSAGE_TOO_LARGE))
    assert rules.state is State.ABORTING and rules.bump_required


def test_without_new_epochs_a_failed_batch_is_the_end() -> None:
    """Before Kafka 2.5 nobody could tell a producer that starts anew from one that has taken its place."""
    rules = in_transaction(can_bump=False)
    rules.batch_failed(error_for(ErrorCode.MESSAGE_TOO_LARGE))
    assert rules.state is State.FATAL_ERROR


def test_a_batch_of_a_producer_that_was_replaced_fails_the_transaction_and_a_request_ends_it() -> None:
    """As in Kafka: the broker may mean an epoch that the coordinator took away for a time-out."""
    rules = in_transaction()
    rules.batch_failed(error_for(ErrorCode.INVALID_PRODUCER_EPOCH))
    assert rules.state is State.ABORTABLE_ERROR
    rules.ending(committed=False)
    rules.failed(Verdict.FATAL, error_for(ErrorCode.INVALID_PRODUCER_EPOCH))
    assert rules.state is State.FATAL_ERROR and isinstance(rules.error, ProducerFenced)
    rules.batch_failed(error_for(ErrorCode.MESSAGE_TOO_LARGE))
    assert isinstance(rules.error, ProducerFenced), "the first fatal error stays"


def test_an_initialization_that_is_refused_for_now_may_be_repeated() -> None:
    rules = TransactionRules()
    rules.go(State.INITIALIZING)
    rules.failed(Verdict.ABORT, error_for(ErrorCode.TRANSACTION_ABORTABLE))
    assert rules.state is State.UNINITIALIZED and rules.error is None


def test_a_batch_of_a_transaction_that_is_over_fails_nobody() -> None:
    rules = in_transaction()
    rules.ending(committed=True)
    rules.ended()
    rules.batch_failed(error_for(ErrorCode.REQUEST_TIMED_OUT))
    assert rules.state is State.READY and not rules.bump_required


def lane_of(batches: int) -> tuple[Accumulator[int], PartitionQueue[int]]:
    """So many closed batches of two records, of a producer that leaders know."""
    accumulator: Accumulator[int] = Accumulator(LIMITS)
    accumulator.append(T0, (0, None, b"x" * 90, ()), 0, 0.0, 120)
    lane = accumulator.lane(T0)
    lane.adopt(Identity(7, 0))
    first = lane.take()
    lane.succeeded(first)
    accumulator.release(first)
    for n in range(2 * batches):
        accumulator.append(T0, (n, None, b"x" * 90, ()), n, 0.0, 120)
    lane.close_growing()
    return accumulator, lane


def test_no_batch_of_a_transaction_is_numbered_anew() -> None:
    """Outside of one, a batch that certainly was not appended is sent again under another identity."""
    _, lane = lane_of(1)
    batch = lane.take()
    assert not lane.failed(batch, error_for(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER), 0.0)
    assert lane.identity is None


def test_what_follows_a_failed_batch_is_not_sent_again() -> None:
    accumulator, lane = lane_of(3)
    one, two = lane.take(), lane.take()
    assert lane.failed(two, error_for(ErrorCode.NOT_ENOUGH_REPLICAS), 0.0), "the first one is under way"
    assert not lane.failed(one, error_for(ErrorCode.MESSAGE_TOO_LARGE), 0.0)
    given_up = accumulator.abandon_unsent()
    assert [batch.tokens for batch in given_up] == [[4, 5], [2, 3]]
    accumulator.release(one)
    assert accumulator.is_empty


def test_what_is_on_its_way_behind_a_failed_batch_gets_no_second_attempt() -> None:
    _, lane = lane_of(2)
    one, two = lane.take(), lane.take()
    assert not lane.failed(one, error_for(ErrorCode.MESSAGE_TOO_LARGE), 0.0)
    assert not lane.failed(two, error_for(ErrorCode.NOT_ENOUGH_REPLICAS), 0.0)


def test_numbers_that_are_sound_are_kept_when_a_transaction_is_given_up() -> None:
    accumulator, lane = lane_of(2)
    again = lane.take()
    assert lane.failed(again, error_for(ErrorCode.NOT_ENOUGH_REPLICAS), 0.0)
    assert [batch.tokens for batch in accumulator.abandon_unsent()] == [[2, 3]]
    assert lane.take() is again, "it has a number: without it those of the next transaction had a gap"


def test_with_a_new_identity_numbers_begin_again() -> None:
    accumulator, lane = lane_of(0)
    accumulator.number_anew()
    accumulator.append(T0, (0, None, b"x", ()), 0, 0.0, 50)
    assert lane.needs_identity
    lane.adopt(Identity(7, 1))
    assert lane.take().sequence == 0


def test_halves_of_a_batch_belong_to_its_transaction() -> None:
    accumulator, lane = lane_of(1)
    assert accumulator.split(lane.take())
    assert all(half.builder.transactional for half in lane.again)
