"""`/why`: the answers of `strandline why` over HTTP."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from strandline.broker.node import Node
from strandline.broker.web.why import AT_ONCE_MAX, QUESTIONS
from strandline.client.admin.admin import Admin
from strandline.client.admin.descriptions import NewTopic
from strandline.client.producer.producer import Producer
from tests.broker.test_node import address, chroot, config, running
from tests.broker.test_web_server import sent
from tests.patience import HANG_S

__all__ = ["chroot"]

WEB = {"listener": "127.0.0.1:0"}


async def asked(node: Node, path: str) -> tuple[int, Any]:
    assert node.web_port is not None
    status, headers, body = await sent(node.web_port, f"GET {path}")
    is_json = headers["content-type"] == "application/json"
    return status, json.loads(body) if is_json else body.decode()


async def test_a_broker_answers_for_itself(chroot: str, tmp_path: Path) -> None:
    async with running(config(chroot, tmp_path, web=WEB)) as one, Admin(address(one)) as admin:
        await admin.create_topics([NewTopic("dots.and-dashes", 1, 1)])
        async with Producer(address(one), acks="all") as producer:
            await producer.send("dots.and-dashes", b"x")
        tp = "dots.and-dashes-0"
        status, told = await asked(one, f"/why/not-visible/{tp}@5")
        assert (status, told["question"], told["partition"], told["end"]) == (200, "not-visible", tp, 1)
        assert told["answer"].startswith("offset 5 is not written yet") and told["visible"] is False
        status, text = await asked(one, f"/why/not-visible/{tp}@0?format=text")
        assert (status, text) == (200, "offset 0 is visible: the high watermark is 1\n")
        status, told = await asked(one, f"/why/leader/{tp}")
        assert (status, told["leader"], told["asked"], told["silent"]) == (200, 1, [1], {})
        assert "since its creation" in told["answer"]
        assert (await asked(one, f"/why/offline/{tp}"))[1]["offline"] is False
        assert (await asked(one, f"/why/left-isr/{tp}"))[1]["missing"] == []
        status, told = await asked(one, "/why/leader/nothing-0")
        assert status == 404 and "nothing is known about nothing-0" in told["answer"]
        assert (await asked(one, "/why"))[1] == {"questions": QUESTIONS}
        for path, wrong in (
            ("not-visible/t-0", "topic-partition@offset"),
            ("not-visible/t-0@-1", "topic-partition@offset"),
            ("leader/t", "expected topic-partition"),
            (f"not-visible/t-0@{'9' * 5000}", "expected topic-partition@offset"),
            (f"left-isr/t-0?broker={'9' * 5000}", "expected the id of a broker"),
            (f"leader/t-{'9' * 5000}", "expected topic-partition"),
            ("left-isr/t-0?broker=x", "the id of a broker"),
            ("ever/t-0", "unknown question 'ever'"),
        ):
            status, told = await asked(one, f"/why/{path}")
            assert status == 400 and wrong in told["error"], path
        one._web.view.questions = AT_ONCE_MAX
        assert (await asked(one, f"/why/leader/{tp}"))[0] == 503
        assert (await asked(one, f"/why/leader/{tp}?local"))[0] == 200


async def test_any_broker_asks_the_others(
    chroot: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        running(config(chroot, tmp_path, 1)) as one,
        running(config(chroot, tmp_path, 2, web=WEB)) as two,
        Admin(f"{address(one)},{address(two)}") as admin,
    ):
        async with asyncio.timeout(HANG_S):
            while len(two.broker.metadata.brokers) < 2:
                await asyncio.sleep(0.02)
        await admin.create_topic("t", partitions=2, replication_factor=1)
        async with asyncio.timeout(HANG_S):
            while "t" not in two.broker.metadata.topics:
                await asyncio.sleep(0.02)
        (number,) = [n for n, p in two.broker.metadata.topics["t"].partitions.items() if p.leader == 1]
        status, told = await asked(two, f"/why/leader/t-{number}")
        assert (status, told["leader"], told["asked"]) == (200, 1, [1, 2])
        status, told = await asked(two, f"/why/leader/t-{number}?local")
        assert told["asked"] == [2] and "leader" not in told, "the replica is not here"
        monkeypatch.setattr("strandline.broker.web.why.PATIENCE_S", 0.2)
        one._turn.is_open = False  # it reads nothing any more
        status, told = await asked(two, f"/why/leader/t-{number}")
        assert list(told["silent"]) == ["1"] and told["asked"] == [2]
        one._turn.is_open = True
