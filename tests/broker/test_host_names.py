"""A host that nobody can look up is refused at the start, in words; later it is an error of the network."""

import asyncio

import pytest
import uvloop

from strandline.broker.config.files import load
from strandline.broker.config.host_names import why_no_host
from strandline.broker.errors import BrokerConfigError
from strandline.client.network.connection import Connection
from tests.patience import HANG_S

BAD = [
    "a..b",
    "b3..example",
    "x" * 64 + ".example.com",
    ".example.com",
    "a b",
    "-a",
    "a/b",
    "ä" * 60,
    "a." * 130,
]
GOOD = [
    "localhost",
    "broker_1",
    "b1.example.com.",
    "10.0.0.1",
    "::1",
    "fe80::1%eth0",
    "bücher.example",
    "x" * 63,
]


@pytest.mark.parametrize("host", BAD)
def test_a_host_that_cannot_be_encoded_is_refused_at_the_start(host: str) -> None:
    for option in ("listeners", "advertised.listeners"):
        listeners = {"listeners": "PLAINTEXT://127.0.0.1:0", option: f"PLAINTEXT://{host}:9092"}
        settings = [f"{name}={value}" for name, value in listeners.items()]
        with pytest.raises(BrokerConfigError) as refused:
            load(overrides=["broker.id=1", "zookeeper.connect=z:1", "log.dirs=./x", *settings])
        (sentence,) = (each for each in refused.value.sentences if "is not a host name" in each)
        assert option in sentence and "labels of 1 to 63" in sentence


@pytest.mark.parametrize("host", GOOD)
def test_what_can_be_looked_up_passes(host: str) -> None:
    assert why_no_host(host) is None


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
@pytest.mark.parametrize(("host", "port"), [("b3..example", 9092), ("x" * 64, 9092), ("127.0.0.1", 70_000)])
def test_connecting_to_no_address_fails_as_any_connection_may(run: object, host: str, port: int) -> None:
    async def story() -> None:
        deadline = asyncio.get_running_loop().time() + HANG_S
        with pytest.raises(OSError, match=r"is not an address|port|Name"):
            await Connection.open(host, port, deadline=deadline, versions={})

    run(story())  # type: ignore[operator]
