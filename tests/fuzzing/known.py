"""What exists at the broker, to be put into requests so that they come further than to a name.

Topics, groups and transactional ids have names that are known from the start. Members, generations, producer
ids and epochs are learned from answers, and are used together: a member's id alone gets no further than none.
Left to others: where such a value is put (drawing.py, variants.py).
"""

from collections import deque
from collections.abc import Mapping
from random import Random
from typing import Any
from uuid import UUID

from strandline.protocol.apis import Api

STILL, VICTIM = "still", "victim"  # what only Produce may change, and what anything may
GROUPS, IDS = ("g", "h"), ("x", "y")
MET_MAX = 24
ALIASES = {
    "generation_id_or_member_epoch": "generation_id",
    "coordinator_key": "group_id",
    "v3_and_below_transactional_id": "transactional_id",
    "v3_and_below_producer_id": "producer_id",
    "v3_and_below_producer_epoch": "producer_epoch",
}
LEARNED_FROM = {Api.JOIN_GROUP, Api.CONSUMER_GROUP_HEARTBEAT, Api.INIT_PRODUCER_ID}
CONFIGS = ("retention.ms", "cleanup.policy", "max.message.bytes", "segment.bytes", "compression.type")
SUBSCRIPTION = b"\0\0" + b"\0\0\0\1" + b"\0\5still" + b"\xff\xff\xff\xff"
ASSIGNMENT = b"\0\0" + b"\0\0\0\1" + b"\0\5still" + b"\0\0\0\1" + b"\0\0\0\0" + b"\xff\xff\xff\xff"

Met = Mapping[str, Any]


class Known:
    """Names, ids of topics, and who was met: values that belong together, by the name of their field."""

    def __init__(self, random: Random, topic_ids: Mapping[str, UUID]) -> None:
        self.random, self.topic_ids = random, topic_ids
        self.met: deque[Met] = deque(maxlen=MET_MAX)

    def somebody(self) -> Met | None:
        """A member of a group, or a producer, with all that is known of it."""
        return self.random.choice(self.met) if self.met else None

    def learn(self, api: Api, request: Any, answer: Any) -> None:
        """A member has joined, or a producer has got its id."""
        if api == Api.JOIN_GROUP and answer.member_id:
            met = {"group_id": request.group_id, "member_id": answer.member_id}
            self.met.append(met | {"generation_id": answer.generation_id})
        elif api == Api.CONSUMER_GROUP_HEARTBEAT and answer.error_code == 0:
            met = {"group_id": request.group_id, "member_id": answer.member_id}
            self.met.append(met | {"member_epoch": answer.member_epoch, "generation_id": answer.member_epoch})
        elif api == Api.INIT_PRODUCER_ID and answer.error_code == 0:
            met = {"transactional_id": request.transactional_id} if request.transactional_id else {}
            self.met.append(
                met | {"producer_id": answer.producer_id, "producer_epoch": answer.producer_epoch}
            )

    def value(self, owner: str, name: str, topic: str) -> Any:
        """What fits a field of that name; None if nothing is known to."""
        choice = self.random.choice
        match name:
            case "name" if "Config" in owner:
                return choice(CONFIGS)
            case "name" if "Protocol" in owner:
                return choice(("range", "roundrobin"))
            case "topic" | "name" | "resource_name" | "topic_name" | "topic_names":
                return topic
            case "topic_id":
                return self.topic_ids[topic]
            case "partition" | "partition_index" | "index":
                return choice((0, 0, 0, 1))
            case "group_id" | "groups" | "group_ids" | "groups_names":
                return choice(GROUPS)
            case "transactional_id" | "v3_and_below_transactional_id" | "transactional_ids":
                return choice(IDS)
            case "protocol_type":
                return "consumer"
            case "protocol_name":
                return choice(("range", "roundrobin"))
            case "metadata":
                return SUBSCRIPTION
            case "assignment":
                return ASSIGNMENT
            case "acks":
                return choice((-1, 1))
            case "fetch_offset":
                return choice((0, 0, 1, 5))
        return None
