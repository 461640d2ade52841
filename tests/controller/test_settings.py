"""Settings are changed through a real controller and a real ZooKeeper: fenced, checked, announced."""

import asyncio
import json
from collections.abc import Collection, Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from strandline.controller.active_controller import ActiveController
from strandline.controller.planning.state import ClusterState
from strandline.controller.requests import configs
from strandline.controller.requests.config_changes import Kind
from strandline.protocol.errors import ErrorCode, InvalidConfig, NotController
from strandline.protocol.messages import control
from strandline.protocol.messages.config_changes import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalConfig,
    IncrementalResource,
)
from strandline.zookeeper import documents
from strandline.zookeeper.client import SetData
from tests.controller.test_service import cluster, create, until


class Picky:
    """Knows the one setting that is bad."""

    def check(self, kind: Kind, name: str, settings: Mapping[str, str], changed: Collection[str]) -> None:
        if "bad" in changed:
            raise InvalidConfig(f"{name}: bad")

    def list_default(self, kind: Kind, setting: str) -> str | None:
        return None


async def change(broker: Any, type: int, name: str, validate_only: bool = False, **settings: str) -> Any:
    configs = [IncrementalConfig(name=n, config_operation=0, value=v) for n, v in settings.items()]
    resource = IncrementalResource(resource_type=type, resource_name=name, configs=configs)
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    answer = await broker.controller.ask(request)
    (altered,) = answer.responses
    return altered


async def standing(broker: Any, path: str) -> dict[str, str]:
    data, _ = await broker.zk.get(path)
    document = json.loads(data)
    assert document["version"] == 1
    return dict(document["config"])


async def notices(broker: Any) -> list[Any]:
    names = await broker.zk.children(documents.CONFIG_CHANGES)
    found = [await broker.zk.get(f"{documents.CONFIG_CHANGES}/{name}") for name in names]
    return [json.loads(data)["entity_path"] for data, _ in found]


async def test_a_change_is_written_with_its_notification_and_told(fake_broker: Any) -> None:
    async with cluster(fake_broker, 1, 2) as brokers:
        one, two = brokers[1], brokers[2]
        await create(one, "t", 1, 2)
        two.requests.clear()
        assert (await change(one, 2, "t", retention="5")).error_code == 0
        assert await standing(one, "/config/topics/t") == {"retention": "5"}
        assert await notices(one) == ["topics/t"]
        told = [o for o in two.requests if isinstance(o, control.LeaderAndIsrRequest) and o.topic_states]
        (topic,) = told[-1].topic_states
        assert [(c.name, c.value) for c in topic.configs] == [("retention", "5")]
        _, stat = await one.zk.get("/config/topics/t")
        assert (topic.configs_born, topic.configs_version) == (stat.czxid, stat.version)
        assert (await change(one, 4, "", cleaners="2")).error_code == 0
        assert (await change(one, 4, "2", cleaners="3")).error_code == 0
        assert await standing(one, "/config/brokers/<default>") == {"cleaners": "2"}
        assert await standing(one, "/config/brokers/2") == {"cleaners": "3"}
        assert await notices(one) == ["topics/t", "brokers/<default>", "brokers/2"]
        anew = AlterConfigsResource(
            resource_type=2, resource_name="t", configs=[AlterableConfig(name="a", value="b")]
        )
        await one.controller.ask(AlterConfigsRequest(resources=[anew]))
        assert await standing(one, "/config/topics/t") == {"a": "b"}


async def test_settings_of_a_group_need_no_group_and_leave_no_node(fake_broker: Any) -> None:
    async with cluster(fake_broker, 1) as brokers:
        one = brokers[1]
        path = "/config/groups/a%2Fb"
        assert (await change(one, 32, "a/b", validate_only=True, x="1")).error_code == 0
        assert await one.zk.exists(path) is None
        assert (await change(one, 32, "a/b", x="1", y="2")).error_code == 0
        assert await standing(one, path) == {"x": "1", "y": "2"}
        assert await notices(one) == ["groups/a%2Fb"]
        for name, left in (("x", {"y": "2"}), ("y", None)):
            config = IncrementalConfig(name=name, config_operation=1)
            resource = IncrementalResource(resource_type=32, resource_name="a/b", configs=[config])
            answer = await one.controller.ask(IncrementalAlterConfigsRequest(resources=[resource]))
            assert answer.responses[0].error_code == 0
            assert (await one.zk.exists(path) is None) == (left is None)
            if left is not None:
                assert await standing(one, path) == left
        assert await notices(one) == ["groups/a%2Fb"] * 3
        answer = await one.controller.ask(IncrementalAlterConfigsRequest(resources=[resource]))
        assert answer.responses[0].error_code == 0 and len(await notices(one)) == 3, "there is nothing to do"


async def test_groups_with_settings_are_bounded(fake_broker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(configs, "GROUPS_MAX", 2)
    async with cluster(fake_broker, 1) as brokers:
        names = ("", "x" * 1_001, "g", "h", "i", "g")
        codes = [(await change(brokers[1], 32, name, x="1")).error_code for name in names]
        wrong = ErrorCode.INVALID_REQUEST
        assert codes == [wrong, wrong, 0, 0, wrong, 0]
        assert await brokers[1].zk.children("/config/groups") == ["g", "h"]


async def test_what_is_refused_is_not_written(fake_broker: Any) -> None:
    picky = fake_broker(1)
    picky.dead = set()
    await picky.start(catalogue=Picky())
    await until(lambda: picky.controller.active)
    await create(picky, "t", 1, 1)
    _, before = await picky.zk.get("/config/topics/t")
    codes = [
        (await change(picky, 2, "t", bad="1", good="2")).error_code,
        (await change(picky, 2, "none", good="1")).error_code,
        (await change(picky, 4, "x", good="1")).error_code,
        (await change(picky, 4, "77", good="1")).error_code,
        (await change(picky, 4, "01", good="1")).error_code,  # which no broker would read
        (await change(picky, 4, "9" * 5000, good="1")).error_code,
        (await change(picky, 8, "1", good="1")).error_code,
        (await change(picky, 2, "t", validate_only=True, good="1")).error_code,
        (await change(picky, 2, "t", validate_only=True, bad="1")).error_code,
    ]
    assert codes == [
        ErrorCode.INVALID_CONFIG, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, *[ErrorCode.INVALID_REQUEST] * 5,
        0, ErrorCode.INVALID_CONFIG,
    ]  # fmt: skip
    _, after = await picky.zk.get("/config/topics/t")
    assert after == before and await notices(picky) == []
    assert await picky.zk.exists("/config/brokers/77") is None
    assert await picky.zk.exists("/config/brokers/01") is None
    await picky.stop()


async def test_two_clients_do_not_undo_each_other(fake_broker: Any) -> None:
    async with cluster(fake_broker, 1) as brokers:
        await create(brokers[1], "t", 1, 1)
        await asyncio.gather(*(change(brokers[1], 2, "t", **{f"n{i}": str(i)}) for i in range(8)))
        assert await standing(brokers[1], "/config/topics/t") == {f"n{i}": str(i) for i in range(8)}


async def test_a_deposed_controller_changes_nothing(fake_broker: Any) -> None:
    async with cluster(fake_broker, 1, 2) as brokers:
        await create(brokers[1], "t", 1, 1)
        with pytest.raises(NotController):
            await change(brokers[2], 2, "t", a="1")
        _, fence = await brokers[1].zk.get(documents.CONTROLLER_EPOCH)
        await brokers[1].zk.multi([SetData(documents.CONTROLLER_EPOCH, b"9", fence.version)])
        with pytest.raises(NotController):
            await change(brokers[1], 2, "t", a="1")
        assert await standing(brokers[1], "/config/topics/t") == {}
        assert await notices(brokers[1]) == []


async def test_a_tool_that_writes_to_zookeeper_is_heard_while_a_term_begins(
    fake_broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The watch is the broker's; what it tells before the new term has begun must not be lost."""

    async with cluster(fake_broker, 1, 2) as brokers:
        one, two = brokers.values()
        await create(one, "t", 1, 1)
        data = documents.ConfigDocument(config={"unclean.leader.election.enable": "true"}).data()
        _, stat = await one.zk.get("/config/topics/t")
        has_read, may_go_on, real = asyncio.Event(), asyncio.Event(), ActiveController.open

        async def held_up(active: ActiveController, suspect: Any = None) -> None:
            await real(active, suspect)
            has_read.set()
            await may_go_on.wait()

        monkeypatch.setattr(ActiveController, "open", held_up)
        await one.controller.stop()
        await has_read.wait()
        await two.zk.multi([SetData("/config/topics/t", data, stat.version)])
        two.controller.topic_configured("t")
        may_go_on.set()
        await until(lambda: two.controller.active)
        await until(lambda: two.controller.view.allows_unclean("t"))


@pytest.mark.parametrize(("said", "least"), [("3", 3), ("", 2), ("x", 2), ("9" * 5000, 2)])
def test_a_number_that_a_tool_wrote_and_nobody_can_read_counts_as_not_set(said: str, least: int) -> None:
    topic = SimpleNamespace(configs={"min.insync.replicas": said})
    state = cast(ClusterState, SimpleNamespace(topics={"t": topic}, min_isr=2))
    assert ClusterState.min_isr_of(state, "t") == least
