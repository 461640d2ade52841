"""`/why`: the answers of `strandline why` over HTTP, as JSON or as text.

All registered brokers are asked, as the command does: what one of them knows is rarely the whole answer. Who
does not answer in time is named; with `?local` nobody else is asked.
Left to others: what follows from the documents (broker/why_answers.py), what is in them
(broker/inspection.py).
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgpack

from ...base.types import TopicPartition
from ...client.network.connection import Connection
from ...protocol.apis import Api
from ...protocol.messages.inspection import InspectRequest, InspectResponse
from ...storage.directories.log_manager import parse_directory
from ..inspection import partition_document
from ..why_answers import Answer as Why
from ..why_answers import Evidence, leader, left_isr, not_visible, offline
from .answer import Answer, Asked, as_json, as_text, refused
from .view import View

if TYPE_CHECKING:
    from ..context import BrokerContext

PATIENCE_S = 2.0  # for other brokers; the server waits longer for an answer
AT_ONCE_MAX = 4  # questions for which other brokers are being asked; each opens a connection to each of them
DIGITS_MAX = 19  # of an offset
VERSIONS = {int(Api.INSPECT): 0}

NOT_VISIBLE, LEFT_ISR = "not-visible", "left-isr"
QUESTIONS: dict[str, str] = {
    NOT_VISIBLE: "/why/not-visible/TOPIC-PARTITION@OFFSET: why consumers do not get this record",
    LEFT_ISR: "/why/left-isr/TOPIC-PARTITION?broker=ID: why a replica is not in the ISR (default: all)",
    "leader": "/why/leader/TOPIC-PARTITION: why this broker leads",
    "offline": "/why/offline/TOPIC-PARTITION: why nobody leads",
}


class BadQuestion(Exception):
    """What is asked cannot be read; the message says what was expected."""


async def why_questions(view: View, asked: Asked) -> Answer:
    """What can be asked."""
    return as_text("\n".join(QUESTIONS.values())) if asked.wants_text else as_json({"questions": QUESTIONS})


async def why(view: View, asked: Asked) -> Answer:
    """The answer to one question about one partition. 404 if nothing is known of the partition."""
    broker = view.broker
    assert broker is not None, "the route is not served while the broker starts"
    question, text = asked.parts["question"], asked.parts["partition"]
    try:
        name, answer = _question(question, text, asked.query.get("broker", ""))
        partition = _partition(name)
    except BadQuestion as bad:
        return refused(400, str(bad))
    if asked.flag("local"):
        evidence = Evidence(str(partition), {broker.id: _own(broker, partition)})
    elif view.questions >= AT_ONCE_MAX:
        return refused(503, f"{AT_ONCE_MAX} questions are being answered: ask again, or with ?local")
    else:
        view.questions += 1
        try:
            evidence = await _asked_of_all(broker, partition)
        finally:
            view.questions -= 1
    return _told(answer(evidence), question, evidence, asked.wants_text)


def _question(question: str, text: str, broker: str) -> tuple[str, Callable[[Evidence], Why]]:
    """The partition that is asked about, and what answers. Raises BadQuestion."""
    if question == NOT_VISIBLE:
        name, _, offset = text.rpartition("@")
        if not name or not _is_number(offset):
            raise BadQuestion(f"{text}: expected topic-partition@offset, e.g. orders-0@17")
        return name, lambda evidence: not_visible(evidence, int(offset))
    if question == LEFT_ISR:
        if broker and not _is_number(broker):
            raise BadQuestion(f"broker={broker}: expected the id of a broker")
        return text, lambda evidence: left_isr(evidence, int(broker) if broker else None)
    answers = {"leader": leader, "offline": offline}
    if question not in answers:
        raise BadQuestion(f"unknown question {question!r}: expected one of {', '.join(QUESTIONS)}")
    return text, answers[question]


def _is_number(text: str) -> bool:
    """Whether int() reads it, and Kafka knows so large a number: int() refuses thousands of digits."""
    return text.isascii() and text.isdigit() and len(text) <= DIGITS_MAX


def _partition(text: str) -> TopicPartition:
    partition = parse_directory(text)
    if partition is None:
        raise BadQuestion(f"{text}: expected topic-partition, e.g. orders-0")
    return partition


def _told(found: Why, question: str, evidence: Evidence, is_text: bool) -> Answer:
    status = 404 if found.values.get("offline", True) is None else 200
    if is_text:
        return as_text("\n".join((found.sentence, *(f"  {line}" for line in found.because))), status)
    document = found.as_dict(question, evidence.partition)
    document["asked"] = sorted(evidence.documents)
    document["silent"] = {str(broker): why for broker, why in sorted(evidence.silent.items())}
    return as_json(document, status)


async def _asked_of_all(broker: "BrokerContext", partition: TopicPartition) -> Evidence:
    """What all registered brokers say."""
    deadline = asyncio.get_running_loop().time() + PATIENCE_S
    others = [each for each in sorted(broker.metadata.brokers) if each != broker.id]
    told = await asyncio.gather(*(_asked_of(broker, each, partition, deadline) for each in others))
    documents: dict[int, dict[str, Any]] = {broker.id: _own(broker, partition)}
    silent: dict[int, str] = {}
    for each, answer in zip(others, told, strict=True):
        if isinstance(answer, str):
            silent[each] = answer
        else:
            documents[each] = answer
    return Evidence(str(partition), documents, silent)


async def _asked_of(
    broker: "BrokerContext", other: int, partition: TopicPartition, deadline: float
) -> dict[str, Any] | str:
    """The document of another broker, or why there is none."""
    address = broker.metadata.address(other, broker.config.inter_broker_listener)
    if address is None:
        return f"it has no address on the listener {broker.config.inter_broker_listener}"
    request = InspectRequest(about="partition", topic=partition.topic, partition=partition.partition)
    try:
        connection = await Connection.open(
            address.host, address.port, client_id=f"broker-{broker.id}-why", deadline=deadline,
            versions=VERSIONS,
        )  # fmt: skip
        try:
            answer: InspectResponse = await connection.request(request, deadline=deadline)
        finally:
            await connection.close()
    except OSError as error:  # includes ConnectionLost and a passed deadline
        return str(error) or f"no answer within {PATIENCE_S:g} s"
    return answer.error_message or "it refuses" if answer.error_code else _unpacked(answer.document)


def _own(broker: "BrokerContext", partition: TopicPartition) -> dict[str, Any]:
    """Our document, as others would get it."""
    return _unpacked(msgpack.packb(partition_document(broker, partition)))


def _unpacked(data: Any) -> dict[str, Any]:
    document: dict[str, Any] = msgpack.unpackb(data, strict_map_key=False)
    return document
