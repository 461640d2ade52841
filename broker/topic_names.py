"""Checks topic names when a request arrives, before a name can reach ZooKeeper or a path on disk."""

import re

from ..protocol.errors import InvalidTopic

NAME_LENGTH_MAX = 249
OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTION_STATE_TOPIC = "__transaction_state"
INTERNAL_TOPICS = frozenset({OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC})

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+", re.ASCII)


def check_topic_name(name: str | None) -> str:
    """The name, if it is legal. Raises InvalidTopic with the reason."""
    if not name:
        raise InvalidTopic("a topic name must not be empty")
    if name in (".", ".."):
        raise InvalidTopic("a topic name must not be '.' or '..'")
    if len(name) > NAME_LENGTH_MAX:
        raise InvalidTopic(f"a topic name has at most {NAME_LENGTH_MAX} characters, this one has {len(name)}")
    if _LEGAL.fullmatch(name) is None:
        raise InvalidTopic(f"{name!r}: a topic name has only ASCII letters, digits, '.', '_' and '-'")
    return name


def is_legal(name: str | None) -> bool:
    """Whether a topic may have this name."""
    try:
        check_topic_name(name)
    except InvalidTopic:
        return False
    return True
