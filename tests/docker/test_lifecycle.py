"""Containers that die, are stopped, lose their disk, and those of profiles beside the brokers."""

import json
import os
import shutil
import signal
import time
import urllib.request
from pathlib import Path

import docker
import pytest
from compose_command import PROJECT, TODAY, Compose, version_of
from waiting import BOOTSTRAP, NAMES, all_healthy, health, in_sync, wait

from strandline.client.sync import Admin, Producer
from tests.observability.prometheus_process import binary
from tests.patience import HANG_S

pytestmark = pytest.mark.docker

TOPIC = "lifecycle"
GRACE_S = 60  # stop_grace_period
ADDED_MAX_MB = 270  # by the broker's image to python:3.12-slim, which has 130: 400 MB together
CLEAN = "/var/lib/strandline/logs/.kafka_cleanshutdown"


@pytest.fixture(scope="module", autouse=True)
def ready(compose: docker.DockerClient) -> None:
    """Brokers are healthy, and there is a topic with records."""
    wait("all brokers are healthy", lambda: all_healthy(compose))
    with Admin(BOOTSTRAP) as admin:
        if TOPIC not in admin.list_topics():
            admin.create_topic(TOPIC, 3, 3, configs={"min.insync.replicas": "2"})
    with Producer(BOOTSTRAP, acks="all") as producer:
        producer.send(TOPIC, b"first")
        producer.flush()


def test_a_shell_beside_the_brokers_reaches_them_by_name(stack: Compose) -> None:
    """And its command line writes and reads without Spark and Arrow: the image has neither."""
    line = (
        "strandline topics create shell --partitions 1 --replication-factor 3 --if-not-exists >/dev/null && "
        "echo hello | strandline produce shell 2>/dev/null && "
        "strandline consume shell --from-beginning --max-messages 1 && "
        "! python -c 'import pyspark' 2>/dev/null && ! python -c 'import pyarrow' 2>/dev/null && id -u"
    )
    said = stack.run("--profile", "client", "run", "--rm", "-T", "client", "-c", line)
    assert said.split() == ["hello", "10001"]


def test_a_broker_that_dies_is_started_again(compose: docker.DockerClient) -> None:
    container = compose.containers.get("strandline-broker-2")
    pid = container.attrs["State"]["Pid"]
    if not Path(f"/proc/{pid}").exists():
        pytest.skip("the engine's processes are not on this machine")
    os.kill(pid, signal.SIGKILL)  # `docker kill` would say that it shall stay down

    def back() -> bool:
        container.reload()
        return container.attrs["RestartCount"] > 0 and health(compose, container.name) == "healthy"

    wait("the killed broker is healthy again", back)
    wait("it is in every ISR", lambda: in_sync(TOPIC))


def test_a_broker_with_a_new_disk_catches_up(compose: docker.DockerClient, stack: Compose) -> None:
    stack.run("stop", "broker-3")
    stack.run("rm", "--force", "broker-3")
    compose.volumes.get(f"{PROJECT}_broker-3").remove()
    stack.run("up", "--detach", "broker-3")
    wait("the broker is healthy again", lambda: health(compose, "strandline-broker-3") == "healthy")
    wait("it is in every ISR", lambda: in_sync(TOPIC))
    held = compose.containers.get("strandline-broker-3").exec_run(
        ["bash", "-c", f"cat /var/lib/strandline/logs/{TOPIC}-*/*.log | grep -c first"]
    )
    assert int(held.output) >= 1, "records are on the new disk"


def test_zookeeper_has_a_heap_that_fits(compose: docker.DockerClient) -> None:
    (processes,) = [compose.containers.get("strandline-zookeeper").top()["Processes"]]
    (line,) = [" ".join(process) for process in processes if "java" in " ".join(process)]
    last = [word for word in line.split() if word.startswith("-Xmx")][-1]
    assert last == "-Xmx256m"
    settings = (
        compose.containers.get("strandline-zookeeper").exec_run(["cat", "/conf/zoo.cfg"]).output.decode()
    )
    assert "autopurge.purgeInterval=1" in settings


def test_prometheus_finds_every_broker_by_its_name(
    compose: docker.DockerClient, stack: Compose, tmp_path: Path
) -> None:
    """The profile's configuration in a container of Debian's Prometheus."""
    path = binary()
    if path is None:
        pytest.fail("no Prometheus") if os.environ.get("CI") else pytest.skip("apt-get install prometheus")
    shutil.copy(path, tmp_path / "prometheus")
    base = stack.environment.get("PYTHON_IMAGE", "python:3.12-slim")
    (tmp_path / "Dockerfile").write_text(
        f'FROM {base}\nCOPY prometheus /bin/\nWORKDIR /prometheus\nENTRYPOINT ["prometheus"]\n'
    )
    compose.images.build(path=str(tmp_path), tag="strandline-prometheus")
    stack.environment["PROMETHEUS_IMAGE"] = "strandline-prometheus"
    stack.run("--profile", "observability", "up", "--detach", "--no-deps", "prometheus")

    def asked() -> bool:
        with urllib.request.urlopen("http://127.0.0.1:9090/api/v1/targets", timeout=HANG_S) as answer:
            targets = json.load(answer)["data"]["activeTargets"]
        return sorted(each["labels"]["instance"] for each in targets if each["health"] == "up") == [
            f"{name}:9192" for name in NAMES
        ]

    wait("Prometheus has scraped each broker", asked)
    stack.run("--profile", "observability", "rm", "--force", "--stop", "prometheus")


def test_the_image_is_small_and_nobody_is_root(compose: docker.DockerClient, stack: Compose) -> None:
    image = compose.images.get("strandline-broker")
    base = compose.images.get(stack.environment.get("PYTHON_IMAGE", "python:3.12-slim"))
    added_mb = (image.attrs["Size"] - base.attrs["Size"]) / 1e6
    print(f"the image adds {added_mb:.0f} MB to its base")
    assert added_mb < ADDED_MAX_MB
    assert image.attrs["Config"]["User"] == "strandline"


def test_stopping_is_clean_and_in_time(compose: docker.DockerClient, stack: Compose) -> None:
    """All at once, as `down` does it: every broker says that its logs are whole, and is not killed."""
    began = time.monotonic()
    stack.run("stop")
    took_s = time.monotonic() - began
    print(f"all were stopped after {took_s:.1f} s")
    for name in NAMES:
        container = compose.containers.get(name)
        assert container.attrs["State"]["ExitCode"] == 0, f"{name}: {container.logs(tail=5)!r}"
        container.get_archive(CLEAN)  # raises NotFound
    assert took_s < 2 * GRACE_S  # brokers first, ZooKeeper after them
    stack.run("start")
    wait("all brokers are healthy again", lambda: all_healthy(compose))
    wait("every ISR is full", lambda: in_sync(TOPIC))


def test_todays_compose_brings_up_the_same(compose: docker.DockerClient, stack: Compose) -> None:
    """From nothing to healthy without a warning, and down within the grace period."""
    version = version_of(TODAY)
    if not version:
        pytest.skip("`docker compose` is not installed")
    stack.run("down", "--volumes", "--remove-orphans")
    compose.images.remove("strandline-broker", force=True)
    today = Compose(TODAY, {k: v for k, v in stack.environment.items() if k.endswith("_IMAGE")})
    try:
        today.run("up", "--detach")
        took_s = wait("all brokers are healthy", lambda: all_healthy(compose))
        print(f"Compose {version}: healthy {took_s:.1f} s after `up` had returned")
    finally:
        today.run("down", "--volumes", "--remove-orphans")
    stack.run("up", "--detach")
    wait("all brokers are healthy", lambda: all_healthy(compose))
