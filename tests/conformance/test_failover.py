"""The leader is killed (SIGKILL) while each client writes with acks=all and reads in a group."""

import threading
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from driving import until

from strandline.testing import LocalCluster


@pytest.fixture
def healed(running: LocalCluster) -> Iterator[LocalCluster]:
    """The cluster; whatever was killed runs again afterwards."""
    yield running
    for broker in running.brokers.values():
        if not broker.alive:
            broker.start()
    running.wait_ready()


def test_nothing_acknowledged_is_lost(driver: Any, ours: Any, healed: LocalCluster) -> None:
    topic = f"failover-{uuid.uuid4().hex[:12]}"
    ours.create_topic(topic, 3)
    acknowledged: set[bytes] = set()
    seen: set[bytes] = set()
    stop = threading.Event()
    with driver.sender(topic) as sender, driver.member(topic, f"group-{topic}") as member:
        reader = threading.Thread(target=_read, args=(member, seen, stop))
        reader.start()
        try:
            number = _send(sender, acknowledged, 0, lambda: len(seen) > 100, "records are read")
            victim = healed.leader(topic, 0)
            healed.brokers[victim].kill()

            def moved() -> bool:
                return healed.leader(topic, 0) not in (victim, -1)

            number = _send(sender, acknowledged, number, moved, "another broker leads")
            before = number
            number = _send(sender, acknowledged, number, lambda: len(seen) > before, "it goes on")
            sender.flush()
            until(lambda: seen >= acknowledged, "everything acknowledged is read by the group", 60)
        finally:
            stop.set()
            reader.join(30)
    assert len(acknowledged) == number, "every record was acknowledged in the end"
    count = sum(ours.ends(topic, partition)[1] for partition in range(3))
    found = [one.row.value for one in ours.read(topic, range(3), count)]
    assert set(found) >= acknowledged
    assert len(found) == len(set(found)), "an idempotent producer writes nothing twice"


def _read(member: Any, seen: set[bytes], stop: threading.Event) -> None:
    while not stop.is_set():
        seen.update(one.row.value for one in member.poll() if one.row.value)


def _send(sender: Any, acknowledged: set[bytes], number: int, enough: Any, what: str) -> int:
    """Send numbered records until `enough()`, which is asked twenty times a second; the next number."""
    deadline, asked = time.monotonic() + 60, time.monotonic()
    while True:
        value = f"record {number}".encode()
        sender.send(value, lambda value=value: acknowledged.add(value))
        number += 1
        time.sleep(0.002)
        if time.monotonic() - asked > 0.05:
            assert time.monotonic() < deadline, f"still not: {what}"
            if enough():
                return number
            asked = time.monotonic()
