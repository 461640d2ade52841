"""`strandline zookeeper`: run a ZooKeeper in the foreground, or show what is stored in one."""

import asyncio
import json
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from ..local.embedded_zookeeper import EnvironmentProblem, command
from ..local.ports import is_free
from ..zookeeper.client import NoNode, Stat, ZkUnreachable
from ..zookeeper.kazoo_client import KazooZkClient
from .console import AsJson, Failure, WrongUsage, clear_errors, out, print_json

app = typer.Typer(
    invoke_without_command=True,
    help="Run the ZooKeeper that ships with the pyspark wheel, or read its nodes.",
)

Address = Annotated[str, typer.Option("--zookeeper", "-z", help="host:port, with /chroot if used")]


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
def get(path: str, zookeeper: Address = "localhost:2181", as_json: AsJson = False) -> None:
    """Print a znode: data (JSON indented), version and owner."""
    with clear_errors():
        data, stat = asyncio.run(_read(zookeeper, path, "get"))
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
    zookeeper: Address = "localhost:2181",
    as_json: AsJson = False,
) -> None:
    """List the children of a znode."""
    with clear_errors():
        names = asyncio.run(_read(zookeeper, path, "ls"))
        if as_json:
            print_json(names)
        elif names:
            out.print("\n".join(names), markup=False)


async def _read(address: str, path: str, what: str) -> Any:
    if not path.startswith("/"):
        raise WrongUsage(f"{path}: expected a path that starts with /, e.g. /brokers/ids")
    zk = KazooZkClient(address, 6000, connect_timeout_s=5)
    try:
        await zk.start()
    except ZkUnreachable:
        raise EnvironmentProblem(
            f"no ZooKeeper answers at {address}: start it, or give its address with --zookeeper"
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
