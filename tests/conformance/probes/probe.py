"""A Python client as a probe: it writes with acks=all and reads in a group, and tells each event.

    probe.py <driver> <bootstrap> <topic> <milliseconds between records>

The driver is the module and class of one of the `drive_*.py`. What it tells, and what it is told: probing.py.
"""

import importlib
import select
import sys
import threading
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

LOCK = threading.Lock()


def say(what: str, number: str) -> None:
    """One event, with the time of day in milliseconds."""
    with LOCK:
        print(f"{what} {number} {time.time() * 1000:.1f}", flush=True)


def read(member: Any, ended: threading.Event) -> None:
    """Tell of every record until the end."""
    while not ended.is_set():
        for one in member.poll():
            say("read", one.row.value.decode())


def send(sender: Any, every_s: float) -> None:
    """Send numbered records until a line comes in; then until all of them are acknowledged."""
    number, at = 0, time.monotonic()
    while not select.select([sys.stdin], [], [], max(0.0, at - time.monotonic()))[0]:
        name = str(number)
        sender.send(name.encode(), lambda name=name: say("acked", name))
        number += 1
        at = max(at + every_s, time.monotonic())
    sys.stdin.readline()
    sender.flush()
    say("sent", str(number))


def main(driver: str, bootstrap: str, topic: str, every_ms: str) -> None:
    """Read in a thread of its own, and write, until the second line comes in."""
    module, _, name = driver.partition(":")
    client = getattr(importlib.import_module(module), name)(bootstrap)
    ended = threading.Event()
    with client.sender(topic) as sender, client.member(topic, f"group-{topic}") as member:
        reader = threading.Thread(target=read, args=(member, ended))
        reader.start()
        send(sender, int(every_ms) / 1000)
        sys.stdin.readline()
        ended.set()
        reader.join()


if __name__ == "__main__":
    main(*sys.argv[1:])
