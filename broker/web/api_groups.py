"""Consumer groups with members and lag: what their coordinators know, held against the leaders' watermarks.

The lag of a partition is its high watermark less the committed offset, as `kafka-consumer-groups` counts it;
None while the partition's leader does not answer. That of a group is None, too, if it has committed more
offsets than are looked at. All but the asking is pure.
Left to others: asking (api_peers.py), routes (api.py).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..overview.groups import OFFSETS_MAX
from .api_peers import Heard, Peers, Questions

if TYPE_CHECKING:
    from ..context import BrokerContext
    from ..metadata.cache import Picture

ROWS_MAX = 200

Bounds = Mapping[tuple[str, int], tuple[int, int]]
Offset = Sequence[Any]  # topic, partition, committed offset


async def groups_document(broker: "BrokerContext", peers: Peers, search: str) -> dict[str, Any]:
    """The groups whose name contains `search`."""
    heard = await peers.ask_all(broker, {"groups": {"search": search}})
    parts = {other: said.answers["groups"] for other, said in heard.items() if said.answers is not None}
    found = [(other, row) for other, each in parts.items() for row in each["rows"]]
    found.sort(key=lambda one: str(one[1]["name"]))
    found = found[:ROWS_MAX]
    bounds = await _bounds(broker, peers, [offset for _, row in found for offset in row["offsets"]])
    rows = []
    for coordinator, row in found:
        offsets = with_lag(row["offsets"], bounds)
        told = {name: value for name, value in row.items() if name not in ("offsets", "offset_count")}
        count = counted(row)
        rows.append({**told, "coordinator": coordinator, "partitions": count, "lag": total(offsets, count)})
    return {
        "matching": sum(int(each["count"]) for each in parts.values()),
        "loading": sorted(other for other, each in parts.items() if each["loading"]),
        "silent": _silent(heard),
        "rows": rows,
    }


async def group_document(broker: "BrokerContext", peers: Peers, name: str) -> dict[str, Any] | None:
    """One group with members and offsets; None if no broker that answers coordinates it."""
    heard = await peers.ask_all(broker, {"group": {"name": name}})
    for coordinator, said in heard.items():
        group = None if said.answers is None else said.answers["group"]
        if group is not None:
            bounds = await _bounds(broker, peers, group["offsets"])
            offsets = with_lag(group["offsets"], bounds)
            owners = _owners(group["members"])
            for each in offsets:
                each["member"] = owners.get((each["topic"], each["partition"]))
            lag = total(offsets, counted(group))
            return {**group, "coordinator": coordinator, "lag": lag, "offsets": offsets}
    return None


async def _bounds(broker: "BrokerContext", peers: Peers, offsets: Iterable[Offset]) -> Bounds:
    wanted = sorted({(str(topic), int(number)) for topic, number, _ in offsets})[:OFFSETS_MAX]
    if not wanted:
        return {}
    heard = await peers.ask(broker, bounds_questions(broker.metadata, wanted))
    return {
        (topic, number): (start, watermark)
        for said in heard.values()
        if said.answers is not None
        for topic, number, start, watermark in said.answers["bounds"]
    }


def bounds_questions(picture: "Picture", wanted: Iterable[tuple[str, int]]) -> dict[int, Questions]:
    """Each leader is asked for the bounds of its partitions."""
    led: dict[int, list[list[Any]]] = {}
    for topic, number in wanted:
        state = picture.partition(topic, number)
        if state is not None and state.leader in picture.brokers:
            led.setdefault(state.leader, []).append([topic, number])
    return {leader: {"bounds": {"partitions": each}} for leader, each in led.items()}


def with_lag(offsets: Iterable[Offset], bounds: Bounds) -> list[dict[str, Any]]:
    """Each committed offset with the log's bounds and the lag."""
    rows = []
    for topic, number, committed in offsets:
        start, watermark = bounds.get((topic, number), (None, None))
        lag = None if watermark is None else max(watermark - committed, 0)
        rows.append(
            {
                "topic": topic,
                "partition": number,
                "committed": committed,
                "start": start,
                "watermark": watermark,
                "lag": lag,
            }
        )
    return rows


def counted(group: Mapping[str, Any]) -> int:
    """How many offsets a group has; a broker of an older version tells those alone that it sends."""
    count: int = group.get("offset_count", len(group["offsets"]))
    return count


def total(offsets: Sequence[Mapping[str, Any]], count: int) -> int | None:
    """The lag of all `count` partitions; None if that of one is unknown, or not all of them are here."""
    lags = [each["lag"] for each in offsets]
    return None if None in lags or len(lags) < count else sum(lags)


def _owners(members: Iterable[Mapping[str, Any]]) -> dict[tuple[str, int], str]:
    return {
        (topic, number): str(member["id"])
        for member in members
        for topic, number in member["assignment"] or ()
    }


def _silent(heard: Mapping[int, Heard]) -> dict[str, str]:
    return {str(other): said.why for other, said in sorted(heard.items()) if said.why is not None}
