"""A cluster of two, one of either kind, shared by the tests that need no more."""

from collections.abc import Iterator

import pytest

from strandline.testing.verify.places.kafka import KafkaPlace
from tests.mixed.test_mixed_cluster import jars

KAFKAS, OURS = 1, 2
SETTINGS = {
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "6",
    "offsets.topic.replication.factor": "2",
    "num.replica.fetchers": "2",
}


@pytest.fixture(scope="session")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaPlace]:
    """Broker 1 is Kafka's and the controller, broker 2 is ours."""
    there = KafkaPlace(tmp_path_factory.mktemp("pair"), 2, SETTINGS, jars(), frozenset({OURS}), KAFKAS)
    try:
        there.start()
        yield there
    finally:
        there.close()
