"""This broker's part of the overview: partitions that it leads, groups that it coordinates, its decisions.

The broker whose page is open asks all others for their parts, over the inter-broker listener (Inspect,
`about=overview`). One request may ask several questions. Every answer is bounded, so that a page costs the
same with ten partitions and with ten thousand. Nothing here awaits, so an answer is consistent.
Left to others: the request (handlers/inspect.py), asking and putting together (web/api_peers.py).
Why: docs/decisions/0060-any-broker-shows-the-whole-cluster.md
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgpack

from ...protocol.errors import InvalidRequest
from .decisions import newest, of_partitions
from .groups import group_members, group_rows
from .partitions import bounds, broker_facts, led_rows, partitions_in

if TYPE_CHECKING:
    from ..context import BrokerContext

NAMED_MAX, NAME_MAX = 3, 40  # of questions that are not known
Values = Mapping[str, Any]
Question = Callable[["BrokerContext", Values], Any]

QUESTIONS: dict[str, Question] = {
    "broker": lambda broker, asked: broker_facts(broker),
    "led": lambda broker, asked: led_rows(broker, partitions_in(asked)),
    "bounds": lambda broker, asked: bounds(broker, partitions_in(asked)),
    "groups": lambda broker, asked: group_rows(broker, str(asked.get("search", ""))),
    "group": lambda broker, asked: group_members(broker, str(asked.get("name", ""))),
    "newest": lambda broker, asked: newest(broker, int(asked.get("limit", 0))),
    "history": lambda broker, asked: of_partitions(broker, partitions_in(asked)),
}


def overview(broker: "BrokerContext", questions: Mapping[str, Values]) -> dict[str, Any]:
    """The answer to each question, by its name. Raises InvalidRequest for one that is not known."""
    unknown = questions.keys() - QUESTIONS.keys()
    if unknown:
        some = sorted(each[:NAME_MAX] for each in unknown)[:NAMED_MAX]
        raise InvalidRequest(f"unknown questions {some}: expected some of {sorted(QUESTIONS)}")
    return {name: QUESTIONS[name](broker, asked) for name, asked in questions.items()}


def overview_asked(broker: "BrokerContext", packed: bytes) -> dict[str, Any]:
    """The answers to questions as they are sent: a msgpack map of names to arguments."""
    try:
        questions = msgpack.unpackb(packed)
        assert isinstance(questions, dict) and all(isinstance(each, dict) for each in questions.values())
        return overview(broker, questions)
    except (ValueError, TypeError, OverflowError, AssertionError, msgpack.UnpackException) as error:
        raise InvalidRequest(f"expected a map of questions in msgpack: {error}") from error
