"""What tools write into ZooKeeper themselves, past every broker: settings, notices, wishes. Nobody has
checked them, so they may be wrong, or no documents at all.

Left to others: who writes it where (world.py).
"""

import json
from random import Random
from typing import Any

from strandline.broker.config.dynamic import THROTTLED_REPLICAS
from strandline.protocol.messages.config_changes import AlterConfigsResource
from strandline.zookeeper import documents
from strandline.zookeeper.client import Create
from tests.fuzzing import values
from tests.fuzzing.known import VICTIM, Known
from tests.fuzzing.plausible import Plausible

NO_DOCUMENTS = (
    b"", b"null", b"[]", b"{}", b"5", b'"x"', b"\xff\xfe", b"{", b'{"version": 1}', b"[" * 5_000,
    b'{"version": "x", "config": {}}', b'{"version": 1, "config": null}',
    b'{"version": 1, "config": {"retention.ms": 5}}', b'{"version": 1, "config": {"retention.ms": null}}',
    b'{"version": 1, "partitions": null}', b'{"version": 1, "partitions": [5]}',
    b'{"version": 99, "partitions": []}', b'{"version": 1, "partitions": {}}',
)  # fmt: skip
SETTINGS_WRONG = 0.03  # rarely: nobody can change them any more, until some tool has written them again
TOO_LONG_SHARE = 0.05  # of settings, with a text that no message can hold
ELECTIONS = (documents.PREFERRED_ELECTION, documents.PREFERRED_ELECTION_ALIAS)
KINDS_OF_ENTITIES = ("topics", "brokers", "groups", "clients", "users", "ips", "", "..")
SAFE_NAMES = tuple(
    name
    for name in values.ODD_NAMES
    if name.strip(".") and name.isascii() and name.isprintable() and "/" not in name
)
"""Such as a node may have."""


class Tool:
    """Draws what is written."""

    def __init__(self, random: Random, known: Known, plausible: Plausible) -> None:
        self.random, self.known, self.plausible = random, known, plausible
        self._drawn = (
            self._settings, self._settings, self._settings, self._notice, self._election, self._reassignment,
            self._deletion, self._isr_change, self._directory_event,
        )  # fmt: skip

    def nodes(self) -> list[Create]:
        """Nodes to be made, or to be written where they exist already."""
        return self.random.choice(self._drawn)()

    def _document(self, wrong: float = 0.15, **keys: Any) -> bytes:
        if self.random.random() < wrong:
            return self.random.choice(NO_DOCUMENTS)
        return json.dumps({"version": 1, **keys}).encode()

    def _settings(self) -> list[Create]:
        choice = self.random.choice
        asked = AlterConfigsResource(resource_type=0, resource_name="", configs=[])
        self.plausible.fit(asked, VICTIM)
        kind = choice(("topics", "brokers", "groups"))
        names = {
            "topics": (VICTIM, VICTIM, *values.MADE, *SAFE_NAMES),
            "brokers": (documents.ALL_BROKERS, *map(str, self.known.brokers), "9", "01", "x"),
            "groups": ("g", "h", "%2E%2E", "%", "%ff", *SAFE_NAMES),
        }
        name = choice(names[kind])
        config = {each.name: each.value for each in asked.configs if each.value is not None}
        if self.random.random() < TOO_LONG_SHARE:
            config[choice((*sorted(THROTTLED_REPLICAS), "x" * 40_000))] = ",".join(["0:1"] * 10_000)
        if kind == "brokers":
            config = {name: text for name, text in config.items() if name != "num.partitions"}
        notice = self._noticed(f"{kind}/{name}")
        return [Create(f"/config/{kind}/{name}", self._document(SETTINGS_WRONG, config=config)), notice]

    def _noticed(self, entity: Any) -> Create:
        data = self._document(version=2, entity_path=entity)
        return Create(documents.CONFIG_CHANGE_PREFIX, data, sequential=True)

    def _notice(self) -> list[Create]:
        choice, names = (
            self.random.choice,
            (*values.ODD_NAMES, VICTIM, "g", "1", "9" * 30, documents.ALL_BROKERS),
        )
        entity = f"{choice(KINDS_OF_ENTITIES)}/{choice(names)}"
        if self.random.random() < 0.3:
            keys = {"entity_type": choice(KINDS_OF_ENTITIES), "entity_name": choice((*names, None, 5))}
            return [Create(documents.CONFIG_CHANGE_PREFIX, self._document(**keys), sequential=True)]
        return [self._noticed(choice((entity, entity, entity, "", "topics", "topics/", "/", None, 5)))]

    def _partition(self) -> dict[str, Any]:
        choice = self.random.choice
        number = choice((*values.PARTITIONS, 1 << 40, 10**30, "0", None, 0.5))
        return {"topic": self.known.topic(VICTIM), "partition": number}

    def _partitions(self) -> list[dict[str, Any]]:
        return [self._partition() for _ in range(self.random.choice((0, 1, 1, 1, 2, 3)))]

    def _election(self) -> list[Create]:
        return [Create(self.random.choice(ELECTIONS), self._document(partitions=self._partitions()))]

    def _reassignment(self) -> list[Create]:
        choice, brokers = self.random.choice, (*self.known.brokers, *self.known.brokers, -1, 99, 1 << 40)
        moves = self._partitions()
        for move in moves:
            move["replicas"] = [choice(brokers) for _ in range(choice((0, 1, 1, 2, 3)))]
        return [Create(documents.REASSIGN_PARTITIONS, self._document(partitions=moves))]

    def _deletion(self) -> list[Create]:
        name = self.random.choice((*values.MADE, *SAFE_NAMES))
        return [Create(documents.delete_topic_path(name), self.random.choice((b"", b"", b"x")))]

    def _isr_change(self) -> list[Create]:
        data = self._document(partitions=self._partitions())
        return [Create(documents.ISR_CHANGE_PREFIX, data, sequential=True)]

    def _directory_event(self) -> list[Create]:
        choice = self.random.choice
        data = self._document(
            broker=choice((*self.known.brokers, 9, -1, 1 << 40)), event=choice((1, 1, 2, -1))
        )
        return [Create(documents.LOG_DIR_EVENT_PREFIX, data, sequential=True)]
