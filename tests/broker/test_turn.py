"""The end of a turn: each thing once, in order, and nothing after a failure."""

import asyncio

import pytest

from strandline.broker.turn import Turn


class Heard:
    """A partition, a fetch and a connection in one; says what it was told."""

    def __init__(self, turn: Turn) -> None:
        self.turn = turn
        self.told: list[str] = []

    def settle(self, now: float) -> None:
        self.told.append("settled")
        self.turn.notify(self)

    def look_again(self) -> None:
        self.told.append("read")
        self.turn.answered(self)

    def flush(self) -> None:
        self.told.append("written")


async def a_turn() -> None:
    await asyncio.sleep(0)


async def test_what_changed_settles_then_fetches_read_then_answers_leave() -> None:
    turn = Turn(lambda error: None)
    heard = Heard(turn)
    turn.after_settling(lambda: heard.told.append("flushes begin"))
    turn.is_open = True
    turn.mark(heard)
    turn.notify(heard)
    turn.notify(heard)
    assert not turn.is_awake, "a mark alone does not wake"
    turn.wake()
    turn.wake()
    await a_turn()
    assert heard.told == ["settled", "read", "flushes begin", "written"]
    await a_turn()
    assert len(heard.told) == 4


async def test_what_a_fetch_changes_settles_in_the_same_turn() -> None:
    """A follower's fetch may raise a high watermark, and with it let another fetch read."""
    turn = Turn(lambda error: None)
    other = Heard(turn)

    class Follower(Heard):
        def look_again(self) -> None:
            self.turn.mark(other)

    turn.notify(Follower(turn))
    turn.settle()
    assert other.told == ["settled", "read"]


async def test_a_fetch_that_was_answered_does_not_read_again() -> None:
    turn = Turn(lambda error: None)
    heard = Heard(turn)
    turn.notify(heard)
    turn.forget(heard)
    turn.settle()
    assert heard.told == []


async def test_a_turn_that_is_not_open_settles_nothing_but_answers_leave() -> None:
    turn = Turn(lambda error: None)
    heard = Heard(turn)
    turn.mark(heard)
    turn.answered(heard)
    await a_turn()
    assert heard.told == ["written"]


async def test_what_fails_while_settling_stops_the_node() -> None:
    failures: list[BaseException] = []
    turn = Turn(failures.append)

    def broken() -> None:
        raise AssertionError("this cannot be")

    turn.after_settling(broken)
    turn.is_open = True
    with pytest.raises(AssertionError):
        turn.end()
    assert len(failures) == 1
