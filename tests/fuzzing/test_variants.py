"""Variants of encoded messages: what is called whole is, and what is broken is read as the model says."""

from random import Random
from uuid import UUID

import pytest

from strandline.protocol.apis import APIS, Api
from strandline.protocol.schema import encode
from tests.fuzzing.drawing import Drawing
from tests.fuzzing.known import STILL, VICTIM
from tests.fuzzing.model import read
from tests.fuzzing.spans import spans_of
from tests.protocol.samples import sample

PAIRS = [(api, v) for api, entry in APIS.items() if entry.advertised for v in entry.served]
IDS = {STILL: UUID(int=1 << 100), VICTIM: UUID(int=1 << 101)}


@pytest.mark.parametrize("which", ["request", "response"])
def test_the_walk_ends_where_the_message_does(which: str) -> None:
    random = Random(1)
    for api, version in PAIRS:
        cls = getattr(APIS[api], which)
        for _ in range(5):
            message = sample(cls, version, random)
            body = b"".join(bytes(part) for part in encode(message, version))
            spans, end = spans_of(cls, version, body)
            assert end == len(body), f"{cls.__name__} v{version}"
            assert all(0 <= span.start <= span.end <= end for span in spans)


def test_whole_variants_are_requests_and_differ() -> None:
    drawing = Drawing(Random(2), IDS)
    seen, pairs = set(), set()
    for number in range(20_000):
        asked = drawing.whole(number)
        assert (found := read(asked.frame)) is not None, f"{asked.api.name} v{asked.version}"
        assert (found.api, found.version, found.correlation_id) == (asked.api, asked.version, number)
        pairs.add((asked.api, asked.version))
        seen.add(asked.frame[12:])
    assert len(seen) > 12_000
    assert pairs >= set(drawing.usual)


def test_broken_ones_are_requests_now_and_then() -> None:
    drawing = Drawing(Random(3), IDS)
    whole = sum(drawing.broken(number)[1] is not None for number in range(5_000))
    assert 500 < whole < 4_500


def test_nothing_but_produce_names_the_topic_that_must_stay() -> None:
    drawing = Drawing(Random(4), IDS)
    changing = (Api.CREATE_TOPICS, Api.DELETE_TOPICS, Api.DELETE_RECORDS, Api.WRITE_TXN_MARKERS)
    drawing.usual = [pair for pair in PAIRS if pair[0] in changing]
    drawing.difficult = drawing.usual
    for number in range(3_000):
        frames = drawing.whole(number).frame, *(f for f, asked in [drawing.broken(number)] if asked)
        assert not any(name in frame for frame in frames for name in drawing.still_ids)


def test_what_was_learned_is_used() -> None:
    drawing = Drawing(Random(5), IDS)
    request = APIS[Api.JOIN_GROUP].request(
        group_id="g", session_timeout_ms=100, member_id="", protocol_type="consumer", protocols=[]
    )  # fmt: skip
    answer = APIS[Api.JOIN_GROUP].response(generation_id=77, leader="m-1", member_id="m-1")
    drawing.known.learn(Api.JOIN_GROUP, request, answer)
    drawing.usual = [(Api.HEARTBEAT, 3)]
    drawing.difficult = drawing.usual
    met = 0
    for number in range(1_000):
        heartbeat = drawing.whole(number).decoded()
        met += (heartbeat.group_id, heartbeat.generation_id, heartbeat.member_id) == ("g", 77, "m-1")
    assert 100 < met < 900
