"""All suites, in the order of the page."""

from tests.suites.python_suites import AIOKAFKA, CONFLUENT, KAFKA_PYTHON
from tests.suites.running import PythonSuite
from tests.suites.sarama import SARAMA, GoSuite

SUITES: dict[str, PythonSuite | GoSuite] = {
    one.name: one for one in (AIOKAFKA, KAFKA_PYTHON, CONFLUENT, SARAMA)
}
