"""`strandline zookeeper`: run a ZooKeeper in the foreground, or show what is stored in one."""

import asyncio
import json
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from ..local.cluster import ZOOKEEPER, find
from ..local.embedded_zookeeper import EnvironmentProblem, command
from ..local.ports import is_free
from ..local.processes import State
from ..zookeeper.client import NoNode, Stat, ZkUnreachable
from ..zookeeper.kazoo_client import KazooZkClient
from .console import AsJson, Failure, WrongUsage, clear_errors, out, print_json
from .reach import own_cluster, zookeeper_reached
from .up_down import remedy_for

app = typer.Typer(
    invoke_without_command=True,
    help="Run the ZooKeeper that ships with the pyspark wheel, or read its nodes.",
)

Address = Annotated[
    str | None,
    typer.Option(
        "--zookeeper",
        "-z",
        help="host:port, with /chroot if used (default: that of the cluster of `up`, or localhost:2181)",
    ),
]
Cluster = Annotated[
    Path | None,
    typer.Option("--dir", "-d", help="the directory of `up`, to find the ZooKeeper of its cluster"),
]
DEFAULT_ADDRESS = "localhost:2181"


@app.callback()
def run(
    context: typer.Context,
    port: Annotated[int, typer.Option(min=1, max=65_535, help="port to listen on")] = 2181,
    dir: Annotated[Path, typer.Option("--dir", "-d", help="data directory")] = Path(
        "/tmp/strandline-zookeeper"
    ),
) -> None:
    """Without a command: run ZooKeeper in the foreground until interrupted."""
    if context.invoked_subcommand is not None:
        return
    with clear_errors():
        if not is_free(port):
            raise EnvironmentProblem(f"port {port} is in use: stop what listens there, or choose --port")
        line = command(dir, port)
        out.print(f"ZooKeeper serves 127.0.0.1:{port}; its data is in {dir}")
        os.execvp(line[0], line)


@app.command()
def get(path: str, zookeeper: Address = None, dir: Cluster = None, as_json: AsJson = False) -> None:
    """Print a znode: data (JSON indented), version and owner."""
    with clear_errors():
        data, stat = asyncio.run(_read(_address(zookeeper, dir), path, "get"))
        text = data.decode(errors="replace")
        try:
            value = json.loads(text)
        except ValueError:
            value = text or None
        if as_json:
            owned = f"0x{stat.owner:x}" if stat.owner else None
            print_json({"path": path, "data": value, "version": stat.version, "owner": owned})
            return
        if isinstance(value, dict):
            out.print_json(text)
        elif text:
            out.print(text, markup=False, soft_wrap=True)
        owner = f"session 0x{stat.owner:x}" if stat.owner else "none (persistent)"
        out.print(f"version {stat.version}, created in transaction 0x{stat.czxid:x}, owned by {owner}")


@app.command()
def ls(
    path: Annotated[str, typer.Argument(help="path (default: the root)")] = "/",
    zookeeper: Address = None,
    dir: Cluster = None,
    as_json: AsJson = False,
) -> None:
    """List the children of a znode."""
    with clear_errors():
        names = asyncio.run(_read(_address(zookeeper, dir), path, "ls"))
        if as_json:
            print_json(names)
        elif names:
            out.print("\n".join(names), markup=False)


def _address(given: str | None, directory: Path | None) -> str:
    """The address that was given, or that of the cluster of `up`: in `directory`, or the home directory."""
    if given is not None and directory is not None:
        raise WrongUsage("--zookeeper and --dir exclude each other: both name a ZooKeeper")
    if given is not None:
        return given
    if directory is not None:
        cluster = find(directory)
        state = cluster.processes.get(ZOOKEEPER, State.RUNNING)
        if remedy := remedy_for(ZOOKEEPER, state, directory):
            raise EnvironmentProblem(f"the ZooKeeper of the cluster in {directory} is {state}: {remedy}")
        return cluster.zookeeper
    own = own_cluster()
    return (
        own.zookeeper
        if own is not None and own.processes.get(ZOOKEEPER) is State.RUNNING
        else DEFAULT_ADDRESS
    )


async def _read(address: str, path: str, what: str) -> Any:
    if not path.startswith("/"):
        raise WrongUsage(f"{path}: expected a path that starts with /, e.g. /brokers/ids")
    zookeeper_reached(address)
    zk = KazooZkClient(address, 6000, connect_timeout_s=5)
    try:
        await zk.start()
    except ZkUnreachable:
        raise EnvironmentProblem(
            f"no ZooKeeper answers at {address}, though something listens there: is the address right?"
        ) from None
    try:
        if what == "get":
            found: tuple[bytes, Stat] = await zk.get(path)
            return found
        return await zk.children(path)
    except NoNode:
        raise Failure(f"{path} does not exist") from None
    finally:
        await zk.close()
