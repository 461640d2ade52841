"""The cluster as one document: brokers, counts, and a window of partitions with what their leaders know.

Which partitions exist, and who leads them, this broker knows from the controller. Offsets, and the progress
of followers, only each leader knows: it is asked for the partitions of the window only. Where leader and
controller differ, the newer epoch counts. All but the asking is pure.
Left to others: asking (api_peers.py), routes (api.py).
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

from ...base.values import dataclass
from ..topic_names import INTERNAL_TOPICS
from .api_peers import Heard, Questions

if TYPE_CHECKING:
    from ..context import BrokerContext
    from ..metadata.cache import Picture

ROWS_MAX = 200  # partitions in one window
MATCHES_KEPT = 16  # searches
INDEX = "web.partitions"  # the key under which a picture keeps its index
ANY_ADDRESS = ("0.0.0.0", "::")


@dataclass(frozen=True, slots=True)
class Place:
    """A partition as the controller announced it."""

    topic: str
    partition: int
    leader: int
    epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    offline: bool
    under_replicated: bool


@dataclass(frozen=True, slots=True)
class Window:
    """Which partitions a page shows: a part of those that match."""

    search: str = ""
    troubled: bool = False
    internal: bool = False
    at: int = 0
    limit: int = 100

    def matches(self, place: Place) -> bool:
        """Whether it shows this one, on some page."""
        if not self.internal and place.topic in INTERNAL_TOPICS:
            return False
        if self.troubled and not (place.offline or place.under_replicated):
            return False
        return self.search in f"{place.topic}-{place.partition}"


@dataclass(frozen=True, slots=True)
class Index:
    """All partitions of a picture in order, how many are in trouble, and for each broker how many it leads
    and has replicas of. Pages ask for the same windows again and again, so what matches is kept.
    """

    places: tuple[Place, ...]
    leads: Mapping[int, int]
    replicas: Mapping[int, int]
    offline: int
    under_replicated: int
    _matching: dict[tuple[str, bool, bool], list[Place]] = field(default_factory=dict, compare=False)

    def choose(self, window: Window) -> tuple[list[Place], int]:
        """The partitions in the window, and how many match."""
        key = window.search, window.troubled, window.internal
        found = self._matching.pop(key, None)
        if found is None:
            found = [each for each in self.places if window.matches(each)]
        self._matching[key] = found  # now the last one
        if len(self._matching) > MATCHES_KEPT:
            del self._matching[next(iter(self._matching))]
        return found[window.at : window.at + min(window.limit, ROWS_MAX)], len(found)


def index_of(picture: "Picture") -> Index:
    """The index of a picture; made once for each picture."""
    known: Index | None = picture.described.get(INDEX)
    if known is None:
        known = picture.described[INDEX] = _indexed(picture)
    return known


def _indexed(picture: "Picture") -> Index:
    return indexed(
        Place(
            name, number, state.leader, state.leader_epoch, tuple(state.isr), tuple(state.replicas),
            state.leader not in picture.brokers, len(state.isr) < len(state.replicas),
        )
        for name in sorted(picture.topics)
        for number, state in sorted(picture.topics[name].partitions.items())
    )  # fmt: skip


def indexed(partitions: Iterable[Place]) -> Index:
    """The index of these."""
    places = tuple(partitions)
    return Index(
        places,
        Counter(each.leader for each in places),
        Counter(broker for each in places for broker in each.replicas),
        sum(each.offline for each in places),
        sum(each.under_replicated for each in places),
    )


def questions_for(picture: "Picture", rows: Sequence[Place]) -> dict[int, Questions]:
    """What each registered broker is asked: about itself, and about the partitions that it leads."""
    led: dict[int, list[list[Any]]] = {broker: [] for broker in picture.brokers}
    for row in rows:
        if row.leader in led:
            led[row.leader].append([row.topic, row.partition])
    return {broker: {"broker": {}, "led": {"partitions": led[broker]}} for broker in led}


def cluster_document(broker: "BrokerContext", window: Window, heard: Mapping[int, Heard]) -> dict[str, Any]:
    """The document for the page."""
    picture = broker.metadata
    index = index_of(picture)
    rows, total = index.choose(window)
    known = {
        (each["topic"], each["partition"]): {**each, "leader": leader}
        for leader, said in heard.items()
        if said.answers is not None
        for each in said.answers.get("led", ())
    }
    return {
        "asked": broker.id,
        "cluster_id": broker.cluster_id,
        "controller": picture.controller_id if picture.controller_id in picture.brokers else None,
        "controller_epoch": picture.controller_epoch,
        "zookeeper_connected": broker.controller.is_informed,
        "may_create_topics": broker.config.web.create_topics,
        "brokers": _brokers(picture, index, heard),
        "counts": {
            "topics": len(picture.topics),
            "partitions": len(index.places),
            "offline": index.offline,
            "under_replicated": index.under_replicated,
        },
        "partitions": {
            "matching": total,
            "at": window.at,
            "rows": [_row(row, known.get((row.topic, row.partition))) for row in rows],
        },
    }


def _row(place: Place, known: Mapping[str, Any] | None) -> dict[str, Any]:
    """A partition: as its leader knows it, or, if that does not answer, as the controller announced it."""
    row: dict[str, Any] = {
        "topic": place.topic,
        "partition": place.partition,
        "leader": None if place.offline else place.leader,
        "epoch": place.epoch,
        "isr": list(place.isr),
        "replicas": list(place.replicas),
        "state": "offline" if place.offline else "unheard",
        "followers": [],
    }
    if known is None or known["epoch"] < place.epoch:
        return row
    row |= known
    short = len(row["isr"]) < len(place.replicas)
    row["state"] = "under_min_isr" if known["under_min_isr"] else "under_replicated" if short else "ok"
    return row


def _brokers(picture: "Picture", index: Index, heard: Mapping[int, Heard]) -> list[dict[str, Any]]:
    suspected = {
        other
        for said in heard.values()
        if said.answers is not None and "broker" in said.answers
        for other in said.answers["broker"]["suspected"]
    }
    ids = sorted(picture.brokers.keys() | index.replicas.keys())
    return [_broker(picture, index, each, heard.get(each), each in suspected) for each in ids]


def _broker(
    picture: "Picture", index: Index, id: int, heard: Heard | None, suspected: bool
) -> dict[str, Any]:
    """`state`: alive; silent (registered, but has not answered here); suspected (by the controller); gone."""
    live = picture.brokers.get(id)
    facts = None if heard is None or heard.answers is None else heard.answers.get("broker")
    state = "gone" if live is None else "suspected" if suspected else "silent" if facts is None else "alive"
    told: dict[str, Any] = {
        "id": id,
        "state": state,
        "why": heard.why if heard is not None else "it is not registered" if live is None else None,
        "rack": None if live is None else live.rack,
        "addresses": {}
        if live is None
        else {name: f"{each.host}:{each.port}" for name, each in sorted(live.addresses.items())},
        "controller": id == picture.controller_id and live is not None,
        "leads": index.leads.get(id, 0),
        "replicas": index.replicas.get(id, 0),
        "incarnation": None,
        "zookeeper_connected": None,
        "web": None,
    }
    if facts is not None:
        told["incarnation"] = facts["incarnation"]
        told["zookeeper_connected"] = facts["zookeeper"]
        told["web"] = _page(facts["web"], live)
    return told


def _page(web: Sequence[Any] | None, live: Any) -> str | None:
    """The URL of a broker's page; one that listens on all addresses is reached by the one it advertises."""
    if web is None:
        return None
    host, port = str(web[0]), int(web[1])
    if host in ANY_ADDRESS and live is not None and live.addresses:
        host = next(iter(live.addresses.values())).host
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/"
