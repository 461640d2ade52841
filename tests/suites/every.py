"""All suites, in the order of the page."""

from tests.suites.declared import Suite
from tests.suites.librdkafka import LIBRDKAFKA
from tests.suites.python_suites import AIOKAFKA, CONFLUENT, CONFLUENT_CONSUMER, KAFKA_PYTHON
from tests.suites.sarama import SARAMA

SUITES: dict[str, Suite] = {
    one.name: one for one in (AIOKAFKA, KAFKA_PYTHON, CONFLUENT, CONFLUENT_CONSUMER, SARAMA, LIBRDKAFKA)
}
