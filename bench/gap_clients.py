"""One producer at its client's default settings, acks=all: a small record every `EVERY_S`.

    python -m bench.gap_clients CLIENT BOOTSTRAP TOPIC

Writes `ready` when its client is loaded, and begins when it is sent a line. Then it writes a line for each
record: the monotonic time of its acknowledgement, or `failed` and why. It ends when its standard input ends.
`Client` is such a process, seen from the outside.
"""

import asyncio
import importlib
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

EVERY_S = 0.01
VALUE = b"v" * 100

Send = Callable[[], None]


def acknowledged() -> None:
    """Tell of one; whole lines, because several threads may call."""
    os.write(1, f"{time.monotonic():.6f}\n".encode())


def failed(error: object) -> None:
    """Tell of a record that was given up."""
    os.write(1, f"failed {error!r}\n".encode())


def librdkafka(bootstrap: str, topic: str) -> None:
    """confluent-kafka."""
    from confluent_kafka import Producer

    def reported(error: object, _: object) -> None:
        failed(error) if error else acknowledged()

    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "log_level": 0})

    def send() -> None:
        producer.produce(topic, VALUE, on_delivery=reported)
        producer.poll(0)

    keep_sending(send, meanwhile=producer.poll)


def kafka_python(bootstrap: str, topic: str) -> None:
    """kafka-python."""
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=bootstrap.split(","), acks="all")

    def send() -> None:
        producer.send(topic, VALUE).add_callback(lambda _: acknowledged()).add_errback(failed)

    keep_sending(send)


def aiokafka(bootstrap: str, topic: str) -> None:
    """aiokafka. Unlike the others it gives up if no broker listens yet; whoever runs it starts it again."""
    from aiokafka import AIOKafkaProducer
    from aiokafka.errors import KafkaConnectionError

    async def work() -> None:
        while True:
            producer = AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all")
            try:
                await producer.start()
            except KafkaConnectionError:
                await producer.stop()
                await asyncio.sleep(EVERY_S)
            else:
                break
        await keep_sending_async(lambda: producer.send(topic, VALUE))

    asyncio.run(work())


def strandline(bootstrap: str, topic: str) -> None:
    """The bundled client."""
    from strandline.client.producer.producer import Producer

    async def work() -> None:
        async with Producer(bootstrap, serializer="bytes") as producer:

            async def send() -> "asyncio.Future[Any]":
                return producer.send(topic, VALUE)

            await keep_sending_async(send)

    asyncio.run(work())


def keep_sending(send: Send, meanwhile: Callable[[float], object] = time.sleep) -> None:
    """For clients with threads of their own."""
    over = _until_input_ends()
    at = time.monotonic()
    while not over.is_set():
        send()
        at += EVERY_S
        while (left := at - time.monotonic()) > 0:
            meanwhile(left)
    os._exit(0)


async def keep_sending_async(send: Callable[[], Coroutine[Any, Any, Any]]) -> None:
    """For clients on a loop; `send` answers the future of one acknowledgement."""
    over = _until_input_ends()
    at = time.monotonic()
    while not over.is_set():
        (await send()).add_done_callback(_told)
        at += EVERY_S
        await asyncio.sleep(max(at - time.monotonic(), 0))
    os._exit(0)


def _told(sent: "asyncio.Future[Any]") -> None:
    error = sent.exception()
    failed(error) if error else acknowledged()


def _until_input_ends() -> threading.Event:
    over = threading.Event()

    def watch() -> None:
        sys.stdin.read()
        over.set()

    threading.Thread(target=watch, daemon=True).start()
    return over


CLIENTS: dict[str, tuple[str, Callable[[str, str], None]]] = {
    "librdkafka": ("confluent_kafka", librdkafka),
    "aiokafka": ("aiokafka", aiokafka),
    "kafka-python": ("kafka", kafka_python),
    "strandline": ("strandline.client.producer.producer", strandline),
}


PROBES = ("java", "franz-go")


class Client:
    """A producer in a process of its own, and its acknowledgements."""

    def __init__(self, name: str, bootstrap: str, topic: str) -> None:
        self.name = name
        self.acks: list[float] = []
        self.failures: list[str] = []
        command = [sys.executable, "-m", "bench.gap_clients", name, bootstrap, topic]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._reader = threading.Thread(target=self._read, daemon=True)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n", f"{name} is loaded"

    def begin(self) -> None:
        """Make the producer, and send from now on."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._hear(line)

    def _hear(self, line: str) -> None:
        if line.startswith("failed"):
            self.failures.append(line.strip())
        else:
            self.acks.append(float(line))

    def stop(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()


class Probe(Client):
    """A probe of the conformance tests, which also reads in a group; its clock is the time of day."""

    def __init__(self, name: str, bootstrap: str, topic: str) -> None:
        self.name = name
        self.acks = []
        self.failures = []
        self._ahead_s = time.time() - time.monotonic()
        command = [*probing().PROBES[name](), bootstrap, topic, str(int(EVERY_S * 1000))]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self._reader = threading.Thread(target=self._read, daemon=True)

    def begin(self) -> None:
        """It has begun."""
        self._reader.start()

    def _hear(self, line: str) -> None:
        what, _, at_ms = line.split()
        if what == "acked":
            self.acks.append(float(at_ms) / 1000 - self._ahead_s)


def probing() -> Any:
    """The module of the conformance tests that knows how Java's and Go's probes are started."""
    folder = str(Path(__file__).parent.parent / "tests" / "conformance")
    if folder not in sys.path:
        sys.path.insert(0, folder)
    return importlib.import_module("probing")


def client(name: str, bootstrap: str, topic: str) -> Client:
    """A client by its name."""
    return (Client if name in CLIENTS else Probe)(name, bootstrap, topic)


def main() -> None:
    """Produce until standard input ends."""
    logging.disable()  # what clients say when a broker dies is not measured
    name, bootstrap, topic = sys.argv[1:]
    module, produce = CLIENTS[name]
    importlib.import_module(module)
    os.write(1, b"ready\n")
    sys.stdin.readline()
    produce(bootstrap, topic)


if __name__ == "__main__":
    main()
