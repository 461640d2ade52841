"""What an acknowledgement is worth when the leader dies: none, its own, that of all in sync."""

from contextlib import suppress

import pytest

from strandline.base.types import TopicPartition
from strandline.client import ApiError
from strandline.client.sync import Consumer, Producer
from strandline.local.cluster import LocalCluster
from tests.integration.support import DURABLE, create, revive, until
from tests.patience import HANG_S


@pytest.fixture(scope="module")
def cluster(start_cluster) -> LocalCluster:
    return start_cluster(3, DURABLE)


def read_all(bootstrap: str, where: TopicPartition) -> list[bytes]:
    with Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([where])
        end = until(lambda: consumer.end_offsets([where])[where], HANG_S, "the end is known")
        found: list[bytes] = []
        until(lambda: found.extend(r.value for r in consumer.poll(200)) or len(found) >= end, HANG_S, "read")
    return found


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_a_dead_leader_takes_what_nobody_else_has(cluster: LocalCluster, acks: int | str) -> None:
    """The leader stands still, is sent ten records, and is killed. With acks=0 the producer takes all for
    sent, and they are gone; otherwise it was promised nothing that is not there."""
    leader = next(id for id in sorted(cluster.brokers) if id != cluster.controller())
    others = ",".join(b.address for b in cluster.brokers.values() if b.id != leader)
    where = TopicPartition(f"acks-{acks}", 0)
    patience = {"delivery_timeout_ms": 1_500, "request_timeout_ms": 1_000}
    cluster.wait_ready()
    with create(cluster, where.topic, [leader]) as view:
        with Producer(cluster.bootstrap, acks=acks, linger_ms=0, **patience) as producer:
            producer.send(where.topic, b"before").result(HANG_S)
            assert read_all(cluster.bootstrap, where) == [b"before"], "it is connected"
            cluster.brokers[leader].pause()
            sent = [producer.send(where.topic, b"%d" % n) for n in range(10)]
            if acks == 0:
                assert [each.result(HANG_S).offset for each in sent] == [-1] * 10, "all is well, it seems"
            cluster.brokers[leader].kill()
            promised = 1
            for each in sent:
                with suppress(ApiError):
                    promised += each.result(30).offset >= 0
        view.wait_led_without(leader)
        found = read_all(others, where)
        assert found[0] == b"before" and len(found) >= promised
        if acks == 0:
            assert found == [b"before"], "ten records are gone, and nobody was told"
    revive(cluster)
