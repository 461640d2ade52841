"""`strandline up` and `down`: start and stop a cluster on this machine, in the background."""

from pathlib import Path
from typing import Annotated

import typer

from ..local.cluster import LocalCluster, find, take_down
from ..local.embedded_zookeeper import EnvironmentProblem
from .console import AsJson, Failure, clear_errors, err, out, pair, print_json, tell

DEFAULT_DIRECTORY = Path.home() / ".strandline"
DEFAULT_PORT = 9092
Directory = Annotated[
    Path, typer.Option("--dir", "-d", help="directory of the cluster's data, logs and process ids")
]


def up(
    brokers: Annotated[int, typer.Option(min=1, max=9, help="number of brokers")] = 3,
    dir: Directory = DEFAULT_DIRECTORY,
    port: Annotated[
        int, typer.Option(min=1, max=55_000, help="port of the first broker; the others get the next ports")
    ] = DEFAULT_PORT,
    web: Annotated[
        bool, typer.Option(help="serve each broker's state over HTTP, on the port 100 above its own")
    ] = True,
    override: Annotated[
        list[str] | None,
        typer.Option("--override", help="name=value for every broker, with Kafka's names; may be repeated"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Start a local cluster and its ZooKeeper in the background."""
    with clear_errors():
        settings = dict(pair(text, "--override", "log.segment.bytes=1048576") for text in override or [])
        if _runs(dir):
            raise Failure(f"a cluster is already running in {dir}: stop it with strandline down --dir {dir}")
        cluster = LocalCluster(dir, brokers, settings=settings, first_port=port, web=web)
        with err.status(f"starting ZooKeeper and {brokers} brokers"):
            cluster.start()
        cluster.save()
        if as_json:
            print_json(
                {
                    "bootstrap": cluster.bootstrap,
                    "zookeeper": cluster.zookeeper,
                    "directory": str(cluster.directory),
                    "brokers": [
                        {"id": b.id, "address": b.address, "web": b.page} for b in cluster.brokers.values()
                    ],
                }
            )
            return
        out.print(f"{brokers} brokers at [bold]{cluster.bootstrap}[/bold]", soft_wrap=True)
        out.print(f"ZooKeeper at {cluster.zookeeper}, data and logs in {cluster.directory}", soft_wrap=True)
        if web:
            pages = " ".join(str(broker.page) for broker in cluster.brokers.values())
            out.print(f"Web: {pages}", soft_wrap=True)
        more = "" if dir == DEFAULT_DIRECTORY else f" --dir {dir}"
        here = "" if port == DEFAULT_PORT else f" -b {cluster.bootstrap}"
        out.print(f"Inspect: strandline status{here}   Stop: strandline down{more}", soft_wrap=True)


def down(dir: Directory = DEFAULT_DIRECTORY, as_json: AsJson = False) -> None:
    """Stop the cluster that `up` started, by controlled shutdown. Its data is kept."""
    with clear_errors():
        with err.status("stopping"):
            stopped = take_down(dir)
        sentence = f"{stopped} processes stopped; the data is still in {dir}"
        tell(sentence, {"stopped": stopped, "directory": str(dir)}, as_json)


def _runs(directory: Path) -> bool:
    try:
        return any(broker.alive for broker in find(directory).brokers.values())
    except EnvironmentProblem:
        return False
