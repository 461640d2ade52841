"""Consumer groups of each client: two members share the partitions, commit, leave, and go on."""

import uuid
from contextlib import ExitStack
from typing import Any

import pytest
from driving import Row, until

PARTITIONS = {0, 1, 2}


def rows(name: str) -> list[Row]:
    return [Row(f"{name}-{i}".encode(), f"{name} {i}".encode()) for i in range(100)]


def test_two_members_share_commit_and_go_on(driver: Any, ours: Any, topic: str) -> None:
    group = f"group-{uuid.uuid4().hex[:12]}"
    ours.produce(topic, rows("first"), "none", idempotent=True)
    found: list[Row] = []

    def poll(*members: Any) -> bool:
        for member in members:
            found.extend(one.row for one in member.poll())
        return True

    with driver.member(topic, group, "quick") as one:
        until(lambda: poll(one) and len(found) >= 100, "the lone member reads everything")
        assert one.assignment() == PARTITIONS
        if "admin" in driver.can:
            one.commit()
            committed = [driver.committed(topic, group, partition) for partition in sorted(PARTITIONS)]
            assert committed == [driver.ends(topic, partition)[1] for partition in sorted(PARTITIONS)]
        with driver.member(topic, group, "quick") as two:

            def shared() -> bool:
                poll(one, two)
                mine, its = one.assignment(), two.assignment()
                return bool(mine and its) and mine | its == PARTITIONS and not mine & its

            until(shared, "two members share three partitions")
            ours.produce(topic, rows("second"), "none", idempotent=True)
            until(lambda: poll(one, two) and len(found) >= 200, "two members read the rest")
        until(lambda: poll(one) and one.assignment() == PARTITIONS, "the one that stays reads all again")
    assert sorted(found) == sorted(rows("first") + rows("second"))
    ours.produce(topic, rows("third"), "none", idempotent=True)
    found.clear()
    with driver.member(topic, group, "quick") as late:
        until(lambda: poll(late) and len(found) >= 100, "the group goes on where it was")
    assert sorted(found) == sorted(rows("third"))


def test_groups_are_listed_and_described(administrator: Any, topic: str) -> None:
    driver = administrator
    group = f"group-{uuid.uuid4().hex[:12]}"
    with driver.member(topic, group, "quick") as member:
        until(lambda: member.poll() or member.assignment() == PARTITIONS, "the member has its partitions")
        assert group in driver.groups()
        assert driver.group_state(group) == "stable"
    until(lambda: driver.group_state(group) in ("empty", "dead"), "the group is empty")


@pytest.mark.parametrize(
    "other, ours_by",
    [
        ("confluent-kafka", {}),
        ("aiokafka", {"partition_assignment_strategy": ("roundrobin",)}),  # all that it offers by default
        ("kafka-python", {}),
    ],
)
def test_clients_of_two_kinds_in_one_group(
    drivers: dict[str, Any], ours: Any, topic: str, other: str, ours_by: dict[str, Any]
) -> None:
    group = f"group-{uuid.uuid4().hex[:12]}"
    ours.produce(topic, rows("mixed"), "none", idempotent=True)
    found: list[Row] = []
    with ExitStack() as members:
        both = [
            members.enter_context(ours.member(topic, group, "quick", **ours_by)),
            members.enter_context(drivers[other].member(topic, group, "quick")),
        ]

        def shared() -> bool:
            for member in both:
                found.extend(one.row for one in member.poll())
            mine, its = (member.assignment() for member in both)
            return bool(mine and its) and mine | its == PARTITIONS and not mine & its

        until(shared, "both have partitions")
        until(lambda: shared() and set(found) >= set(rows("mixed")), "both together read everything")
