"""Draws frames of all APIs and versions that clients are offered.

A message is drawn field by field from its schema, encoded once, and sent in many variants; then another one
takes its place. What administrators ask for is drawn anew far more often: its values fit each other.
Left to others: that (plausible.py), variants (variants.py), whether a broken frame is a request (model.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any
from uuid import UUID

from strandline.protocol.apis import APIS, Api
from strandline.protocol.connection import HEAD, SIZE
from strandline.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from strandline.protocol.schema import encode, fields_of
from tests.fuzzing.known import STILL, VICTIM, Known
from tests.fuzzing.model import Asked, read
from tests.fuzzing.plausible import Plausible
from tests.fuzzing.spans import Span, spans_of
from tests.fuzzing.values import CLIENT_IDS
from tests.fuzzing.variants import CHOSEN, EDITS, FEW_EDITS, SHORT_MS, WRITTEN_MS, Batches, Variants
from tests.protocol.samples import sample

DIFFICULT = {Api.CREATE_TOPICS, Api.DELETE_TOPICS, Api.CREATE_PARTITIONS, Api.ALTER_PARTITION_REASSIGNMENTS}
DIFFICULT |= {Api.ALTER_CONFIGS, Api.INCREMENTAL_ALTER_CONFIGS, Api.ELECT_LEADERS, Api.DELETE_RECORDS}
DIFFICULT |= {Api.ALTER_REPLICA_LOG_DIRS}
"""They write to ZooKeeper or wait for it, or change what is there: fewer of them, and only of the victim."""
CHANGING = DIFFICULT | {Api.WRITE_TXN_MARKERS, Api.ADD_PARTITIONS_TO_TXN}
DIFFICULT_SHARE = 0.02  # of all frames; of them each API has as many, IncrementalAlterConfigs twice
PLACES = 12  # of each of them in the list that is drawn from
ADMINISTRATION = DIFFICULT | {Api.DESCRIBE_CONFIGS, Api.LIST_PARTITION_REASSIGNMENTS}
"""With what shows what came of them: so many more of these, too."""
DRAWN_ANEW = ADMINISTRATION | {Api.INSPECT}
USES_OF_THOSE = 2
USES = 100  # of a message, in the mean
ITEMS_USUAL = 3
MANY_SHARE = 0.2  # of the long arrays that are drawn, those that stay long
FIT_SHARE = 0.7
PLAUSIBLE_SHARE = 0.9
MET_SHARE = 0.6
RICHER_SHARE = 0.7
CLIENT = b"fuzz"
OTHER_CLIENTS_SHARE = 0.02
WHOLE_BYTES_MAX = 3 << 20  # the broker takes no longer ones without records


@dataclass(slots=True)
class Template:
    """A message as it was encoded, and where its fields stand."""

    body: bytes
    spans: list[Span]
    topic: str


class Drawing:
    """Frames to send: whole ones, and broken ones with what the model says of them."""

    def __init__(
        self,
        random: Random,
        topic_ids: dict[str, UUID],
        brokers: Sequence[int] = (1,),
        directories: Sequence[str] = ("/data",),
        difficult_share: float = DIFFICULT_SHARE,
        patience: int = 1,
    ) -> None:
        """`patience`: so many times as long as usual may a request wait."""
        self.random = random
        self.known = Known(random, topic_ids, brokers, directories)
        self.plausible = Plausible(random, self.known)
        self.batches = Batches(random)
        self.short_ms = {name: limit * patience for name, limit in SHORT_MS.items()}
        self.variants = Variants(random, self.known, self.batches, self.short_ms)
        self.still_ids = (STILL.encode(), topic_ids[STILL].bytes)
        every = [(api, v) for api, entry in APIS.items() for v in entry.served]
        self.difficult = [pair for api in APIS if api in ADMINISTRATION for pair in _often(api)]
        self.usual = [pair for pair in every if pair[0] not in DIFFICULT]
        self._kept: dict[tuple[Api, int], Template] = {}
        self._flexible = {pair for pair in every if pair[1] >= APIS[pair[0]].spec.flexible}
        self._difficult_share = difficult_share

    def whole(self, correlation_id: int) -> Asked:
        """A request that must be answered."""
        while True:
            api, version = self._pair()
            template = self._template(api, version)
            met = self.known.somebody(api) if self.random.random() < MET_SHARE else None
            edits_of = FEW_EDITS if api in DRAWN_ANEW else EDITS
            body = self.variants.whole(template.body, template.spans, template.topic, met, edits_of)
            if len(body) <= WHOLE_BYTES_MAX:
                return Asked(self._framed(api, version, correlation_id, body), api, version, correlation_id)

    def broken(self, correlation_id: int) -> tuple[bytes, Asked | None]:
        """A frame that is damaged, and the request that it is all the same, if it is one."""
        while True:
            api, version = self._pair()
            template = self._template(api, version)
            body = self.variants.broken(template.body, template.spans)
            frame = self._framed(*self._renamed(api, version), correlation_id, body)
            if self.random.random() < 0.05:
                lie = self.random.choice((-2, -1, 0, 3, 5, 100, (1 << 15) - 1, -(1 << 15)))
                frame = frame[:12] + lie.to_bytes(2, "big", signed=True) + frame[14:]  # of the client's name
            asked = read(frame)
            if asked is None or self._may_be_sent(asked):
                return frame, asked

    def endless(self, correlation_id: int) -> bytes:
        """A frame that says it is longer than it is, or has a size that no frame has."""
        api, version = self._pair()
        frame = self._framed(api, version, correlation_id, self._template(api, version).body)
        lies = (-1, -(1 << 31), 0, 7, len(frame), len(frame) + 1000, 1 << 20, 100 << 20, (1 << 31) - 1)
        return SIZE.pack(self.random.choice(lies)) + frame[4:]

    def silent(self, correlation_id: int) -> bytes:
        """A produce without an answer (acks=0), of the victim: who knows whether it was written?"""
        version = self.random.choice(APIS[Api.PRODUCE].served)
        topics = [TopicProduceData(name=VICTIM, partition_data=[self._produced() for _ in range(2)])]
        body = encode(ProduceRequest(acks=0, timeout_ms=WRITTEN_MS, topic_data=topics), version)
        return self._framed(Api.PRODUCE, version, correlation_id, b"".join(map(bytes, body)))

    def _produced(self) -> PartitionProduceData:
        return PartitionProduceData(
            index=self.random.choice((0, 1, 7)), records=self.variants.records(VICTIM)
        )

    def _pair(self) -> tuple[Api, int]:
        random = self.random.random
        pairs = self.difficult if random() < self._difficult_share else self.usual
        return pairs[int(random() * len(pairs))]

    def _renamed(self, api: Api, version: int) -> tuple[int, int]:
        """The API and version that a broken frame says it has: nearly always its own."""
        way = self.random.random()
        if way < 0.05:
            return api, version + self.random.choice((-1, 1, 1, 5))
        if way < 0.07:
            return self.random.choice((*APIS, -1, 17, 99, 0x7FFF)), version
        return api, version

    def _may_be_sent(self, asked: Asked) -> bool:
        """Whether a request that damage has made does no more than what is drawn may do."""
        api, request = asked.api, asked.request
        if api in DIFFICULT:
            return False
        if api in CHANGING and any(each in asked.frame for each in self.still_ids):
            return False
        if api == Api.PRODUCE and (request.acks == 0 or request.timeout_ms < WRITTEN_MS):
            return False
        return api == Api.PRODUCE or all(
            getattr(request, name, 0) <= limit for name, limit in self.short_ms.items()
        )  # fmt: skip

    def _framed(self, api: int, version: int, correlation_id: int, body: bytes) -> bytes:
        name, size = CLIENT, len(CLIENT)
        if self.random.random() < OTHER_CLIENTS_SHARE:
            given = self.random.choice(CLIENT_IDS)
            name, size = (given or "").encode(), -1 if given is None else len((given or "").encode())
        tail = name + (b"\0" if (api, version) in self._flexible else b"")
        head = HEAD.pack(api, version, correlation_id, size)
        return SIZE.pack(HEAD.size + len(tail) + len(body)) + head + tail + body

    def _template(self, api: Api, version: int) -> Template:
        found = self._kept.get((api, version))
        uses = USES_OF_THOSE if api in DRAWN_ANEW else USES
        if found is None or self.random.random() < 1 / uses:
            found = self._drawn(api, version)
            if self.random.random() < RICHER_SHARE:  # many are nearly empty
                found = max(found, self._drawn(api, version), key=_richness)
            self._kept[api, version] = found
        return found

    def _drawn(self, api: Api, version: int) -> Template:
        message = sample(APIS[api].request, version, self.random)
        topic = VICTIM if api in CHANGING else STILL
        if api == Api.PRODUCE and self.random.random() < 0.3:
            topic = VICTIM
        self._fit(message, topic)
        body = b"".join(bytes(part) for part in encode(message, version))
        spans, end = spans_of(type(message), version, body)
        assert end == len(body), f"{message} v{version}: {end} of {len(body)} bytes were walked"
        return Template(body, spans, topic)

    def _fit(self, message: Any, topic: str) -> None:
        """Put in what exists, so that requests come further than to their names; let nothing wait long."""
        owner = type(message).__name__
        random = self.random
        if self.plausible.fits(type(message)) and random.random() < PLAUSIBLE_SHARE:
            return self.plausible.fit(message, topic)
        for one in fields_of(type(message)):
            value = getattr(message, one.name)
            if one.array and value and len(value) > ITEMS_USUAL and random.random() > MANY_SHARE:
                value = value[:ITEMS_USUAL]
                setattr(message, one.name, value)
            if value and one.array and isinstance(one.wire, type) and self.plausible.fits(one.wire):
                value = value[: 1 + int(random.random() ** 3 * 3)]
                setattr(message, one.name, value)
            if (owner, one.name) in CHOSEN:
                setattr(message, one.name, random.choice(CHOSEN[owner, one.name]))
            elif isinstance(one.wire, type):
                for each in value if isinstance(value, list) else [value] if value is not None else []:
                    self._fit(each, topic)
            elif one.name in self.short_ms:
                limit = self.short_ms[one.name]
                setattr(message, one.name, limit if random.random() < FIT_SHARE else min(value, limit))
            elif one.name == "records":
                setattr(message, one.name, self.variants.records(topic))
            elif random.random() < FIT_SHARE:
                self._fit_plain(message, owner, one.name, topic, one.array)
        return None

    def _fit_plain(self, message: Any, owner: str, name: str, topic: str, array: bool) -> None:
        value = self.known.value(owner, name, topic)
        if value is None or getattr(message, name) is None:
            return
        if array:
            value = [self.known.value(owner, name, topic) for _ in getattr(message, name)]
        setattr(message, name, value)


def _often(api: Api) -> list[tuple[Api, int]]:
    """Its versions, so often that each API has as many places as the others."""
    versions = APIS[api].served
    times = PLACES // len(versions) * (2 if api == Api.INCREMENTAL_ALTER_CONFIGS else 1)
    return [(api, version) for version in versions] * times


def _richness(template: Template) -> int:
    return len(template.spans)
