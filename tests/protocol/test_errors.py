"""Every code has a name, a meaning, and at most one class."""

import pytest

from strandline.protocol import errors
from strandline.protocol.decoder import TEXT_MAX
from strandline.protocol.errors import (
    ApiError,
    ErrorCode,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    UnknownTopicOrPartition,
    error_for,
)
from strandline.protocol.messages.groups import FindCoordinatorResponse
from strandline.protocol.schema import encode

RETRIABLE_IN_JAVA = (
    *(2, 3, 5, 6, 7, 9, 13, 14, 15, 16, 19, 20, 41, 51, 56, 70, 71, 72, 74, 75, 78, 80, 83, 84, 88, 89),
    *(100, 103, 106),
)


def test_codes_are_without_gaps_from_unknown_server_error_on() -> None:
    assert [int(code) for code in sorted(ErrorCode)] == list(range(-1, 129))
    assert ErrorCode.NOT_LEADER_OR_FOLLOWER == 6
    assert all(code.meaning for code in ErrorCode)


def test_what_a_client_may_try_again() -> None:
    assert [int(code) for code in sorted(ErrorCode) if code.retriable] == list(RETRIABLE_IN_JAVA)
    assert NotEnoughReplicas().retriable
    assert not errors.InvalidRequest().retriable


def test_a_code_finds_its_class() -> None:
    error = error_for(3, "no topic t")
    assert type(error) is UnknownTopicOrPartition
    assert (error.code, error.message) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no topic t")
    assert str(error_for(6)) == f"NOT_LEADER_OR_FOLLOWER: {ErrorCode.NOT_LEADER_OR_FOLLOWER.meaning}"


def test_a_code_without_a_class_keeps_its_code() -> None:
    error = error_for(ErrorCode.SNAPSHOT_NOT_FOUND)
    assert type(error) is ApiError
    assert error.code is ErrorCode.SNAPSHOT_NOT_FOUND
    assert ApiError().code is ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_code_of_the_future_is_an_unknown_server_error() -> None:
    error = error_for(999)
    assert type(error) is errors.UnknownServerError
    assert "999" in error.message


@pytest.mark.parametrize("letter", ["x", "\N{GRINNING FACE}"])
def test_a_message_that_quotes_the_longest_name_fits_in_the_oldest_answers(letter: str) -> None:
    """A broker that cannot write its answer ends, and whoever asked goes to the next one."""
    name = letter * (TEXT_MAX // len(letter.encode()))
    error = error_for(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{name} has no leader")
    assert error.message.startswith(name[:1000]) and "…" in error.message
    assert error.message.endswith(f"{letter} has no leader"), "the reason stands at the end"
    answer = FindCoordinatorResponse(error_code=error.code, error_message=error.message)
    encode(answer, 2)


@pytest.mark.parametrize("code", list(ErrorCode), ids=lambda code: code.name)
def test_classes_are_named_after_their_codes(code: ErrorCode) -> None:
    cls = type(error_for(code))
    if cls is ApiError:
        return
    assert cls.code is code
    assert getattr(errors, cls.__name__) is cls
    assert cls.__name__ == code.name.removesuffix("_EXCEPTION").title().replace("_", "") or code.value == 13


def test_an_error_is_caught_by_its_name() -> None:
    with pytest.raises(NotLeaderOrFollower):
        raise error_for(6)
