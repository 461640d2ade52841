"""The HTTP server of a whole broker: what it says from its start to its end."""

import asyncio
import json
import socket
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from strandline.base.types import TopicPartition
from strandline.broker.errors import StartFailed
from strandline.broker.replicas.shared import Role
from strandline.broker.web import readiness
from strandline.broker.web.health import ready_document
from strandline.broker.web.view import View
from strandline.client.admin.admin import Admin
from strandline.client.admin.descriptions import NewTopic
from tests.broker.test_node import address, chroot, config, node, running
from tests.broker.test_web_server import sent
from tests.patience import HANG_S

__all__ = ["chroot"]


async def asked(port: int | None, path: str) -> tuple[int, dict[str, object]]:
    assert port is not None
    status, _, body = await sent(port, f"GET {path}")
    return status, json.loads(body)


async def test_a_broker_is_ready_once_its_partitions_accept_writes(chroot: str, tmp_path: Path) -> None:
    settings = config(chroot, tmp_path, web={"listener": "127.0.0.1:0"})
    async with running(settings) as one, Admin(address(one)) as admin:
        status, health = await asked(one.web_port, "/health")
        assert (status, health["status"], health["reasons"], health["warnings"]) == (200, "running", [], [])
        assert (await asked(one.web_port, "/ready"))[0] == 200
        await admin.create_topics([NewTopic("t", 3, 1)])
        assert (await asked(one.web_port, "/ready"))[0] == 200
        one.broker.replicas.get(TopicPartition("t", 1)).full = "no space left on device"
        why = {"why": "disk_full", "count": 1, "partitions": ["t-1"]}
        async with asyncio.timeout(HANG_S):
            while (found := await asked(one.web_port, "/ready"))[0] == 200:  # it looks once a second
                await asyncio.sleep(0.05)
        assert found[1]["reasons"] == [why] and 0 <= cast(float, found[1]["looked_ago_s"]) < HANG_S
        assert await admin.inspect(1, "web") == {"broker": 1, "web": ["127.0.0.1", one.web_port]}
    with pytest.raises(OSError):
        await asked(one.web_port, "/health")


async def test_a_web_port_in_use_ends_the_start(chroot: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        one = node(config(chroot, tmp_path, web={"listener": f"127.0.0.1:{port}"}))
        with pytest.raises(StartFailed, match="is in use by another process"):
            await one.start()


class Leads:
    """A replica as `/ready` looks at it."""

    def __init__(self, role: Role = Role.LEADING, **values: object) -> None:
        self.role = role
        self.full = values.get("full")
        self.recovering = values.get("recovering", False)
        self.is_forsaken = values.get("is_forsaken", False)
        under = values.get("under_min_isr", False)
        self.leading = SimpleNamespace(under_min_isr=under) if role is Role.LEADING else None


@pytest.mark.parametrize(
    "replica, isr, why",
    [
        (Leads(), [1, 2], None),
        (Leads(under_min_isr=True), [1], "under_min_isr"),
        (Leads(recovering=True), [1], "recovering"),
        (Leads(is_forsaken=True), [1, 2], "forsaken"),
        (Leads(full="no space"), [1], "disk_full"),
        (Leads(Role.FOLLOWING), [1, 2], None),
        (Leads(Role.IDLE), [1, 2], "no_leader"),
        (Leads(Role.OFFLINE), [1, 2], "offline"),
        (None, [1, 2], "not_hosted"),
    ],
)
async def test_a_replica_that_acknowledges_nothing_is_named(
    replica: Leads | None, isr: list[int], why: str
) -> None:
    found = await ready_document(view_of(replica, isr))
    assert [each["why"] for each in found["reasons"]] == ([why] if why else [])
    assert found["ready"] is (why is None)


async def test_a_follower_that_catches_up_counts_only_if_asked_for() -> None:
    view = view_of(Leads(Role.FOLLOWING), [2])
    found = await ready_document(view)
    assert found["ready"] and found["out_of_sync"]["partitions"] == ["t-0"]
    found = await ready_document(view, in_sync=True)
    assert [each["why"] for each in found["reasons"]] == ["out_of_sync"]


@pytest.mark.parametrize(
    "brokers, controller, fenced, reasons",
    [
        ([1, 2], 2, False, []),
        ([2], 2, False, ["not_announced"]),
        ([1, 2], 3, False, ["no_controller"]),
        ([1, 2], 2, True, ["fenced"]),
    ],
)
async def test_a_broker_as_a_whole(
    brokers: list[int], controller: int, fenced: bool, reasons: list[str]
) -> None:
    view = view_of(Leads(), [1], brokers, controller, fenced)
    assert [each["why"] for each in (await ready_document(view))["reasons"]] == reasons


async def test_partitions_are_looked_at_once_a_second_however_many_probes_ask(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(readiness, "FRESH_S", 3600.0)
    view, looked = view_of(Leads(under_min_isr=True), [1, 2], partitions=2_000), 0
    broker: Any = view.broker

    def find(partition: TopicPartition) -> Leads:
        nonlocal looked
        looked += 1
        return Leads(under_min_isr=True)

    broker.replicas.find = find
    found = await asyncio.gather(*(ready_document(view) for _ in range(20)))
    found += [await ready_document(view) for _ in range(20)]
    assert looked == 2_000, "by all forty together"
    (reason,) = found[-1]["reasons"]
    assert reason["count"] == 2_000 and reason["partitions"][:2] == ["t-0", "t-1"]
    assert len(reason["partitions"]) == readiness.NAMED_MAX
    broker.metadata = SimpleNamespace(**vars(broker.metadata))
    await ready_document(view)
    assert looked == 4_000, "at once, for the controller has announced something"
    monkeypatch.setattr(readiness, "FRESH_S", 0.0)
    await ready_document(view)
    assert looked == 6_000


async def test_others_have_their_turn_while_many_partitions_are_looked_at() -> None:
    view, turns = view_of(Leads(), [1, 2], partitions=10 * readiness.STEP), 0
    asked = asyncio.ensure_future(ready_document(view))
    while not asked.done():
        turns += 1
        await asyncio.sleep(0)
    assert turns >= 10


async def test_a_broker_that_begins_to_stop_meanwhile_is_not_ready() -> None:
    view = view_of(Leads(), [1, 2], partitions=2 * readiness.STEP)
    asked = asyncio.ensure_future(ready_document(view))
    await asyncio.sleep(0)
    view.stopping = True
    assert (await asked)["reasons"] == [{"why": "stopping"}]


def view_of(
    replica: Leads | None,
    isr: list[int],
    brokers: Sequence[int] = (1, 2),
    controller: int = 2,
    fenced: bool = False,
    partitions: int = 1,
) -> View:
    """Broker 1 has the partition t-0, or several, as this replica."""
    state = SimpleNamespace(replicas=[1, 2], isr=isr)
    metadata = SimpleNamespace(
        brokers=dict.fromkeys(brokers),
        controller_id=controller,
        topics={"t": SimpleNamespace(partitions=dict.fromkeys(range(partitions), state))},
    )
    broker = SimpleNamespace(
        id=1,
        metadata=metadata,
        shared=SimpleNamespace(fenced=fenced),
        controller=SimpleNamespace(is_informed=True),
        replicas=SimpleNamespace(find=lambda partition: replica),
    )
    return View(cast(Any, SimpleNamespace(broker_id=1)), broker=cast(Any, broker))
