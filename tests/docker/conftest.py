"""The compose cluster as its users start it: images built, `docker-compose up`, all gone afterwards."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from compose_command import OLD, TODAY, Compose, version_of
from docker_engine import refusal

from tests.default_ports import lent

ROOT = Path(__file__).resolve().parent.parent.parent
PUBLIC = {"PYTHON_IMAGE": "python:3.12-slim", "ZOOKEEPER_IMAGE": "zookeeper:3.9"}
STAND_INS = {"PYTHON_IMAGE": "strandline-python", "ZOOKEEPER_IMAGE": "strandline-zookeeper"}
IN_CI = bool(os.environ.get("CI"))


def missing(what: str) -> None:
    """Skip with the reason; where everything should be there, fail."""
    if IN_CI:
        pytest.fail(f"{what}: in CI this test must run")
    pytest.skip(what)


@pytest.fixture(scope="session")
def engine() -> Iterator[docker.DockerClient]:
    """A Docker engine that answers."""
    if not (version_of(OLD) or version_of(TODAY)):
        missing("neither docker-compose nor `docker compose` is there: apt-get install docker-compose")
    if silence := refusal(os.environ.get("DOCKER_HOST")):
        missing(f"no Docker engine answers: {silence}")
    client = docker.from_env()
    client.ping()
    yield client
    client.close()


@pytest.fixture(scope="session")
def images(engine: docker.DockerClient) -> dict[str, str]:
    """The base images: the public ones where they can be had, else stand-ins made on this machine."""
    if all(_is_here(engine, image) for image in PUBLIC.values()):
        return PUBLIC
    subprocess.run(["deploy/base-images"], cwd=ROOT, check=True)
    return STAND_INS


@pytest.fixture(scope="session")
def spark_wheels(images: dict[str, str]) -> None:
    """What the stage `spark` of the image installs, too, where nothing can be pulled."""
    if images == STAND_INS:
        environment = {**os.environ, "WITH_SPARK": "1"}
        subprocess.run(["deploy/base-images"], cwd=ROOT, env=environment, check=True)


@pytest.fixture(scope="session")
def stack(engine: docker.DockerClient, images: dict[str, str]) -> Iterator[Compose]:
    """ZooKeeper and three brokers started from nothing; taken down with their volumes at the end."""
    command = OLD if version_of(OLD) else TODAY
    compose = Compose(command, {} if images == PUBLIC else images)
    with lent():
        compose.run("down", "--volumes", "--remove-orphans")
        compose.run("build", "broker-1")
        compose.run("up", "--detach")
        yield compose
        compose.run("down", "--volumes", "--remove-orphans", "--timeout", "20")


@pytest.fixture(scope="session")
def compose(engine: docker.DockerClient, stack: Compose) -> docker.DockerClient:
    """The engine, once the containers are started."""
    return engine


def _is_here(engine: docker.DockerClient, image: str) -> bool:
    try:
        engine.images.get(image)
    except docker.errors.ImageNotFound:
        return False
    return True
