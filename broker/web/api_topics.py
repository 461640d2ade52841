"""Creates a topic for the page, if `strandline.web.create.topics` allows it.

Left to others: whether the request comes from this server's own page (guard.py), the creation (forward.py).
"""

import json
from typing import TYPE_CHECKING, Any

from ...protocol.errors import ApiError, ErrorCode, InvalidTopic
from ...protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ..topic_names import check_topic_name
from .answer import Answer, as_json, refused

if TYPE_CHECKING:
    from ..context import BrokerContext

OPTION = "strandline.web.create.topics"
TIMEOUT_MS = 4_000  # shorter than the server's own deadline, so that the reason is told
COUNT_MAX = 10_000
DEFAULT = -1
CONFIGS_MAX = 100


class BadTopic(ValueError):
    """What is wrong with the body of the request."""


async def create_topic(broker: "BrokerContext", body: bytes) -> Answer:
    """201 when the topic exists; 400 with the reason, 409 if there is one of this name already."""
    if not broker.config.web.create_topics:
        return refused(403, f"creation of topics is off here: set {OPTION}=true")
    try:
        topic = topic_in(body)
    except BadTopic as error:
        return refused(400, str(error))
    try:
        response: CreateTopicsResponse = await broker.forwarder.submit(
            CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS), TIMEOUT_MS
        )
    except ApiError as error:
        return refused(503, str(error))
    (result,) = response.topics
    if result.error_code:
        code = ErrorCode(result.error_code)
        status = 409 if code is ErrorCode.TOPIC_ALREADY_EXISTS else 400
        return refused(status, f"{code.name}: {result.error_message or 'no reason was given'}")
    return as_json({"created": topic.name}, 201)


def topic_in(body: bytes) -> CreatableTopic:
    """The topic that a request describes. Raises BadTopic."""
    try:
        given = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadTopic(f"expected JSON: {error}") from error
    if not isinstance(given, dict):
        raise BadTopic('expected an object such as {"name": "orders", "partitions": 3}')
    unknown = given.keys() - {"name", "partitions", "replication_factor", "configs"}
    if unknown:
        raise BadTopic(
            f"unknown field {sorted(unknown)[0]!r}: expected name, partitions, replication_factor, configs"
        )
    try:
        name = check_topic_name(given.get("name") if isinstance(given.get("name"), str) else None)
    except InvalidTopic as error:
        raise BadTopic(str(error)) from error
    configs = given.get("configs", {})
    if not isinstance(configs, dict) or not all(map(_is_text, (*configs, *configs.values()))):
        raise BadTopic('configs: expected an object of strings such as {"retention.ms": "60000"}')
    if len(configs) > CONFIGS_MAX:
        raise BadTopic(f"configs: expected at most {CONFIGS_MAX}")
    return CreatableTopic(
        name=name,
        num_partitions=_count(given, "partitions"),
        replication_factor=_count(given, "replication_factor"),
        configs=[CreatableTopicConfig(name=each, value=value) for each, value in configs.items()],
    )


def _is_text(value: Any) -> bool:
    """Whether it can be sent: JSON has escapes for halves of characters, which UTF-8 has not."""
    try:
        return isinstance(value, str) and value.encode() is not None
    except UnicodeEncodeError:
        return False


def _count(given: dict[str, Any], field: str) -> int:
    value = given.get(field)
    if value is None:
        return DEFAULT
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= COUNT_MAX:
        raise BadTopic(f"{field}: expected a number from 1 to {COUNT_MAX}, not {value!r}")
    return value
