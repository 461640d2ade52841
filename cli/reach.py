"""How commands reach a cluster: at once, or they say at once what they tried, why it failed and what to do.

The clients try for as long as a call may take, for a cluster that is on its way back. A person who has
forgotten to start one, or has the port of something else, should not wait for that: before a client is made,
each address gets one attempt to connect, all at the same time, and the first that works ends it. What answers
a question of Kafka's protocol in HTTP or TLS is no broker; who is silent may be one.
Left to others: the requests (client/sync.py), ZooKeeper's protocol (zookeeper/kazoo_client.py).
"""

import socket
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from queue import Empty, Queue
from threading import Thread, Timer
from time import monotonic
from typing import Any

from ..client.config import parse_address
from ..client.sync import Admin
from ..local.cluster import LocalCluster, find
from ..local.embedded_zookeeper import EnvironmentProblem
from ..local.members import title
from ..local.processes import State
from ..protocol.apis import Api
from .console import DEFAULT_BOOTSTRAP, PATIENCE, Failure, WrongUsage, err

ATTEMPT_S = 1.5
"""The longest that a connection may take before the command gives up, if none of the others works."""

SILENCE_S = 2.0
"""After that, say what is being waited for: something listens, and does not answer."""

REFUSED = "connection refused: nothing listens there"
SILENT = f"no answer within {ATTEMPT_S} s: is a firewall between, is the address right?"
FOREIGN = {
    b"HTTP": "answers in HTTP: no broker's listener (is it the port of its web page?)",
    b"\x15\x03": "answers with TLS, which is not spoken here",
}
"""How an answer begins that no broker gives, and what gives it."""

QUESTION = struct.pack(">ihhih", 10, Api.API_VERSIONS, 0, 0, -1)
"""ApiVersions as a frame: every broker answers it at once."""

ANSWER_S = 0.3
"""The longest that the first bytes of that answer are waited for: a broker may be busy, or stand still."""


HOME = ".strandline"
"""Where `up` keeps its cluster below the home directory, unless it is told otherwise."""


def connect(bootstrap: str, directory: Path | None = None, **options: Any) -> Admin:
    """An Admin client. Raises Failure at once if nobody listens at any of the addresses.

    `directory` is that of the `up` whose cluster is meant, if no addresses are given.
    """
    bootstrap = reached(bootstrap, directory)
    waiting = Timer(SILENCE_S, lambda: err.print(_waits_for(bootstrap), markup=False, soft_wrap=True))
    waiting.daemon = True
    waiting.start()
    try:
        return Admin(bootstrap, **{**PATIENCE, **options})
    finally:
        waiting.cancel()


def reached(bootstrap: str, directory: Path | None = None) -> str:
    """The addresses to use, at one of which at least something listens. Raises Failure.

    Without --bootstrap-server they are those of the cluster that `up` started in `directory`, or under the
    home directory, if it runs: it may have been given other ports. Addresses that are wrong are left to the
    client to complain of.
    """
    own = own_cluster(directory)
    if bootstrap == DEFAULT_BOOTSTRAP and own is not None and State.RUNNING in own.processes.values():
        bootstrap = own.bootstrap
    try:
        addresses = [parse_address(part.strip()) for part in bootstrap.split(",") if part.strip()]
    except ValueError:
        return bootstrap
    if not addresses:
        raise WrongUsage("--bootstrap-server names no broker: expected host:port, or several with commas")
    if refusals := why_unreachable(addresses, question=QUESTION):
        raise Failure(told(refusals, own))
    return bootstrap


def told(refusals: Mapping[str, str], own: LocalCluster | None) -> str:
    """What was tried, why each failed, and what to do."""
    width = max(map(len, refusals))
    tried = "\n".join(f"  {address:<{width}}  {why}" for address, why in refusals.items())
    return f"no broker answers. Tried:\n{tried}\n{_remedy(own)}"


def _remedy(own: LocalCluster | None) -> str:
    idle = [] if own is None else [(n, s) for n, s in own.processes.items() if s is not State.RUNNING]
    verbs = {State.STOPPED: "start", State.PAUSED: "resume"}
    if own is not None and idle:
        states = ", ".join(f"{title(name)} is {state}" for name, state in idle)
        more = "" if own.directory == (Path.home() / HOME).resolve() else f" --dir {own.directory}"
        commands = " && ".join(
            f"strandline {verbs[kind]} {' '.join(names)}{more}"
            for kind in verbs
            if (names := [name for name, state in idle if state is kind])
        )
        return f"Of the cluster in {own.directory}, {states}: {commands}"
    return (
        "Start a cluster with `strandline up`, or give the address of one with --bootstrap-server host:port "
        "(or the variable BOOTSTRAP_SERVERS)."
    )


def own_cluster(directory: Path | None = None) -> LocalCluster | None:
    """The cluster that `up` started in `directory`, or under the home directory, running or not."""
    try:
        return find(directory or Path.home() / HOME)
    except (EnvironmentProblem, LookupError, TypeError, RuntimeError):
        return None  # there is none, or its file is another program's


def zookeeper_reached(address: str) -> str:
    """The ZooKeeper address `host:port,…/chroot`, if something listens at one of them.

    Raises EnvironmentProblem.
    """
    servers = address.partition("/")[0].split(",")
    try:
        addresses = [parse_address(part if ":" in part else f"{part}:2181") for part in servers]
    except ValueError as error:
        raise EnvironmentProblem(f"no ZooKeeper answers at {address}: {error}") from None
    if refusals := why_unreachable(addresses):
        tried = "; ".join(f"{each}: {why}" for each, why in refusals.items())
        raise EnvironmentProblem(
            f"no ZooKeeper answers at {address} ({tried}): start it, or give its address with --zookeeper"
        )
    return address


def why_unreachable(
    addresses: Sequence[tuple[str, int]], wait_s: float = ATTEMPT_S, question: bytes = b""
) -> dict[str, str]:
    """Why no connection to any of them can be made, by address; empty as soon as one can.

    With a `question` who answers it as nobody should counts as out of reach, too.
    """
    answers: Queue[tuple[str, str | None]] = Queue()
    names = {f"{host}:{port}": (host, port) for host, port in addresses}
    for name, address in names.items():
        # daemons: a name that takes long to look up must not hold up the end of the command
        asked = (name, address, wait_s, question, answers)
        Thread(target=_try, args=asked, name=f"dials {name}", daemon=True).start()
    reasons = dict.fromkeys(names, SILENT)
    deadline = monotonic() + wait_s
    for _ in names:
        try:
            name, reason = answers.get(timeout=max(deadline - monotonic(), 0))
        except Empty:
            break
        if reason is None:
            return {}
        reasons[name] = reason
    return reasons


def _try(
    name: str,
    address: tuple[str, int],
    wait_s: float,
    question: bytes,
    answers: "Queue[tuple[str, str | None]]",
) -> None:
    try:
        with socket.create_connection(address, timeout=wait_s) as connection:
            reason = _foreign(connection, question) if question else None
    except (OSError, UnicodeError) as error:
        reason = _reason(error)
    answers.put((name, reason))


def _foreign(connection: socket.socket, question: bytes) -> str | None:
    """What answers there, if it is certainly no broker."""
    connection.settimeout(ANSWER_S)
    try:
        connection.sendall(question)
        begin = connection.recv(4)
    except OSError:  # silent, or it has hung up: the client will see
        return None
    return next((why for first, why in FOREIGN.items() if begin.startswith(first)), None)


def _reason(error: Exception) -> str:
    if isinstance(error, ConnectionRefusedError):
        return REFUSED
    if isinstance(error, TimeoutError):
        return SILENT
    if isinstance(error, socket.gaierror):
        return f"the name cannot be looked up: {error.strerror}"
    return str(getattr(error, "strerror", None) or error)


def _waits_for(bootstrap: str) -> str:
    seconds = PATIENCE["default_api_timeout_ms"] // 1000
    return (
        f"strandline: something listens at {bootstrap} and has not answered yet (is it paused, starting, or "
        f"not a broker?); waiting up to {seconds} s"
    )
