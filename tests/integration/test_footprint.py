"""How long a broker takes to serve and how much memory it holds when idle. Printed; only nonsense fails."""

import re
import time
from pathlib import Path

from strandline.client.sync import Admin
from strandline.protocol.errors import ErrorCode
from tests.integration.support import Wire, incarnation, produce_request, produced, until

START_S_MAX = 20.0
IDLE_MIB_MAX = 150.0


def test_start_up_and_memory(start_cluster) -> None:
    cluster = start_cluster(1, is_forked=False)
    broker = cluster.brokers[1]
    with Admin(cluster.bootstrap) as admin:
        admin.create_topic("first", 1, 1)
    broker.stop()
    before, began = incarnation(broker), time.monotonic()
    broker.start()

    def acknowledged() -> bool:
        try:
            with Wire(broker.port, 2) as wire:
                return produced(wire.ask(produce_request("first", 0, b"x"), 9))[0] == ErrorCode.NONE
        except OSError:
            return False

    until(acknowledged, START_S_MAX, "the first acknowledged record", every_s=0.005)
    took_s = time.monotonic() - began
    status = Path(f"/proc/{broker.pid}/status").read_text()
    held = {name: int(kib) / 1024 for name, kib in re.findall(r"(\w+):\s+(\d+) kB", status)}
    print(
        f"\nstart to first acknowledged record {took_s:.2f} s; "
        f"idle: RssAnon {held['RssAnon']:.1f} MiB, RssFile {held['RssFile']:.1f} MiB"
    )
    assert incarnation(broker) == before + 1
    assert held["RssAnon"] < IDLE_MIB_MAX
