"""Other clients, of whose requests something on the way makes some that ask who had their batches: they skip
the field that answers, and all works as before.

The wish is a tag at the end of Produce from version 9 on. A proxy puts it there, so that clients that know
nothing of it get answers with it.
"""

import asyncio
import struct
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from strandline.client.loop_thread import LoopThread
from strandline.client.sync import Admin
from strandline.local.cluster import LocalCluster
from strandline.local.ports import free_ports
from strandline.testing.nursery import forked

sys.path.insert(0, str(Path(__file__).parent))

from driving import Row

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from drive_aiokafka import AioKafka
    from drive_confluent import Confluent
    from drive_kafka_python import KafkaPython
    from drive_strandline import Strandline

SIZE, HEAD = struct.Struct(">i"), struct.Struct(">hhi")
PRODUCE, FLEXIBLE = 0, 9
TAG = b"\x90\x4e"  # 10000, as on the wire
WISH = b"\x01" + TAG + b"\x01\x01"  # one tag, one byte: true
ROWS = [Row(f"key-{i}".encode(), b"value" * i) for i in range(50)]


class Wishing:
    """A proxy that lets each Produce from version 9 on ask, and counts the answers that tell."""

    def __init__(self, port: int, broker_port: int) -> None:
        self.port, self.broker_port = port, broker_port
        self.asked = self.told = 0
        self.versions: set[int] = set()

    async def start(self) -> None:
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)

    async def stop(self) -> None:
        self.server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            answers, requests = await asyncio.open_connection("127.0.0.1", self.broker_port)
        except OSError:
            writer.close()
            return
        produced: set[int] = set()  # correlation ids of the requests that ask
        async with asyncio.TaskGroup() as group:
            group.create_task(self._copy(reader, requests, lambda frame: self._wish(frame, produced)))
            group.create_task(self._copy(answers, writer, lambda frame: self._look(frame, produced)))

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, change: Any) -> None:
        try:
            while True:
                (size,) = SIZE.unpack(await reader.readexactly(SIZE.size))
                frame = change(await reader.readexactly(size))
                writer.write(SIZE.pack(len(frame)) + frame)
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            writer.close()

    def _wish(self, frame: bytes, produced: set[int]) -> bytes:
        key, version, correlation_id = HEAD.unpack_from(frame)
        if key != PRODUCE:
            return frame
        self.versions.add(version)
        if version < FLEXIBLE:
            return frame
        assert frame[-1] == 0, "the request ends with an empty tag buffer"
        self.asked += 1
        produced.add(correlation_id)
        return frame[:-1] + WISH

    def _look(self, frame: bytes, produced: set[int]) -> bytes:
        if SIZE.unpack_from(frame)[0] in produced:
            self.told += TAG in frame
        return frame


@pytest.fixture(scope="module")
def wishing(zookeeper: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Wishing, str]]:
    """One broker behind the proxy, whose address it advertises."""
    directory = tmp_path_factory.mktemp("tags")
    cluster = forked(LocalCluster(directory, 1, zookeeper=f"{zookeeper}/{directory.name}"))
    (broker,) = cluster.brokers.values()
    (port,) = free_ports(1)
    internal = f"INTERNAL://127.0.0.1:{broker.internal_port}"
    broker.settings["advertised.listeners"] = f"CLIENT://127.0.0.1:{port},{internal}"
    proxy = Wishing(port, broker.port)
    thread = LoopThread("proxy")
    thread.run(proxy.start)
    try:
        broker.start()
        cluster.wait_ready()
        yield proxy, f"127.0.0.1:{port}"
    finally:
        cluster.kill()
        thread.run(proxy.stop)
        thread.close()


@pytest.mark.parametrize("kind", [Confluent, AioKafka, KafkaPython])
def test_they_skip_what_they_do_not_know(wishing: tuple[Wishing, str], kind: Any) -> None:
    proxy, bootstrap = wishing
    topic = f"tags-{kind.name}"
    with Admin(bootstrap) as admin:
        admin.create_topic(topic, 1, 1)
    proxy.asked = proxy.told = 0
    proxy.versions.clear()
    kind(bootstrap).produce(topic, ROWS, "none", idempotent=True)
    found = [one.row for one in Strandline(bootstrap).read(topic, [0], len(ROWS))]
    assert found == ROWS, "each record once, in its order"
    assert proxy.versions, "it has produced by way of the proxy"
    if max(proxy.versions) >= FLEXIBLE:
        assert proxy.asked and proxy.told == proxy.asked
    else:
        assert not proxy.told, "it speaks versions without tags"
