"""Listening sockets bound before the broker has loaded, so that early clients wait instead of failing.

A client whose connection is refused backs off, twice as long each time: one started together with its brokers
would come back a second after they serve. So ports are bound as soon as the configuration is known, and early
connections are served once the server is open. Only client listeners: other brokers take a port that accepts
connections as a sign that this broker is alive, which is not true before it has registered.
Best effort: a port that cannot be bound now is tried again, and its error reported, in server.py.
"""

import socket
from collections.abc import Mapping, Sequence

from ..config.addresses import ListenerAddress
from ..config.broker import BrokerConfig

BACKLOG = 100  # as in asyncio's servers
Doors = Mapping[str, Sequence[socket.socket]]


def open_doors(config: BrokerConfig) -> Doors:
    """Listening sockets, by the name of the listener."""
    inner = config.inter_broker_listener
    wanted = [each for each in config.endpoints if each.listener != inner and each.port]
    return {each.listener: sockets for each in wanted if (sockets := _listen(each))}


def _listen(endpoint: ListenerAddress) -> list[socket.socket]:
    """Bind every address of the endpoint, or none. Host names are not resolved here: that may take long."""
    taken: list[socket.socket] = []
    try:
        for family, kind, protocol, _, place in socket.getaddrinfo(
            endpoint.host or None,
            endpoint.port,
            type=socket.SOCK_STREAM,
            flags=socket.AI_PASSIVE | socket.AI_NUMERICHOST,
        ):
            door = socket.socket(family, kind, protocol)
            taken.append(door)
            door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                door.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            door.bind(place)
            door.listen(BACKLOG)
    except OSError:
        for door in taken:
            door.close()
        return []
    return taken
