"""The Python suites: which release, what they need, the cluster they want, how they are told where it is."""

from dataclasses import replace

from tests.suites.checkout import Stated
from tests.suites.running import PythonSuite
from tests.suites.shape import Cluster, Shape

NO_KIP_848 = "in ZooKeeper mode it does not serve the consumer protocol (KIP-848)"


def _first(cluster: Cluster) -> str:
    return str(next(iter(cluster.ports.values())))


AIOKAFKA = PythonSuite(
    name="aiokafka",
    title="aiokafka",
    version="0.14.0",
    checkout="aiokafka",
    stated=Stated("aiokafka/__init__.py", r'^__version__ = "(.+)"'),
    package="aiokafka",
    needs=(
        "docker==7.1.0",
        "pytest==9.0.2",
        "pytest-asyncio==1.3.0",
        "pytest-mock==3.15.1",
        "async-timeout==5.0.1",
        "cramjam==2.11.0",
    ),
    take=("tests", "pyproject.toml"),
    run=(
        "tests/test_admin.py",
        "tests/test_client.py",
        "tests/test_conn.py",
        "tests/test_consumer.py",
        "tests/test_coordinator.py",
        "tests/test_pep492.py",
        "tests/test_producer.py",
        "tests/test_sender.py",
        "tests/test_transactional_consumer.py",
        "tests/test_transactional_producer.py",
        "tests/test_sasl.py",
    ),
    shape=Shape(
        first_id=0,  # tests of the sender ask node 0
        settings={
            "num.partitions": "2",
            "auto.create.topics.enable": "true",
            "group.initial.rebalance.delay.ms": "0",
        },
    ),
    environment=lambda cluster: {"STRANDLINE_HOST": "127.0.0.1", "STRANDLINE_PORT": _first(cluster)},
    plugin="strandline_aiokafka",
)

KAFKA_PYTHON = PythonSuite(
    name="kafka-python",
    title="kafka-python",
    version="3.0.11",
    checkout="kafka-python",
    stated=Stated("kafka/version.py", r"^__version__ = '(.+)'"),
    package="kafka-python",
    needs=(
        "py==1.11.0",
        "pytest==9.0.2",
        "pytest-mock==3.15.1",
        "pytest-timeout==2.4.0",
        "python-snappy",
        "lz4",
        "zstandard",
        "xxhash",
        "crc32c",
    ),
    take=("test", "pyproject.toml"),
    run=("test/integration",),
    shape=Shape(
        first_id=0,
        settings={
            "num.partitions": "4",
            "auto.create.topics.enable": "true",
            "group.min.session.timeout.ms": "1000",
            "group.initial.rebalance.delay.ms": "0",
        },
    ),
    environment=lambda cluster: {
        "KAFKA_URI": f"kafka://127.0.0.1:{_first(cluster)}",
        "KAFKA_VERSION": "3.9.0",
        "KAFKA_ROOT": str(cluster.directory),
    },
)

CONFLUENT = PythonSuite(
    name="confluent-kafka-python",
    title="confluent-kafka-python",
    version="2.15.0",
    checkout="confluent-kafka-python",
    stated=Stated("pyproject.toml", r'^version = "(.+)"'),
    package="confluent-kafka[schemaregistry,avro,json,protobuf,rules]",
    needs=(
        "urllib3<3",
        "pytest==9.0.2",
        "pytest-timeout==2.4.0",
        "pytest-asyncio==1.3.0",
        "requests-mock",
        "respx",
    ),
    take=("tests",),
    run=("tests/integration/admin", "tests/integration/consumer", "tests/integration/producer"),
    shape=Shape(
        brokers=3,
        settings={"auto.create.topics.enable": "true", "group.initial.rebalance.delay.ms": "0"},
    ),
    environment=lambda cluster: {"BROKERS": cluster.bootstrap},
    plugin="strandline_confluent",
    options=("--timeout=300",),
)

CONFLUENT_CONSUMER = replace(
    CONFLUENT,
    name="confluent-kafka-python-consumer",
    title="confluent-kafka-python, group.protocol=consumer",
    environment=lambda cluster: {"BROKERS": cluster.bootstrap, "TEST_CONSUMER_GROUP_PROTOCOL": "consumer"},
    peers=("strandline", "kafka-4"),
    absent={"kafka": NO_KIP_848},
)
