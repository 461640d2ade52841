"""Waits for what a container is to become; longer where the machine is slower."""

import time
from collections.abc import Callable

import docker

from strandline.client.sync import Admin
from strandline.local.processes import machine_is_slower
from strandline.protocol.errors import ApiError

BOOTSTRAP = "localhost:9092,localhost:9093,localhost:9094"
NAMES = [f"strandline-broker-{id}" for id in (1, 2, 3)]


def wait(what: str, holds: Callable[[], bool], within_s: float = 90, look_every_s: float = 0.1) -> float:
    """Wait until `holds()`; how many seconds it took."""
    began, limit_s = time.monotonic(), within_s
    while True:
        try:
            if holds():
                return time.monotonic() - began
        except (ApiError, OSError, docker.errors.NotFound):
            pass
        if time.monotonic() > began + limit_s:
            limit_s = within_s * machine_is_slower()
        assert time.monotonic() < began + limit_s, f"not within {limit_s:.0f} s: {what}"
        time.sleep(look_every_s)


def health(engine: docker.DockerClient, name: str) -> str:
    """What the engine says of a container's health."""
    state: str = engine.containers.get(name).attrs["State"]["Health"]["Status"]
    return state


def all_healthy(engine: docker.DockerClient) -> bool:
    """Whether every broker is."""
    return all(health(engine, name) == "healthy" for name in NAMES)


def in_sync(topic: str) -> bool:
    """Whether every partition of the topic has three members in its ISR."""
    with Admin(BOOTSTRAP) as admin:
        (described,) = admin.describe_topics([topic])
        return all(len(one.isr) == len(NAMES) for one in described.partitions)
