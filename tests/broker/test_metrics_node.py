"""`/metrics` of whole brokers: values move as they should."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_families
from prometheus_client.parser import text_string_to_metric_families as families

from strandline.base.types import TopicPartition
from strandline.broker.node import Node
from strandline.broker.web.metrics.declared import DECLARED
from strandline.client.admin.admin import Admin
from strandline.client.admin.descriptions import NewTopic
from strandline.client.consumer.consumer import Consumer
from strandline.client.producer.producer import Producer
from strandline.protocol.errors import ApiError
from tests.broker.test_node import address, chroot, config, running
from tests.broker.test_web_server import sent
from tests.patience import HANG_S

__all__ = ["chroot"]

Values = dict[tuple[str, frozenset[tuple[str, str]]], float]
WEB = {"listener": "127.0.0.1:0"}
OPEN = "\nAccept: application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3"


async def text_of(node: Node, accept: str = "") -> str:
    node_port = node.web_port
    assert node_port is not None
    status, headers, body = await sent(node_port, f"GET /metrics{accept}")
    assert status == 200
    assert headers["content-type"].startswith("application/openmetrics-text" if accept else "text/plain")
    return body.decode()


async def values(node: Node) -> Values:
    """All series of a page that is made now."""
    node._web.view.exposition = None
    found: Values = {}
    for family in families(await text_of(node)):
        for sample in family.samples:
            key = sample.name, frozenset(sample.labels.items())
            assert key not in found, f"{key} is there twice"
            found[key] = sample.value
    return found


def at(found: Values, name: str, **labels: str) -> float | None:
    return found.get((name, frozenset(labels.items())))


async def until(node: Node, holds: Callable[[Values], bool]) -> Values:
    async with asyncio.timeout(HANG_S):
        while not holds(found := await values(node)):
            await asyncio.sleep(0.05)
    return found


async def test_a_page_is_what_prometheus_reads(chroot: str, tmp_path: Path) -> None:
    async with running(config(chroot, tmp_path, web=WEB)) as one, Producer(address(one)) as producer:
        await producer.send("t", b"x")
        kinds = {metric.name.removesuffix("_total"): metric.kind for metric in DECLARED}
        for accept, parse in (("", families), (OPEN, open_families)):
            told = list(parse(await text_of(one, accept)))
            names = [family.name for family in told]
            assert len(names) == len(set(names)), "a family is told once"
            for family in told:
                known = kinds.get(family.name)
                assert known == family.type or family.name.startswith(("process_", "python_")), family.name
            assert {"process_cpu_seconds", "process_open_fds", "python_gc_objects_collected"} <= set(names)


async def test_what_is_produced_fetched_and_committed_is_counted_exactly(chroot: str, tmp_path: Path) -> None:
    async with running(config(chroot, tmp_path, web=WEB)) as one, Admin(address(one)) as admin:
        await admin.create_topics([NewTopic("t", 1, 1), NewTopic("other", 2, 1)])
        async with Producer(address(one), acks="all") as producer:
            for _ in range(7):
                await producer.send("t", b"x" * 100)
        found = await values(one)
        assert at(found, "kafka_server_brokertopicmetrics_messagesin_total", topic="t") == 7
        assert at(found, "kafka_server_brokertopicmetrics_messagesin_total", topic="other") == 0
        assert at(found, "kafka_log_log_logendoffset", topic="t", partition="0") == 7
        size = at(found, "kafka_log_log_size", topic="t", partition="0")
        assert size is not None and size > 700
        assert at(found, "kafka_server_brokertopicmetrics_bytesin_total", topic="t") == size
        assert at(found, "kafka_server_replicamanager_leadercount") == 3
        assert at(found, "kafka_controller_kafkacontroller_activecontrollercount") == 1
        assert at(found, "kafka_controller_kafkacontroller_globalpartitioncount") == 3
        assert at(found, "kafka_topic_partitions", topic="other") == 2
        produced = [value for (name, labels), value in found.items() if ("request", "Produce") in labels
                    and name == "kafka_network_requestmetrics_requests_total"]  # fmt: skip
        for phase in ("queue", "local", "remote", "send", "total"):
            labels = {"request": "Produce", "phase": phase}
            assert at(found, "strandline_request_seconds_count", **labels) == sum(produced) > 0
        p99 = at(found, "kafka_network_requestmetrics_totaltimems", request="Produce", quantile="0.99")
        assert p99 is not None and 0 < p99 < 60_000

        consumer = Consumer(address(one), topics=["t"], group="g", auto_offset_reset="earliest")
        async with consumer:
            records = aiter(consumer)
            for _ in range(4):
                last = await anext(records)
            await consumer.commit({TopicPartition(last.topic, last.partition): last.offset + 1})
            of_t = {"consumergroup": "g", "topic": "t", "partition": "0"}
            found = await until(one, lambda v: at(v, "kafka_consumergroup_current_offset", **of_t) == 4)
            assert at(found, "kafka_consumergroup_lag", **of_t) == 3
            assert at(found, "kafka_consumergroup_lag_sum", consumergroup="g", topic="t") == 3
            assert at(found, "kafka_consumergroup_members", consumergroup="g") == 1
            stable = {"consumergroup": "g", "state": "Stable", "protocol": "classic"}
            assert at(found, "strandline_consumergroup_state", **stable) == 1
            out = at(found, "kafka_server_brokertopicmetrics_bytesout_total", topic="t")
            assert out is not None and out >= size
            assert at(found, "strandline_connections", type="web") is not None

        await admin.delete_topics(["t"])
        gone = await until(
            one, lambda v: at(v, "kafka_server_brokertopicmetrics_messagesin_total", topic="t") is None
        )
        everything = at(gone, "kafka_server_brokertopicmetrics_messagesin_total")
        assert everything is not None and everything >= 7, "what is gone was counted all the same"


async def test_many_partitions_are_told_as_totals_and_the_limit_may_be_changed(
    chroot: str, tmp_path: Path
) -> None:
    web = {**WEB, "metrics_partitions_max": 3}
    async with running(config(chroot, tmp_path, web=web)) as one, Admin(address(one)) as admin:
        await admin.create_topics([NewTopic("t", 4, 1)])
        found = await until(one, lambda v: at(v, "kafka_server_replicamanager_partitioncount") == 4)
        assert at(found, "kafka_log_log_size", topic="t", partition="0") is None
        assert at(found, "strandline_topic_log_size_bytes", topic="t") == 0
        assert at(found, "strandline_series_left_out", scope="partition") == 1
        assert at(found, "strandline_series_left_out", scope="topic") == 0
        await admin.alter_configs({"strandline.web.metrics.partitions.max": "4"}, broker=1)
        await until(one, lambda v: at(v, "kafka_log_log_size", topic="t", partition="3") == 0)


async def test_many_scrapers_get_the_same_page(chroot: str, tmp_path: Path) -> None:
    async with running(config(chroot, tmp_path, web=WEB)) as one:
        pages = await asyncio.gather(*(text_of(one) for _ in range(10)))
        assert len(set(pages)) <= 2


async def test_a_refused_request_is_counted_by_its_error(chroot: str, tmp_path: Path) -> None:
    async with running(config(chroot, tmp_path, web=WEB)) as one, Admin(address(one)) as admin:
        with pytest.raises(ApiError):
            await admin.inspect(1, "nothing")
        found = await values(one)
        errors = {"request": "Inspect", "error": "INVALID_REQUEST"}
        assert at(found, "kafka_network_requestmetrics_errors_total", **errors) == 1
