"""The groups that this broker coordinates: state, members, what each has committed.

Left to others: how far the logs are (partitions.py, on other brokers), lag (web/api_groups.py).
"""

from itertools import islice
from typing import TYPE_CHECKING, Any

from ...client.consumer.group_protocol import decode_assignment
from ...protocol.errors import ApiError
from ...protocol.primitives import Malformed
from ..groups.consumer.group import ConsumerGroup
from ..groups.group import Group
from ..groups.offsets import CommittedOffsets
from ..groups.state import GroupState

if TYPE_CHECKING:
    from ..context import BrokerContext
    from ..groups.shards import AnyGroup

GROUPS_MAX = 200  # in one answer
MEMBERS_MAX = 200
OFFSETS_MAX = 5_000


def group_rows(broker: "BrokerContext", search: str) -> dict[str, Any]:
    """Groups whose name contains `search`, by name; further ones are only counted."""
    found = [group for group in broker.groups.all_groups() if search in group.name]
    left = OFFSETS_MAX
    rows = []
    for group in found[:GROUPS_MAX]:
        offsets = _offsets(broker, group.name, left)
        left -= len(offsets["offsets"])
        rows.append({**_row(group), **offsets})
    return {"loading": broker.groups.is_loading, "count": len(found), "rows": rows}


def group_members(broker: "BrokerContext", name: str) -> dict[str, Any] | None:
    """One group with its members and offsets; None if it is not coordinated here."""
    try:
        held = broker.groups.find(name, empty_name_ok=True)
    except ApiError:
        return None
    if held is None or held.group.is_dead:
        return None
    members = _consumers(held.group) if isinstance(held.group, ConsumerGroup) else _classic(held.group)
    return {
        **_row(held.group),
        "members": members[:MEMBERS_MAX],
        **_offsets(broker, name, OFFSETS_MAX),
    }


def _row(group: "AnyGroup") -> dict[str, Any]:
    if isinstance(group, ConsumerGroup):
        generation, count = group.epoch, len(group.subscriptions)
    else:
        generation, count = group.generation, len(group.members)
    return {
        "name": group.name,
        "type": group.type.value,
        "state": group.state.value,
        "protocol": group.protocol_type or "",
        "generation": generation,
        "member_count": count,
    }


def _offsets(broker: "BrokerContext", name: str, most: int) -> dict[str, Any]:
    """`offsets`: `[topic, partition, committed offset]` of each partition for which the group has one,
    at most so many; `offset_count`: how many there are.
    """
    try:
        held = broker.groups.find(name, empty_name_ok=True)
    except ApiError:
        held = None  # resigned a moment ago
    offsets = CommittedOffsets() if held is None else held.offsets
    rows = [[*tp, known.offset] for tp in islice(offsets, most) if (known := offsets.get(tp)) is not None]
    return {"offsets": sorted(rows), "offset_count": len(offsets)}


def _classic(group: Group) -> list[dict[str, Any]]:
    stable = group.state is GroupState.STABLE
    return [
        {
            "id": member.member_id,
            "instance": member.instance_id,
            "client": member.client_id,
            "host": member.client_host,
            "assignment": _assigned(member.assignment) if stable else [],
        }
        for member in group.members
    ]


def _assigned(assignment: bytes) -> list[list[Any]] | None:
    """None if it is not in the format of consumers, which only a group's own members have to read."""
    try:
        return sorted([topic, number] for topic, number in decode_assignment(assignment))
    except (Malformed, ApiError, ValueError):
        return None


def _consumers(group: ConsumerGroup) -> list[dict[str, Any]]:
    names = {facts.id: name for name, facts in group.topics.items()}
    return [
        {
            "id": member_id,
            "instance": said.instance_id,
            "client": said.client_id,
            "host": said.client_host,
            "assignment": sorted(
                [names[topic], number]
                for topic, number in group.progress_of(member_id).assigned
                if topic in names
            ),
        }
        for member_id, said in group.subscriptions.items()
    ]
