"""An address that a broker advertises and this machine cannot reach: told with its remedy, or waited for.

And addresses that nobody answers at: looks for metadata do not go on asking there.
"""

import re
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from strandline.base.types import TopicPartition
from strandline.client.spark.client import FAILED_RECENTLY_SECONDS, Address, SparkCluster, Unreachable
from strandline.client.spark.leaders import list_offsets
from strandline.client.spark.options import parse
from tests.client.spark.fetch_harness import Story, records, span
from tests.patience import HANG_S


@pytest.fixture
def story(double: Any) -> Iterator[Story]:
    found = Story(double)
    yield found
    found.cluster.close()


@pytest.fixture
def patient(double: Any) -> Iterator[Story]:
    """Whose stall time is Spark's own default."""
    found = Story(double, **{"kafkaConsumer.pollTimeoutMs": "120000"})
    yield found
    found.cluster.close()


@pytest.fixture
def nowhere() -> Iterator[Address]:
    """Where nobody listens, and nobody will."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()


def advertise(story: Story, address: Address) -> None:
    """The leader runs and is named by all, but at an address that leads nowhere from here."""
    story.double.advertised[1] = address
    story.cluster.refresh(["t"])


def test_an_advertised_address_that_cannot_be_reached_is_told_with_its_remedy(
    patient: Story, nowhere: Address
) -> None:
    advertise(patient, nowhere)
    with pytest.raises(Unreachable) as told:
        list(patient.reader(span(0, 400)))
    assert re.fullmatch(
        rf"t-0: {re.escape(socket.gethostname())} cannot connect to broker 1 at 127\.0\.0\.1:{nowhere[1]}"
        r", the address that this broker advertises \(.+\)\. If the broker is running, set its "
        r"advertised\.listeners to an address that Spark's driver and every executor can reach\. For 30 s "
        r"brokers have named it as the leader",
        str(told.value),
    )
    assert 30 < patient.patience.seconds < 33, "long before the stall time"


def test_planning_tells_it_too(story: Story, nowhere: Address) -> None:
    advertise(story, nowhere)
    with pytest.raises(Unreachable, match=rf"broker 1 at .*:{nowhere[1]}, the address that this.*listeners"):
        list_offsets(story.cluster, {TopicPartition("t", 0): -1})


def test_an_address_that_can_be_reached_again_is_no_trouble(patient: Story, nowhere: Address) -> None:
    advertise(patient, nowhere)
    patient.patience.then = lambda seconds: patient.double.advertised.clear() if seconds > 25 else None
    assert patient.read(span(0, 400)) == records(0, 400)


@pytest.mark.parametrize("meanwhile", ["nobody answers", "another epoch"])
def test_a_leader_that_may_be_down_is_waited_for(patient: Story, nowhere: Address, meanwhile: str) -> None:
    """Longer than for one that brokers go on naming."""
    advertise(patient, nowhere)
    seen: set[str] = set()

    def happens(seconds: float) -> None:
        if seconds > 15 and not seen:
            seen.add("harm")
            if meanwhile == "nobody answers":
                patient.double.close()
            else:
                patient.double.elect(1)
        if seconds > 40 and len(seen) == 1:
            seen.add("repair")
            patient.double.advertised.clear()
            if meanwhile == "nobody answers":
                patient.double.revive(1)

    patient.patience.then = happens
    assert patient.read(span(0, 400)) == records(0, 400)
    assert patient.patience.seconds > 40


class Hung:
    """Where connections are taken and nothing is answered."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address: Address = self.listener.getsockname()
        self.connections: list[socket.socket] = []
        self.thread = threading.Thread(target=self._accept, daemon=True)
        self.thread.start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                self.connections.append(self.listener.accept()[0])

    def close(self) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self.thread.join(HANG_S)
        for each in (self.listener, *self.connections):
            each.close()


@pytest.fixture
def hung() -> Iterator[Hung]:
    found = Hung()
    yield found
    found.close()


def test_a_bootstrap_address_where_nobody_answers_is_not_asked_by_later_looks(
    double: Any, hung: Hung
) -> None:
    servers = f"127.0.0.1:{hung.address[1]},{double.servers}"
    story = Story(double, **{"bootstrap.servers": servers, "kafka.request.timeout.ms": "500"})
    story.cluster.refresh(["t"])
    for _ in range(12):
        story.patience.seconds += 2 * FAILED_RECENTLY_SECONDS
        assert story.cluster.refresh(["t"]) == {"t": [0]}
    assert len(hung.connections) <= 1, "by the first look, if that began there"
    double.close()
    with pytest.raises(ConnectionError, match=f"no broker can be reached at .*:{hung.address[1]}"):
        story.cluster.refresh(["t"])
    story.cluster.close()


def test_a_broker_that_does_not_answer_comes_last_for_a_while(double: Any, hung: Hung) -> None:
    """The others go on naming it for as long as they have not noticed."""
    story = Story(double, **{"kafka.request.timeout.ms": "500"})
    double.advertised[2] = hung.address
    story.cluster.refresh(["t"])
    for asked in (1, 2):
        for _ in range(12):
            assert story.cluster.refresh(["t"]) == {"t": [0]}
        assert len(hung.connections) == asked
        story.patience.seconds += FAILED_RECENTLY_SECONDS
    story.cluster.close()


def test_new_workers_do_not_all_begin_with_the_same_address(double: Any) -> None:
    given = parse({"bootstrap.servers": double.servers, "subscribe": "t"}).cluster
    for _ in range(64):
        cluster = SparkCluster(given)
        cluster.refresh(["t"])
        cluster.close()
        if {node for node, _ in double.asked} == {1, 2}:
            return
    pytest.fail("the other one was never asked")
