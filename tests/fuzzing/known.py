"""What exists at the broker, to be put into requests so that they come further than to a name.

Topics, groups and transactional ids have names that are known from the start. Ids of topics that were
made, members, generations, producer ids and epochs are learned from answers; what belongs to one member or
producer is used together: a member's id alone gets no further than none.
Left to others: what exists nowhere (values.py), where a value is put (drawing.py, plausible.py, variants.py).
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any
from uuid import UUID

from strandline.protocol.apis import Api
from strandline.protocol.primitives import NO_UUID
from strandline.storage.config import StorageConfig, TopicConfig
from tests.fuzzing import values

STILL, VICTIM = "still", "victim"  # what only Produce may change, and what anything may
OWN = TopicConfig.of(StorageConfig(retention_ms=-1)).to_names()
"""All settings of STILL: those of brokers do not touch it then."""
GROUPS, IDS = ("g", "g", "h", "c"), ("x", "y")
OF_CONSUMERS = "c"  # the group whose members mostly speak the protocol of KIP-848
MET_MAX = 24
ALIASES = {
    "generation_id_or_member_epoch": "generation_id",
    "coordinator_key": "group_id",
    "v3_and_below_transactional_id": "transactional_id",
    "v3_and_below_producer_id": "producer_id",
    "v3_and_below_producer_epoch": "producer_epoch",
}
LEARNED_FROM = {Api.JOIN_GROUP, Api.CONSUMER_GROUP_HEARTBEAT, Api.INIT_PRODUCER_ID, Api.CREATE_TOPICS}
OF_MEMBERS = {
    Api.JOIN_GROUP, Api.SYNC_GROUP, Api.HEARTBEAT, Api.LEAVE_GROUP, Api.OFFSET_COMMIT, Api.OFFSET_FETCH,
    Api.CONSUMER_GROUP_HEARTBEAT, Api.TXN_OFFSET_COMMIT,
}  # fmt: skip
OF_PRODUCERS = {
    Api.INIT_PRODUCER_ID, Api.ADD_PARTITIONS_TO_TXN, Api.ADD_OFFSETS_TO_TXN, Api.END_TXN, Api.PRODUCE,
    Api.WRITE_TXN_MARKERS, Api.TXN_OFFSET_COMMIT, Api.LIST_TRANSACTIONS,
}  # fmt: skip
PRODUCED, PRODUCED_SHARE = ("TopicProduceData", "PartitionProduceData"), 0.8
"""Most of what is produced goes where it can be taken."""
SESSION_IDS_MAX = 16
SESSIONS_FROM, SESSION_FLEXIBLE_FROM = 7, 12  # versions of Fetch
SUBSCRIPTION = b"\0\0" + b"\0\0\0\1" + b"\0\5still" + b"\xff\xff\xff\xff"
ASSIGNMENT = b"\0\0" + b"\0\0\0\1" + b"\0\5still" + b"\0\0\0\1" + b"\0\0\0\0" + b"\xff\xff\xff\xff"
SUBSCRIPTIONS = (
    SUBSCRIPTION,
    SUBSCRIPTION,
    SUBSCRIPTION,
    b"",
    b"\0",
    b"\0\3" + b"\x7f\xff\xff\xff",
    b"\xff" * 20,
)
ASSIGNMENTS = (ASSIGNMENT, ASSIGNMENT, b"", b"\0\0\x7f\xff\xff\xff")
INSTANCES = ("s-1", "s-1", "s-1", "s-1", "s-2", "s-2", "", "é", "x" * 300, "x" * 32_767)
RACKS = ("r1", "", "é")

Met = Mapping[str, Any]


class Known:
    """Names, ids of topics, and who was met: values that belong together, by the name of their field."""

    def __init__(
        self,
        random: Random,
        topic_ids: Mapping[str, UUID],
        brokers: Sequence[int] = (1,),
        directories: Sequence[str] = ("/data",),
    ) -> None:
        self.random, self.topic_ids = random, dict(topic_ids)
        self.brokers, self.directories = brokers, directories
        self.members: deque[Met] = deque(maxlen=MET_MAX)
        self.producers: deque[Met] = deque(maxlen=MET_MAX)
        self.sessions = deque((0, 0, 1), maxlen=SESSION_IDS_MAX)
        self._by_name = self._table()

    def somebody(self, api: Api) -> Met:
        """A member of a group, a producer, or both, with all that is known of them: who asks such things."""
        found: dict[str, Any] = {}
        if api in OF_MEMBERS and self.members:
            found |= self.random.choice(self.members)
        if api in OF_PRODUCERS and self.producers:
            found |= self.random.choice(self.producers)
        return found

    def learn(self, api: Api, request: Any, answer: Any) -> None:
        """A member has joined, a producer has got its id, or a topic was made."""
        if api == Api.JOIN_GROUP and answer.member_id:
            met = {"group_id": request.group_id, "member_id": answer.member_id}
            self.members.append(met | {"generation_id": answer.generation_id})
        elif api == Api.CONSUMER_GROUP_HEARTBEAT and answer.error_code == 0:
            met = {"group_id": request.group_id, "member_id": answer.member_id}
            epoch = answer.member_epoch
            self.members.append(met | {"member_epoch": epoch, "generation_id": epoch})
        elif api == Api.INIT_PRODUCER_ID and answer.error_code == 0:
            met = {"transactional_id": request.transactional_id} if request.transactional_id else {}
            self.producers.append(
                met | {"producer_id": answer.producer_id, "producer_epoch": answer.producer_epoch}
            )
        elif api == Api.CREATE_TOPICS:
            made = {one.name: one.topic_id for one in answer.topics if one.topic_id != NO_UUID}
            self.topic_ids |= {name: id for name, id in made.items() if name != STILL}

    def learn_session(self, version: int, answer: bytes) -> None:
        """The id of a fetch session stands where it always does: behind the header, a time and a code."""
        if version >= SESSIONS_FROM:
            at = 10 + (version >= SESSION_FLEXIBLE_FROM)
            if (id := int.from_bytes(answer[at : at + 4], "big", signed=True)) > 0:
                self.sessions.append(id)

    def topic(self, topic: str) -> str:
        """The name of a topic: mostly of this one. Where that is not STILL, never of STILL."""
        way, choice = self.random.random(), self.random.choice
        if way < 0.65:
            return topic
        if way < 0.85:
            return choice(values.MADE)
        if way < 0.9:
            return choice((*values.INTERNAL, VICTIM))
        return choice(values.ODD_NAMES)

    def topic_id(self, topic: str) -> UUID:
        """The id of a topic, likewise; or of none."""
        if topic in self.topic_ids and self.random.random() < 0.75:
            return self.topic_ids[topic]
        others = [id for name, id in self.topic_ids.items() if name != STILL]
        return self.random.choice((*others, NO_UUID, UUID(int=1), UUID(int=(1 << 128) - 1)))

    def group(self) -> str:
        """The name of a group."""
        return self._named(GROUPS)

    def value(self, owner: str, name: str, topic: str) -> Any:
        """What fits a field of that name; None if nothing is known to."""
        chosen = values.ENUMERATIONS.get((owner, name))
        if chosen is not None:
            return self.random.choice(chosen)
        if owner in PRODUCED and self.random.random() < PRODUCED_SHARE:
            return topic if name == "name" else self.random.choice((0, 0, 1))
        if name == "name" and ("Config" in owner or "Protocol" in owner):
            name = "name of a setting" if "Config" in owner else "protocol_name"
        made = self._by_name.get(name)
        return None if made is None else made(topic)

    def _named(self, names: Sequence[str]) -> str:
        return self.random.choice(names if self.random.random() < 0.85 else values.ODD_NAMES)

    def _table(self) -> dict[str, Callable[[str], Any]]:
        """By the name of a field: how a value is made for it."""
        choice = self.random.choice

        def one_of(found: Sequence[Any]) -> Callable[[str], Any]:
            return lambda topic: choice(found)

        def group(_: str) -> str:
            return self._named(GROUPS)

        def transactional_id(_: str) -> str:
            return self._named(IDS)

        def member(_: str) -> str:
            return self.somebody(Api.HEARTBEAT).get("member_id") or choice(values.ODD_NAMES)

        def producer(_: str) -> int:
            return int(self.somebody(Api.END_TXN).get("producer_id", choice(values.OFFSETS)))

        brokers = (*self.brokers, *self.brokers, *self.brokers, -1, 0, 99)
        topics = ("topic", "name", "topic_name", "topic_names", "subscribed_topic_names")
        partitions = ("partition", "partition_index", "index", "partitions", "partition_indexes")
        epochs = ("current_leader_epoch", "leader_epoch", "last_fetched_epoch", "committed_leader_epoch")
        return {
            **dict.fromkeys(topics, self.topic),
            **dict.fromkeys(partitions, one_of(values.PARTITIONS)),
            **dict.fromkeys(("group_id", "groups", "group_ids", "groups_names"), group),
            **dict.fromkeys(("transactional_id", "transactional_ids"), transactional_id),
            **dict.fromkeys(("key", "coordinator_keys"), lambda _: self._named((*GROUPS, *IDS))),
            **dict.fromkeys(("broker_ids", "replicas"), one_of(brokers)),
            **dict.fromkeys(epochs, one_of(values.EPOCHS)),
            **dict.fromkeys(("group_instance_id", "instance_id"), one_of(INSTANCES)),
            **dict.fromkeys(("fetch_offset", "log_start_offset"), one_of(values.OFFSETS)),
            "topic_id": self.topic_id,
            "resource_name": lambda topic: choice((topic, self.topic(topic), group(topic), "", "1", "2")),
            "resource_type": one_of((*values.KINDS, *values.NO_KINDS)),
            "name of a setting": one_of((*values.ALL_NAMES, *values.SPECIAL)),
            "configuration_keys": one_of(values.ALL_NAMES),
            "config_operation": one_of((*values.OPERATIONS, *values.NO_OPERATIONS)),
            "value": one_of(values.SOME_VALUES),
            "path": lambda _: self._named(self.directories),
            "session_id": lambda _: choice(self.sessions),
            "member_id": member,
            "producer_id": producer,
            "producer_id_filters": producer,
            "protocol_type": one_of(("consumer", "consumer", "consumer", "connect", "", "é")),
            "protocol_name": one_of(("range", "roundrobin", "range", "", "x" * 300)),
            "metadata": one_of(SUBSCRIPTIONS),
            "assignment": one_of(ASSIGNMENTS),
            "rack_id": one_of(RACKS),
            "v3_and_below_transactional_id": transactional_id,
        }
