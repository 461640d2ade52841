"""`/metrics` piece by piece: the text format, replicas that fail, and how long the broker is kept."""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_families
from prometheus_client.parser import text_string_to_metric_families as families

from strandline.base.types import BrokerId, TopicPartition
from strandline.broker.config.sections import GroupsConfig
from strandline.broker.groups.consumer.group import ConsumerGroup
from strandline.broker.groups.consumer.surroundings import limits_of
from strandline.broker.network.timings import Timings
from strandline.broker.replicas.shared import Traffic
from strandline.broker.throttle import FOLLOWERS, LEADERS, Throttle
from strandline.broker.web.metrics import cluster, coordinators, exposition, replicas
from strandline.broker.web.metrics import declared as m
from strandline.broker.web.metrics.exposition import SLICE_NS, Exposition, wants_open_metrics
from strandline.broker.web.metrics.page import Page
from strandline.broker.web.view import View
from strandline.protocol.messages.control import TopicConfigEntry
from tests.broker.replica_harness import TP, ask, batch, outcome, produce, until
from tests.broker.replica_harness import cluster as brokers

EVERYTHING = 1_000_000


def gathered(steps: Iterator[None]) -> int:
    """Run a gathering to its end; how many pauses it would have made."""
    return sum(1 for _ in steps)


def value(page: Page, metric: m.Metric, *labels: str) -> float | None:
    """The value of the series with these label values; None if there is none."""
    for line in page.of(metric):
        if all(f'"{label}"' in line for label in labels):
            return float(line.rpartition(" ")[2])
    return None


@pytest.mark.parametrize("is_open, parse", [(False, families), (True, open_families)])
def test_names_of_topics_and_groups_are_escaped(is_open: bool, parse: Any) -> None:
    page = Page()
    strange = 'a"b\\c\nd{},='
    page.put(m.G_MEMBERS, 3, consumergroup=strange)
    page.put(m.MESSAGES_IN, 5, topic="t")
    page.put(m.MESSAGES_IN, 9)
    page.histogram(m.FLUSH_S, [0] * 14 + [1, 2] + [0] * 48, 0.5)
    page.summary(m.ELECTIONS, 4, None, ())
    text = b"".join(page.written(is_open)).decode() + ("# EOF\n" if is_open else "")
    told = {family.name: family for family in parse(text)}
    (members,) = told["kafka_consumergroup_members"].samples
    assert (members.labels, members.value) == ({"consumergroup": strange}, 3)
    assert [each.value for each in told["kafka_server_brokertopicmetrics_messagesin"].samples] == [5, 9]
    flushes = {
        sample.labels.get("le", sample.name.rpartition("_")[2]): sample.value
        for sample in told["strandline_log_flush_seconds"].samples
    }
    assert (flushes["1.6384e-05"], flushes["3.2768e-05"], flushes["+Inf"]) == (1, 3, 3)
    assert (flushes["count"], flushes["sum"]) == (3, 0.5)


def test_metrics_are_declared_once_and_named_as_prometheus_wants() -> None:
    names = [metric.name for metric in m.DECLARED]
    assert len(names) == len(set(names))
    for metric in m.DECLARED:
        assert metric.name.startswith(("kafka_", "strandline_")) and metric.name == metric.name.lower()
        assert metric.name.endswith("_total") == (metric.kind is m.Kind.COUNTER), metric.name
        assert not metric.name.endswith(("_count", "_sum", "_bucket")) or metric.kind is m.Kind.GAUGE
        assert metric.help and metric.section


@pytest.mark.parametrize(
    "accept, is_open",
    [
        ("", False),
        ("*/*", False),
        ("text/plain", False),
        ("application/openmetrics-text", True),
        ("application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3", True),
        ("text/plain;q=0.5, application/openmetrics-text; q=0", False),
    ],
)
def test_open_metrics_is_told_to_who_reads_it(accept: str, is_open: bool) -> None:
    assert wants_open_metrics(accept) is is_open


async def test_a_follower_that_stops_is_under_replicated(tmp_path: Path) -> None:
    async with brokers(tmp_path, 2) as stage:
        await stage.elect(1, [1, 2])
        one, two = stage.members[1], stage.members[2]

        def told(member: Any = one) -> Page:
            page = Page()
            gathered(replicas.replicas(member.broker, page, EVERYTHING))
            return page

        client = await one.connect()
        assert outcome(await ask(client, produce(batch(b"a", b"b")))) == (0, 0)
        page = told()
        assert (value(page, m.UNDER_REPLICATED), value(page, m.PARTITIONS), value(page, m.LEADERS)) == (
            0,
            1,
            1,
        )
        assert value(page, m.MESSAGES_IN, TP.topic) == value(page, m.MESSAGES_IN) == 2
        assert value(page, m.REPLICATION_OUT) == value(page, m.BYTES_IN, TP.topic) == one.partition.log.size
        assert value(told(two), m.REPLICATION_IN) == one.partition.log.size
        assert value(told(two), m.MESSAGES_IN) == 0, "what is replicated is no message in"
        assert value(told(two), m.P_LAG, "ReplicaFetcherThread-0-1", TP.topic) == 0
        two.parts.fetchers.drop(two.partition)
        await ask(client, produce(batch(b"c"), acks=1))
        await until(lambda: value(told(), m.ISR_SHRINKS) == 1)
        page = told()
        assert value(page, m.UNDER_REPLICATED) == value(page, m.TOPIC_UNDER_REPLICATED, TP.topic) == 1
        assert value(page, m.P_UNDER_REPLICATED, TP.topic) == 1
        assert (value(page, m.P_IN_SYNC, TP.topic), value(page, m.P_REPLICAS, TP.topic)) == (1, 2)
        await client.close()


async def test_what_throttled_replicas_take_is_told_by_side(tmp_path: Path) -> None:
    """Kafka's gauges and a total: at the leader what was sent, at the follower what was copied."""
    named = (TopicConfigEntry(name=LEADERS, value="0:1"), TopicConfigEntry(name=FOLLOWERS, value="*"))
    async with brokers(tmp_path, 2) as stage:
        await stage.elect(1, [1, 2], named)
        for member in stage.members.values():
            for side in (member.parts.leader_throttle, member.parts.follower_throttle):
                side.set_rate(1 << 40, asyncio.get_running_loop().time())
        client = await stage.members[1].connect()
        assert outcome(await ask(client, produce(batch(b"x" * 10_000)))) == (0, 0)
        size = stage.members[1].partition.log.size
        for broker, sent, copied in ((1, size, 0), (2, 0, size)):
            page = Page()
            gathered(replicas.replicas(stage.members[broker].broker, page, EVERYTHING))
            sides = [(m.LEADER_RATE, "leader", sent), (m.FOLLOWER_RATE, "follower", copied)]
            for rate, name, nbytes in sides:
                assert value(page, m.THROTTLED, name) == nbytes
                assert nbytes / 11 <= cast(float, value(page, rate)) + 0.1 <= nbytes / 10 + 0.2
        await client.close()


def many(count: int) -> Any:
    """A broker that leads so many partitions, all of them idle."""
    leader = SimpleNamespace(
        under_replicated=False, under_min_isr=False, min_isr=1, is_moving=False, epoch=3, replicas=(1,),
        isr=SimpleNamespace(members=(1,)), high_watermark=10,
    )  # fmt: skip
    log = SimpleNamespace(
        size=100, segments=[None], start_offset=0, end_offset=10, last_stable_offset=int,
        producers=SimpleNamespace(open_transactions=lambda: ()),
    )  # fmt: skip
    partition = SimpleNamespace(
        leading=leader, following=None, log=log, offline=None, traffic=Traffic(), missing=0
    )
    hosted = {TopicPartition(f"topic-{n // 10}", n % 10): partition for n in range(count)}
    return SimpleNamespace(
        replicas=SimpleNamespace(partitions=hosted),
        clock=SimpleNamespace(wall_ms=lambda: 0),
        config=SimpleNamespace(transactions=SimpleNamespace(timeout_ms_max=0)),
        isr=SimpleNamespace(shrinks=0, expands=0, notes=SimpleNamespace(failed=0)),
        shared=SimpleNamespace(
            truncated_below_watermark=0, replication_bytes_in=0, replication_bytes_out=0,
            gone_traffic=Traffic(), loop=SimpleNamespace(time=lambda: 0.0),
        ),
        leader_throttle=(throttle := Throttle(BrokerId(1), 1, LEADERS, lambda topic: {})),
        fetchers=SimpleNamespace(throttle=throttle),
    )  # fmt: skip


def test_ten_thousand_partitions_are_gathered_in_small_steps() -> None:
    page = Page()
    assert gathered(replicas.replicas(many(10_000), page, EVERYTHING)) >= 10_000 / replicas.STEP
    assert len(page.of(m.LOG_SIZE)) == 10_000 and value(page, m.SIZE) == 1_000_000
    page = Page()
    gathered(replicas.replicas(many(10_000), page, 9_999))
    assert not page.of(m.LOG_SIZE) and value(page, m.SIZE) == 1_000_000
    assert len(page.of(m.TOPIC_SIZE)) == 1_000


async def test_the_event_loop_has_its_turn_after_every_slice() -> None:
    """By a clock that only the steps move: between two turns of the loop no more than a slice and a step."""
    now, turns = 0, 0
    view = View(SimpleNamespace(), timings=Timings(lambda: now))  # type: ignore[arg-type]
    exposition = Exposition(view)

    def steps() -> Iterator[None]:
        nonlocal now
        for _ in range(1000):
            now += SLICE_NS // 10
            yield

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    beside = asyncio.ensure_future(others())
    await exposition._in_slices(steps())
    beside.cancel()
    assert 99 <= turns <= 102


def test_a_group_of_many_partitions_is_gathered_in_small_steps() -> None:
    group = ConsumerGroup("g", limits_of(GroupsConfig()), 0.0)
    offsets = SimpleNamespace(get=lambda tp: SimpleNamespace(offset=5))
    committed = [TopicPartition("t", number) for number in range(1000)]
    held = SimpleNamespace(group=group, offsets=_Offsets(committed, offsets.get))
    replica = SimpleNamespace(leading=True, high_watermark=12, following=None)
    broker: Any = SimpleNamespace(
        groups=SimpleNamespace(
            held_groups=lambda: iter((held,)), loading_count=1,
            counts=SimpleNamespace(
                offsets_committed=1, offsets_expired=2, offsets_deleted=3, rebalances_completed=4,
                consumer_rebalances=5, load_ms_max=1500,
            ),
        ),
        replicas=SimpleNamespace(find=lambda tp: replica if tp.partition < 10 else None),
    )  # fmt: skip
    page = Page()
    assert gathered(coordinators.groups(broker, page, EVERYTHING)) >= 1000 / coordinators.STEP
    assert len(page.of(m.G_OFFSET)) == 1000
    assert len(page.of(m.G_LAG)) == 10, "without a replica here the lag is unknown"
    assert value(page, m.G_LAG_SUM, "g", "t") == 70
    assert value(page, m.LOAD_MAX, "groups") == 1.5
    assert value(page, m.G_STATE, "g", "Empty", "consumer") == value(page, m.CONSUMER_PROTOCOL) == 1
    page = Page()
    gathered(coordinators.groups(broker, page, 1000))
    assert not page.of(m.G_OFFSET) and value(page, m.LEFT_OUT, "group") == 1
    assert value(page, m.NUM_OFFSETS) == 1000


class _Offsets(list[TopicPartition]):
    """What a group has committed."""

    def __init__(self, committed: list[TopicPartition], get: Any) -> None:
        super().__init__(committed)
        self.get = get


def test_a_broker_that_starts_tells_only_of_itself() -> None:
    page = Page()
    config: Any = SimpleNamespace(broker_id=7)
    gathered(cluster.process(View(config), page))
    assert value(page, m.BROKER_STATE) == 1 and value(page, m.INFO, "7") == 1
    gathered(cluster.process(View(config, failure=AssertionError()), page := Page()))
    assert value(page, m.BROKER_STATE) == 0


def test_the_alerts_in_the_documentation_ask_for_what_there_is() -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "operations.md").read_text()
    section = text.partition("\n### Prometheus\n")[2].partition("\n### ")[0]
    asked = set(re.findall(r"\b(?:kafka|strandline)_[a-z_]+\b", section))
    known = {metric.name for metric in m.DECLARED}
    known |= {f"{each.name}_bucket" for each in m.DECLARED if each.kind is m.Kind.HISTOGRAM}
    assert len(asked) > 15 and not asked - known


async def test_sizes_of_file_systems_that_once_could_not_be_told_are_asked_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A page that fails once may not fail for good."""
    answers: list[Any] = [RuntimeError("no more threads"), {"/data": (100, 50)}]

    def told(disk: Any, directories: list[str]) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(exposition, "volumes", told)
    made = Exposition(cast(Any, SimpleNamespace(timings=None)))
    broker: Any = SimpleNamespace(logs=SimpleNamespace(disk=None, places=SimpleNamespace(usable=[])))
    with pytest.raises(RuntimeError, match="no more threads"):
        await made._ask_volumes(broker)
    await made._ask_volumes(broker)
    assert made._volumes == {"/data": (100, 50)}
