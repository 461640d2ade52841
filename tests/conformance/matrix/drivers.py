"""Who drives which client, and what its version is."""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

sys.path.append(str(Path(__file__).parents[1]))

from drive_aiokafka import AioKafka
from drive_confluent import Confluent
from drive_kafka_python import KafkaPython
from drive_kcat import Kcat
from drive_strandline import Strandline
from kafka_tools import jars_of
from probing import go_program, java, node_program

from tests.conformance.matrix.drive_async import StrandlineAsync
from tests.conformance.matrix.remote import Remote
from tests.patience import HANG_S

WORKERS = Path(__file__).with_name("workers")


class Driven(NamedTuple):
    """How a driver is made, and how the version of its client is found."""

    make: Callable[[str], Any]
    version: Callable[[], str]


def _kcat_version() -> str:
    told = subprocess.run(["kcat", "-V"], capture_output=True, text=True, timeout=HANG_S, check=True).stdout
    found = re.search(r"Version (\S+) .*librdkafka (\S+)", told)
    assert found, told
    return f"{found[1]} (librdkafka {found[2]})"


def _confluent_version() -> str:
    from confluent_kafka import libversion

    return f"{version('confluent-kafka')} (librdkafka {libversion()[0]})"


def _java(release: str) -> list[str]:
    """The worker with the jars of this release."""
    return java(WORKERS / "Worker.java", jars_of(release))


def _java_version(release: str) -> str:
    (found,) = (jar.stem for jar in jars_of(release).glob("kafka-clients-*.jar"))
    return found.removeprefix("kafka-clients-")


GOLANG = {
    "franz-go": ("franz", "github.com/twmb/franz-go"),
    "sarama": ("sarama", "github.com/IBM/sarama"),
    "kafka-go": ("segmentio", "github.com/segmentio/kafka-go"),
}
"""The package of the worker, and the client's module."""


def _go(package: str) -> list[str]:
    """The worker in this package."""
    return go_program(WORKERS / "golang", f"{package}-worker", f"./{package}")


def _go_version(module: str) -> str:
    """What the worker is built with."""
    told = (WORKERS / "golang" / "go.mod").read_text()
    found = re.search(rf"^\s*(?:require )?{re.escape(module)} v(\S+)$", told, re.MULTILINE)
    assert found, told
    return found[1]


def _kafkajs_version() -> str:
    told = json.loads((WORKERS / "node" / "package.json").read_text())
    return str(told["dependencies"]["kafkajs"])


def _remote(name: str, command: Callable[[], list[str]]) -> Callable[[str], Remote]:
    return lambda bootstrap: Remote(name, command(), bootstrap)


DRIVERS: dict[str, Driven] = {
    "strandline": Driven(Strandline, lambda: version("strandline")),
    "strandline-async": Driven(StrandlineAsync, lambda: version("strandline")),
    "confluent-kafka": Driven(Confluent, _confluent_version),
    "kcat": Driven(Kcat, _kcat_version),
    "aiokafka": Driven(AioKafka, lambda: version("aiokafka")),
    "kafka-python": Driven(KafkaPython, lambda: version("kafka-python")),
    **{
        f"java-{release}": Driven(
            _remote(f"java-{release}", lambda release=release: _java(release)),
            lambda release=release: _java_version(release),
        )
        for release in ("3.9", "4.1")
    },
    **{
        name: Driven(
            _remote(name, lambda package=package: _go(package)), lambda module=module: _go_version(module)
        )
        for name, (package, module) in GOLANG.items()
    },
    "kafkajs": Driven(
        _remote("kafkajs", lambda: node_program(WORKERS / "node", "kafkajs")), _kafkajs_version
    ),
}


@contextmanager
def driving(client: str, bootstrap: str) -> Iterator[Any]:
    """The driver of a client; programs that it runs are ended."""
    driver = DRIVERS[client].make(bootstrap)
    try:
        yield driver
    finally:
        if hasattr(driver, "close"):
            driver.close()
