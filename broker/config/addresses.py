"""Addresses that brokers bind and advertise: `NAME://host:port,…`, and what may be wrong with them. Pure.

What a broker advertises may change while it runs. Each of its listeners must be among it: a client, or a
broker, finds another broker by the name of the listener that it uses itself.
Left to others: whether a host name resolves, who registers the addresses (broker/registration.py).
Why: docs/decisions/0058-other-addresses-are-no-new-start.md
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Protocol

from ...base.values import dataclass
from ..errors import BrokerConfigError
from .host_names import why_no_host

ADVERTISED = "advertised.listeners"
ANY_ADDRESS = ("0.0.0.0", "[::]", "::")


class Address(Protocol):
    """Where a listener is reached."""

    @property
    def listener(self) -> str: ...

    @property
    def host(self) -> str: ...

    @property
    def port(self) -> int: ...


@dataclass(frozen=True, slots=True)
class ListenerAddress:
    """The address a listener binds, or the one it advertises."""

    listener: str
    host: str
    port: int


def parse_endpoints(name: str, text: str) -> tuple[ListenerAddress, ...]:
    """Parse `NAME://host:port,…`. BrokerConfigError names the part that is wrong."""
    found = []
    for part in filter(None, (p.strip() for p in text.split(","))):
        listener, mark, address = part.partition("://")
        host, port = parse_place(name, part, address if mark and listener else "", "NAME://host:port")
        found.append(ListenerAddress(listener.upper(), host, port))
    if not found:
        raise BrokerConfigError(
            f"{name} is empty: give at least one listener, e.g. PLAINTEXT://127.0.0.1:9092"
        )
    return tuple(found)


def parse_place(name: str, part: str, address: str, form: str) -> tuple[str, int]:
    """Host and port of `host:port`, where `part` is what the user wrote, and `form` what is expected."""
    host, colon, port = address.rpartition(":")
    is_short = len(port) <= 5  # int() refuses thousands of digits
    if not (colon and is_short and port.isascii() and port.isdigit() and int(port) <= 65_535):
        raise BrokerConfigError(f"{name} = {part!r}: expected {form} with a port from 0 to 65535")
    host = host.removeprefix("[").removesuffix("]")
    if host and (why := why_no_host(host)) is not None:
        raise BrokerConfigError(f"{name} = {part!r}: {host!r} is not a host name: {why}")
    return host, int(port)


def wrong_advertised(given: str | None, told: Sequence[Address], listeners: Collection[str]) -> Iterator[str]:
    """What is wrong with telling clients these addresses, for a broker with these listeners."""
    names = Counter(each.listener for each in told)
    unknown = sorted(names.keys() - set(listeners))
    if unknown:
        yield f"{ADVERTISED} = {given!r}: has a listener that is not in `listeners`: {', '.join(unknown)}"
    for missing in () if unknown else sorted(set(listeners) - names.keys()):
        yield f"{ADVERTISED} = {given!r}: add an address for listener {missing}"
    for name in sorted(name for name, count in names.items() if given and count > 1):
        yield f"{ADVERTISED} = {given!r}: {name} is listed twice"
    for each in told:
        if each.host in ANY_ADDRESS or not each.host:
            yield (
                f"listener {each.listener} would be advertised as {each.host or 'nothing'}, "
                "which no client can reach: give its address in advertised.listeners"
            )


def wrong_for_running(text: str, broker: int, registered: Mapping[int, Sequence[Address]]) -> Iterator[str]:
    """What is wrong with these addresses for a broker that runs, beside those of all running brokers."""
    told = parse_endpoints(ADVERTISED, text)
    if broker not in registered:
        yield f"broker {broker} does not run, so its listeners are not known: start it first"
        return
    yield from wrong_advertised(text, told, {each.listener for each in registered[broker]})
    taken = {
        (each.host, each.port): other
        for other, theirs in registered.items()
        for each in theirs
        if other != broker
    }
    for each in told:
        if (other := taken.get((each.host, each.port))) is not None:
            yield f"{each.listener}://{each.host}:{each.port} is where broker {other} is reached"
