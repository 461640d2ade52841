"""Under a controller of Kafka a topic is deleted and made again, or deleted in the middle of a transaction.

Ours tell their brokers the settings of a topic with its roles, and say when they have named all topics there
are. Kafka's do neither.
"""

from strandline.client.admin.descriptions import NewTopic
from strandline.client.sync import Admin, Producer
from strandline.protocol.errors import ErrorCode, MessageTooLarge
from strandline.testing.verify.places.kafka import KafkaPlace
from strandline.testing.verify.znodes import Znodes
from strandline.testing.waiting import until
from tests.integration.test_transactions import Producer as Transactional
from tests.integration.test_transactions import name_for
from tests.mixed.conftest import KAFKAS, OURS

WITHIN_S = 60.0


def test_settings_of_the_earlier_topic_do_not_count(pair: KafkaPlace) -> None:
    """Nothing else happens in the cluster between the two."""
    with Admin(pair.bootstrap) as admin, Znodes(pair.cluster.zookeeper) as znodes:
        assert znodes.controller() == KAFKAS
        small = {"max.message.bytes": "200"}
        admin.create_topics([NewTopic("again", assignments={0: [OURS]}, configs=small)])
        until(lambda: not takes(pair), WITHIN_S, "the setting has come")
        admin.delete_topics(["again"])
        until(lambda: not znodes.deleted(), WITHIN_S, "it is deleted")
        admin.create_topics([NewTopic("again", assignments={0: [OURS]})])
        assert takes(pair)


def takes(pair: KafkaPlace) -> bool:
    """Whether the topic takes a record of some size."""
    with Producer(pair.bootstrap) as producer:
        try:
            producer.send("again", b"x" * 1_000, partition=0).result(WITHIN_S)
        except MessageTooLarge:
            return False
    return True


def test_a_transaction_ends_though_its_topic_is_deleted(pair: KafkaPlace) -> None:
    """Its coordinator is ours. There is nobody who would take the marker, and the next one can begin."""
    with Admin(pair.bootstrap) as admin, Znodes(pair.cluster.zookeeper) as znodes:
        assert znodes.controller() == KAFKAS
        admin.create_topics([NewTopic("doomed", assignments={0: [KAFKAS]})])
        name = name_for(pair.cluster, "doomed", OURS, is_here=True)
        producer = Transactional(pair.cluster, name, "doomed")
        assert producer.coordinator == OURS
        producer.add()
        assert producer.send(KAFKAS) == ErrorCode.NONE
        admin.delete_topics(["doomed"])
        until(lambda: "doomed" not in admin.list_topics(), WITHIN_S, "it is deleted")
        producer.end(committed=True)
        admin.create_topics([NewTopic("next", assignments={0: [KAFKAS]})])
        producer.topic, producer.sequence = "next", 0
        producer.add()
        producer.end(committed=False)
