"""Checks of addresses: what a client here reaches, and whether the right broker answers there. Pure.

A client asks a bootstrap server for the brokers, and then connects to the addresses that they advertise. So
those decide, and each is dialled from here.
Left to others: what the brokers say once they answer (checks_cluster.py).
"""

from collections.abc import Iterator
from ipaddress import ip_address

from .facts import BrokerFacts, Dial, Facts, LocalProcess, Reach
from .findings import Finding, Severity, named
from .probe import place_of

ANY = ("0.0.0.0", "::")
NAME_REMEDY = (
    "advertise a name that clients here resolve (advertised.listeners), with a listener of its own for "
    "clients in containers; or run the client where the name is known"
)
REMEDIES = {
    Reach.UNRESOLVED: NAME_REMEDY,
    Reach.REFUSED: "start the broker, or correct the port in advertised.listeners: nothing listens there",
    Reach.TIMEOUT: (
        "open the port in the firewall or security group, publish it if the broker runs in a container, or "
        "correct advertised.listeners"
    ),
    Reach.UNREACHABLE: "correct the route to that network, or advertise an address that is reached from here",
    Reach.SILENT: (
        "see whether the process is stopped (kill -CONT goes on), starved of CPU or memory, or still starting"
    ),
    Reach.FOREIGN: (
        "correct the port: another service, or a listener with TLS or SASL, which is not spoken here"
    ),
}


def check_addresses(facts: Facts) -> Iterator[Finding]:
    """All findings about bootstrap servers and listeners."""
    yield from _bootstrap(facts)
    for broker in facts.brokers.values():
        yield from _advertised(facts, broker)
        yield from _other_listeners(facts, broker)
    yield from _shared(facts)
    yield from _clusters(facts)
    yield from _missing(facts)


def _bootstrap(facts: Facts) -> Iterator[Finding]:
    """Of several bootstrap servers one is enough."""
    answering = any(dial.answers for dial in facts.bootstrap)
    advertised = {broker.dial.address for broker in facts.brokers.values()}
    for dial in facts.bootstrap:
        if dial.answers or dial.address in advertised:
            continue
        process = next((each for each in facts.local.values() if each.address == dial.address), None)
        remedy, because = _local(process) if process else (REMEDIES[dial.reach], ())
        if dial.reach is Reach.UNRESOLVED and not process:
            remedy = "correct the name in --bootstrap-server"
        yield Finding(
            Severity.WARNING if answering else Severity.CRITICAL,
            f"bootstrap_{dial.reach.name.lower()}",
            dial.address,
            f"bootstrap server {dial.address}: {_said(dial)}",
            remedy,
            because,
            _values(dial),
        )


def _advertised(facts: Facts, broker: BrokerFacts) -> Iterator[Finding]:
    """Whether this broker is reached where it says."""
    dial = broker.dial
    place = place_of(dial.address)
    if place and place[0] in ANY:
        yield Finding(
            Severity.CRITICAL,
            "advertised_any",
            f"broker {broker.id}",
            f"broker {broker.id} advertises {dial.address}, which is no address that a client can connect to",
            "set advertised.listeners to an address of that machine that clients reach",
            (),
            _values(dial),
        )
    elif not dial.answers:
        process = facts.local.get(broker.id)
        remedy, because = (
            _local(process)
            if process and process.address == dial.address and not (process.runs and not process.paused)
            else (REMEDIES[dial.reach], _container(facts, dial))
        )
        yield Finding(
            Severity.CRITICAL,
            f"advertised_{dial.reach.name.lower()}",
            f"broker {broker.id}",
            f"broker {broker.id} cannot be reached from here at {dial.address}, which it advertises: "
            f"{_said(dial)}",
            remedy,
            because,
            _values(dial),
        )
    elif dial.broker is not None and dial.broker != broker.id:
        yield _other_broker(broker, dial, "advertises")
    elif dial.ips and _is_loopback(dial.ips[0]) and _from_afar(facts):
        yield Finding(
            Severity.WARNING,
            "advertised_loopback",
            f"broker {broker.id}",
            f"broker {broker.id} advertises {dial.address}: clients on other machines, and in containers, "
            "are sent to themselves",
            "advertise an address of that machine that its clients reach (advertised.listeners)",
            (f"the bootstrap server {facts.bootstrap[0].address} is not a loopback address",),
            _values(dial),
        )


def _other_broker(broker: BrokerFacts, dial: Dial, how: str) -> Finding:
    return Finding(
        Severity.CRITICAL,
        "other_broker_answers",
        f"broker {broker.id}",
        f"broker {broker.id} {how} {dial.address}, where broker {dial.broker} answers: requests for "
        f"broker {broker.id} go to the wrong one",
        f"correct advertised.listeners of broker {broker.id} and restart it",
        (),
        {**_values(dial), "broker": broker.id, "answered_by": dial.broker},
    )


def _other_listeners(facts: Facts, broker: BrokerFacts) -> Iterator[Finding]:
    """Listeners that are not this client's, from the registration: brokers, or other clients, use them."""
    for name, dial in broker.listeners.items():
        if dial.answers and dial.broker is not None and dial.broker != broker.id:
            yield _other_broker(broker, dial, f"has its listener {name} at")
        elif not dial.answers and broker.answers:
            yield Finding(
                Severity.NOTE,
                "listener_unreachable",
                f"broker {broker.id}",
                f"listener {name} of broker {broker.id} at {dial.address} is not reached from here: "
                f"{_said(dial)}",
                "nothing, if only other brokers or other networks are to reach it",
                (),
                {**_values(dial), "listener": name},
            )


def _shared(facts: Facts) -> Iterator[Finding]:
    """Two brokers cannot be told apart by an address that both advertise."""
    by_address: dict[str, list[int]] = {}
    for broker in facts.brokers.values():
        by_address.setdefault(broker.dial.address, []).append(broker.id)
    for address, ids in by_address.items():
        if len(ids) > 1:
            brokers = named(f"broker {id}" for id in ids)
            yield Finding(
                Severity.CRITICAL,
                "advertised_twice",
                address,
                f"{brokers} advertise the same address {address}",
                "give each broker its own port or host in advertised.listeners",
                (),
                {"address": address, "brokers": ids},
            )


def _clusters(facts: Facts) -> Iterator[Finding]:
    """Addresses that belong to different clusters."""
    dials = [*facts.bootstrap, *(broker.dial for broker in facts.brokers.values())]
    by_cluster: dict[str, list[str]] = {}
    for dial in dials:
        if dial.cluster_id is not None and dial.address not in by_cluster.get(dial.cluster_id, []):
            by_cluster.setdefault(dial.cluster_id, []).append(dial.address)
    if len(by_cluster) > 1:
        told = "; ".join(f"cluster {id} at {named(places)}" for id, places in by_cluster.items())
        yield Finding(
            Severity.CRITICAL,
            "several_clusters",
            named(by_cluster),
            f"these addresses belong to different clusters: {told}",
            "correct --bootstrap-server, or advertised.listeners of the broker whose address is another's",
            (),
            {"clusters": by_cluster},
        )


def _missing(facts: Facts) -> Iterator[Finding]:
    """Brokers that have replicas and are not in the cluster."""
    replicas = {broker for one in facts.partitions().values() for broker in one.replicas}
    for id in sorted(replicas - facts.registered if facts.registered else ()):
        remedy, because = (
            _local(facts.local[id])
            if id in facts.local
            else (f"start broker {id}, and see the last line of its log if it ends", ())
        )
        count = sum(id in one.replicas for one in facts.partitions().values())
        yield Finding(
            Severity.CRITICAL,
            "broker_missing",
            f"broker {id}",
            f"broker {id} has {count} replicas and is not registered: it is down, or has lost ZooKeeper",
            remedy,
            because,
            {"broker": id, "replicas": count},
        )


def _local(process: LocalProcess) -> tuple[str, tuple[str, ...]]:
    """Remedy and reasons for a broker of `strandline up`."""
    if not process.runs:
        return (
            f"strandline start {process.id}{process.options}",
            (f"its process on this machine has ended; the last line of its log: {process.last_line}",),
        )
    if process.paused:
        return (
            f"strandline resume {process.id}{process.options}",
            ("its process on this machine is stopped (SIGSTOP)",),
        )
    return (
        "see the last lines of its log",
        (f"its process on this machine runs; the last line of its log: {process.last_line}",),
    )


def _container(facts: Facts, dial: Dial) -> tuple[str, ...]:
    """A name without a dot that only a container network knows, or a container's private address."""
    place = place_of(dial.address)
    if place is None:
        return ()
    if dial.reach is Reach.UNRESOLVED and "." not in place[0]:
        return (f"{place[0]!r} looks like the name of a container: only its own network resolves it",)
    if dial.reach in (Reach.TIMEOUT, Reach.UNREACHABLE) and dial.ips and _is_private(dial.ips[0]):
        return (f"{dial.ips[0]} is a private address, perhaps of a container's network",)
    if dial.reach is Reach.REFUSED and dial.ips and _is_loopback(dial.ips[0]) and _from_afar(facts):
        return ("the broker advertises a loopback address: from here that is this machine, not the broker's",)
    return ()


def _from_afar(facts: Facts) -> bool:
    """Whether the bootstrap server that answered is on another machine, as far as its address tells."""
    answered = [dial for dial in facts.bootstrap if dial.answers and dial.ips]
    return bool(answered) and not any(_is_loopback(ip) for dial in answered for ip in dial.ips)


def _is_loopback(ip: str) -> bool:
    return ip_address(ip.partition("%")[0]).is_loopback


def _is_private(ip: str) -> bool:
    return ip_address(ip.partition("%")[0]).is_private


def _said(dial: Dial) -> str:
    return f"{dial.reach.value} ({dial.detail})" if dial.detail else dial.reach.value


def _values(dial: Dial) -> dict[str, object]:
    return {
        "address": dial.address,
        "reach": dial.reach.name.lower(),
        "detail": dial.detail,
        "ips": list(dial.ips),
    }
