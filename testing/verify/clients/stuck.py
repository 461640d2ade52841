"""Whose fault it is that a call of librdkafka does not return: what its own log tells of its requests.

Transactional producers log each request and each answer (librdkafka.py). If a request has no answer though
its connection stands, a broker is at fault, and the run has failed. If all were answered, the client waits
for something that it never asks for (librdkafka's issues 5456 and 5511).
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

OVERDUE = "has not returned within"
PATIENCE_S = 15.0  # longer than any fault, and than any broker keeps such a request
LINE = re.compile(r"%\d\|(?P<at_s>[\d.]+)\|\w+\|\S+ \[thrd:(?P<thread>[^\]]*)\]: (?P<said>.*)")
SENT = re.compile(r"Sent (?P<api>\w+)Request \(v\d+, \d+ bytes @ \d+, CorrId (?P<id>\d+)\)")
RECEIVED = re.compile(r"Received (?P<api>\w+)Response \(v\d+, \d+ bytes, CorrId (?P<id>\d+),")
DOWN = "-> DOWN"


class Request(NamedTuple):
    """A request that was sent and not answered."""

    api: str
    broker: str
    sent_s: float


def unanswered(lines: Iterable[str]) -> list[Request]:
    """The requests that have had neither an answer nor a broken connection for PATIENCE_S."""
    waiting: dict[tuple[str, str], Request] = {}
    last_s = 0.0
    for line in lines:
        if (found := LINE.search(line)) is None:
            continue
        thread, said, last_s = found["thread"], found["said"], float(found["at_s"])
        if sent := SENT.search(said):
            waiting[thread, sent["id"]] = Request(sent["api"], thread, last_s)
        elif received := RECEIVED.search(said):
            waiting.pop((thread, received["id"]), None)
        elif DOWN in said:
            waiting = {key: request for key, request in waiting.items() if key[0] != thread}
    return [each for each in waiting.values() if last_s - each.sent_s >= PATIENCE_S]


def overdue_in(text: str) -> list[str]:
    """What a client printed that ended because a call kept none of its time-outs."""
    return [line for line in text.splitlines() if OVERDUE in line]


def blame(text: str) -> tuple[list[str], list[str]]:
    """What a client printed: its calls that did not return by its own fault, and those by a broker's."""
    lines = overdue_in(text)
    if not lines or not (open_ones := unanswered(text.splitlines())):
        return [f"{line}; every request was answered" for line in lines], []
    told = ", ".join(f"{each.api} to {each.broker} at {each.sent_s:.3f}" for each in open_ones)
    return [], [f"{line}; without an answer: {told}" for line in lines]
