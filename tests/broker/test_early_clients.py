"""Ports for clients are taken before the broker is loaded: whoever comes early waits, and is not refused."""

import asyncio
import socket
import subprocess
import sys
from typing import Any

from strandline.broker.network.early_listeners import open_doors
from strandline.local.ports import free_ports
from strandline.protocol.messages.api_versions import ApiVersionsRequest
from tests.broker.cluster_harness import Stage, config, correlation_id, frame

LOADED_FIRST = """
import sys
import strandline.cli.serve
sys.exit("strandline.broker.node" in sys.modules)
"""


def listeners(inner: str, client: str) -> Any:
    return config(listeners=f"PLAINTEXT://{inner},CLIENT://{client}")


async def test_a_client_that_comes_early_is_served_when_the_server_opens() -> None:
    inner, port = free_ports(2)
    settings = listeners(f"127.0.0.1:{inner}", f"127.0.0.1:{port}")
    doors = open_doors(settings)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(frame(ApiVersionsRequest(), 0, 7))
    stage = Stage(settings)
    assert await stage.server.bind(settings.endpoints, doors) == {"PLAINTEXT": inner, "CLIENT": port}
    stage.server.open(stage)
    assert await correlation_id(reader) == 7
    writer.close()
    await stage.server.stop()
    assert all(door.fileno() == -1 for each in doors.values() for door in each), "nothing stays open"


def test_which_doors_are_opened() -> None:
    inner, port = free_ports(2)
    doors = open_doors(listeners(f"127.0.0.1:{inner}", f"127.0.0.1:{port}"))
    assert list(doors) == ["CLIENT"], "brokers must not take a broker for alive that has not registered"
    assert open_doors(listeners("127.0.0.1:0", f"127.0.0.1:{port}")) == {}, "a taken port is told of later"
    assert open_doors(listeners("127.0.0.1:0", "127.0.0.1:0")) == {}, "whichever the system chooses later"
    assert open_doors(listeners("127.0.0.1:0", f"localhost:{port}")) == {}, "no name is resolved"
    for door in doors["CLIENT"]:
        door.close()
    everywhere = open_doors(listeners("127.0.0.1:0", f":{port}"))
    assert {door.family for door in everywhere["CLIENT"]} >= {socket.AF_INET}
    for door in everywhere["CLIENT"]:
        door.close()


def test_the_broker_is_not_loaded_with_its_command() -> None:
    """What `cli/serve.py` imports comes before the doors are open, and must stay little."""
    assert subprocess.run([sys.executable, "-c", LOADED_FIRST], check=False).returncode == 0
