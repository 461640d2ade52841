"""Where the brokers of the fault matrix live: each in a network namespace of its own, on one bridge.

The tests themselves move into a namespace first, so nothing they do to a network, or mount, is seen outside,
and all of it goes with their processes. Links are cut with nft inside the broker's own namespace: silently,
or with a RST for everything that comes. ZooKeeper is an ensemble of three. Left to others: faults, verdicts.
"""

import ctypes
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from strandline.local.cluster import LocalCluster
from strandline.local.embedded_zookeeper import Zookeeper, command
from strandline.local.owned import mark
from strandline.local.ports import free_ports

CLONE_NEWNET = 0x40000000
CLONE_NEWNS = 0x00020000
CLONE_NEWUSER = 0x10000000
HERE = "10.77.0.254"  # the bridge: ZooKeeper and the clients
BRIDGE = "strandline0"
TABLE = "inet faults"


def leave_the_network() -> str | None:
    """Move this process into a network of its own; why that is impossible, or None.

    Threads and processes begun afterwards live there, too.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    wanted = CLONE_NEWNET | (CLONE_NEWNS if os.geteuid() == 0 else CLONE_NEWUSER)
    if libc.unshare(wanted) != 0:
        return f"no network namespace can be made here ({os.strerror(ctypes.get_errno())}): run it as root"
    try:
        if wanted & CLONE_NEWNS:
            run("mount", "--make-rprivate", "/")
        for line in (
            "link set lo up",
            f"link add {BRIDGE} type bridge",
            f"addr add {HERE}/24 dev {BRIDGE}",
            f"link set {BRIDGE} up",
        ):
            run("ip", *line.split())
        run("nft", "list", "ruleset")
    except (OSError, subprocess.CalledProcessError) as error:
        return f"a network namespace has no use without ip, bridges and nft: {error}"
    return None


def run(*words: str, text: str = "") -> None:
    subprocess.run(words, input=text, text=True, check=True, capture_output=True, timeout=20)


class Node:
    """One network namespace on the bridge; a sleeping process holds it open."""

    def __init__(self, number: int) -> None:
        self.address = f"10.77.0.{number}"
        words, ours = ["unshare", "-n", "sleep", "7200"], {**os.environ, **mark()}
        self.holder = subprocess.Popen(words, stdin=subprocess.DEVNULL, env=ours)
        here, there = os.readlink("/proc/self/ns/net"), f"/proc/{self.holder.pid}/ns/net"
        deadline = time.monotonic() + 10
        while os.readlink(there) == here:
            assert time.monotonic() < deadline, "unshare(1) has made no namespace"
            time.sleep(0.005)
        near = f"node{number}"
        pid = str(self.holder.pid)
        run("ip", *f"link add {near} type veth peer name eth0 netns {pid}".split())
        run("ip", *f"link set {near} master {BRIDGE} up".split())
        for line in ("link set lo up", f"addr add {self.address}/24 dev eth0", "link set eth0 up"):
            run(*self.within, "ip", *line.split())

    @property
    def within(self) -> tuple[str, ...]:
        """What stands before a command that shall run in there."""
        return ("nsenter", "-t", str(self.holder.pid), "-n", "--")

    def cut(self, *others: str, reset: bool = False) -> None:
        """Nothing comes in from `others` any more; with `reset`, their segments are answered by RST."""
        what = "reject with tcp reset" if reset else "drop"
        self.filter("input", *(f"ip saddr {other} meta l4proto tcp {what}" for other in others))

    def filter(self, hook: str, *rules: str) -> None:
        """Rules of nft more, for what comes in (`input`) or goes out (`output`)."""
        head = f"type filter hook {hook} priority 0; policy accept;"
        body = "\n".join(rules)
        text = f"table {TABLE} {{\nchain {hook} {{\n{head}\n{body}\n}}\n}}\n"
        run(*self.within, "nft", "-f", "-", text=text)

    def cut_from_ports(
        self, other: str, ports: Sequence[int], *, comes: bool = True, goes: bool = True
    ) -> None:
        """Nothing comes from these ports of `other`, or goes there; what lives beside them is not cut."""
        listed = ", ".join(map(str, ports))
        if comes:
            self.filter("input", f"ip saddr {other} tcp sport {{ {listed} }} drop")
        if goes:
            self.filter("output", f"ip daddr {other} tcp dport {{ {listed} }} drop")

    def heal(self) -> None:
        """All links as before."""
        run(*self.within, "nft", "flush", "ruleset")

    def close(self) -> None:
        """Let go of the namespace; its end of the cable goes with the last process in it."""
        self.holder.kill()
        self.holder.wait(10)


class Ensemble:
    """Three ZooKeepers that are one."""

    def __init__(self, directory: Path, host: str, members: int = 3) -> None:
        ports = free_ports(3 * members, "127.0.0.1")
        self.servers = [Zookeeper(directory / f"zookeeper-{i}", ports[i]) for i in range(members)]
        peers = "".join(
            f"server.{i}={host}:{ports[members + i]}:{ports[2 * members + i]}\n" for i in range(members)
        )
        for server in self.servers:
            server.host = host
        self._peers = peers
        for i in range(members):
            self.launch(i)

    def launch(self, number: int) -> None:
        """Start this member, for the first time or again."""
        server = self.servers[number]
        line = command(server.directory, server.port, server.host, server.tick_ms)
        with (server.directory / "zoo.cfg").open("a") as config:
            config.write(f"initLimit=10\nsyncLimit=5\n{self._peers}")
        (server.directory / "data").mkdir(exist_ok=True)
        (server.directory / "data" / "myid").write_text(str(number))
        with (server.directory / "zookeeper.log").open("ab") as log:
            server.process = subprocess.Popen(
                line,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                env={**os.environ, **mark()},
            )

    @property
    def address(self) -> str:
        return ",".join(server.address for server in self.servers)

    @property
    def ports(self) -> list[int]:
        """The ports for clients."""
        return [server.port for server in self.servers]

    def mode(self, number: int) -> str:
        """`leader` or `follower`; empty while it does not serve."""
        server = self.servers[number]
        with suppress(OSError), socket.create_connection((server.host, server.port), 2) as asked:
            asked.sendall(b"srvr")
            with asked.makefile("rb") as told:
                found = re.search(rb"^Mode: (\w+)", told.read(), re.MULTILINE)
            return found[1].decode() if found else ""
        return ""

    def leader(self) -> int:
        """The member that leads; AssertionError if none does."""
        found = [number for number in range(len(self.servers)) if self.mode(number) == "leader"]
        assert found, "no ZooKeeper leads"
        return found[0]

    def revive(self) -> None:
        """Every member runs, and serves."""
        for number, server in enumerate(self.servers):
            if server.process is None or server.process.poll() is not None:
                self.launch(number)
            elif server.pid is not None:
                os.kill(server.pid, signal.SIGCONT)
        self.wait()

    def wait(self) -> None:
        for server in self.servers:
            server.wait(60)

    def kill(self) -> None:
        for server in self.servers:
            server.kill()


class Field:
    """The network of one test run: an ensemble, and namespaces for as many brokers as are wanted."""

    def __init__(self, directory: Path, apart: bool) -> None:
        """With `apart`, brokers live in namespaces; without, all live at 127.0.0.1 and no link can be cut."""
        self.apart = apart
        self.nodes: dict[int, Node] = {}
        self._undo = ExitStack()
        self.ensemble = Ensemble(directory, HERE if apart else "127.0.0.1")
        self._undo.callback(self.ensemble.kill)
        self.ensemble.wait()

    def cluster(self, directory: Path, brokers: int, settings: Mapping[str, str]) -> LocalCluster:
        """A cluster that has not been started, its brokers in their places."""
        place = f"{self.ensemble.address}/{directory.name}"
        cluster = LocalCluster(directory, brokers, settings=settings, zookeeper=place, owned=True)
        if self.apart:
            for id, broker in cluster.brokers.items():
                node = self.node(id)
                broker.host, broker.within = node.address, node.within
        return cluster

    def node(self, number: int) -> Node:
        """The namespace with this number, made when first wanted."""
        if number not in self.nodes:
            node = self.nodes[number] = Node(number)
            self._undo.callback(node.close)
        return self.nodes[number]

    def heal(self) -> None:
        """Every link as before."""
        for node in self.nodes.values():
            node.heal()

    def close(self) -> None:
        self._undo.close()
