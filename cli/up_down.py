"""`strandline up` and `down`: start and stop a cluster on this machine, in the background.

Left to others: single brokers of it (`brokers.py`), who belongs to it (`roster.py`), processes and files
(`local/cluster.py`).
"""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from ..local.cluster import LocalCluster, changing, find, take_down
from ..local.embedded_zookeeper import EnvironmentProblem
from ..local.ports import own_address, why_not_bound
from ..local.processes import ANY_ADDRESS, State
from ..local.roster import with_data
from .console import AsJson, Failure, WrongUsage, clear_errors, counted, err, out, pair, print_json, tell

DEFAULT_DIRECTORY = Path.home() / ".strandline"
DEFAULT_PORT, DEFAULT_BROKERS = 9092, 3
REMEDIES = {State.STOPPED: "start", State.PAUSED: "resume"}
LOCALHOST = ("127.0.0.1", "localhost")
Directory = Annotated[
    Path, typer.Option("--dir", "-d", help="directory of the cluster's data, logs and process ids")
]


def naming(directory: Path) -> str:
    """What a command needs behind it to mean the cluster there: nothing, if it looks there by itself."""
    is_default = directory.resolve() == DEFAULT_DIRECTORY.resolve()
    return "" if is_default else f" --dir {shlex.quote(str(directory))}"


def remedy_for(name: str, state: State, directory: Path) -> str | None:
    """The command that brings a process of the cluster there back; None if it runs."""
    verb = REMEDIES.get(state)
    return None if verb is None else f"strandline {verb} {name}{naming(directory)}"


def up(
    brokers: Annotated[
        int | None,
        typer.Option(
            min=1, max=9, show_default=False, help="number of brokers (default: those of the directory, or 3)"
        ),
    ] = None,
    dir: Directory = DEFAULT_DIRECTORY,
    port: Annotated[
        int, typer.Option(min=1, max=55_000, help="port of the first broker; the others get the next ports")
    ] = DEFAULT_PORT,
    host: Annotated[
        str,
        typer.Option(help="address where clients are heard; 0.0.0.0: at every address of this machine"),
    ] = LOCALHOST[0],
    advertise: Annotated[
        str | None,
        typer.Option(help="host that clients are sent to (default: that of --host, or this machine's own)"),
    ] = None,
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
        bind = None if host in LOCALHOST else _bindable(host)
        advertised = advertise or (own_address(host) if host in ANY_ADDRESS else None)
        with changing(dir):
            if _runs(dir):
                more = naming(dir)
                raise Failure(
                    f"a cluster is already running in {dir}: stop it with `strandline down{more}`, bring a "
                    f"broker N of it back with `strandline start N{more}`, or let another one join with "
                    f"`strandline add{more}`"
                )
            ids = _ids(dir, brokers)
            cluster = LocalCluster(
                dir,
                ids,
                settings=settings,
                first_port=port,
                web=web,
                bind=bind,
                advertised=advertised,
            )
            with err.status(f"starting ZooKeeper and {counted(len(ids), 'broker')}"):
                cluster.start()
            cluster.save()
        if as_json:
            _tell_json(cluster)
        else:
            _tell(cluster, dir, port)
        if bind is not None:
            _warn(cluster)


def _ids(directory: Path, wanted: int | None) -> list[int]:
    """Who is to be started: all that have data there, and new ones, if more are wanted."""
    there = with_data(directory)
    if wanted is not None and wanted < len(there):
        raise Failure(
            f"{directory} has the data of {counted(len(there), 'broker')} ({', '.join(map(str, there))}), "
            f"and --brokers {wanted} would leave some of it without its broker: leave --brokers out, and "
            "take brokers out with strandline remove; or name another --dir"
        )
    ids = there or list(range(1, (wanted or DEFAULT_BROKERS) + 1))
    return ids + [ids[-1] + more for more in range(1, (wanted or 0) - len(ids) + 1)]


def _bindable(host: str) -> str:
    """The host, if servers may listen there."""
    if (why := why_not_bound(host)) is not None:
        raise WrongUsage(
            f"--host {host} is no address of this machine ({why.strerror or why}): expected one that it has, "
            "or 0.0.0.0 for all of them"
        )
    return host


def _tell_json(cluster: LocalCluster) -> None:
    print_json(
        {
            "bootstrap": cluster.bootstrap,
            "advertised": [broker.advertised_address for broker in cluster.brokers.values()],
            "zookeeper": cluster.zookeeper,
            "directory": str(cluster.directory),
            "brokers": [{"id": b.id, "address": b.address, "web": b.page} for b in cluster.brokers.values()],
        }
    )


def _tell(cluster: LocalCluster, directory: Path, port: int) -> None:
    brokers = cluster.brokers.values()
    out.print(f"{len(brokers)} brokers at [bold]{cluster.bootstrap}[/bold]", soft_wrap=True)
    if any(broker.advertised_address != broker.address for broker in brokers):
        elsewhere = ",".join(broker.advertised_address for broker in brokers)
        out.print(f"Advertised to clients: {elsewhere}", soft_wrap=True)
    out.print(f"ZooKeeper at {cluster.zookeeper}, data and logs in {cluster.directory}", soft_wrap=True)
    pages = " ".join(broker.page for broker in brokers if broker.page is not None)
    if pages:
        out.print(f"Web: {pages}", soft_wrap=True)
    more = naming(directory)
    here = "" if port == DEFAULT_PORT else f" -b {cluster.bootstrap}"
    out.print(f"Inspect: strandline status{here}   Stop: strandline down{more}", soft_wrap=True)


def _warn(cluster: LocalCluster) -> None:
    """Say what it means that others than this machine reach the ports, and what they are sent to."""
    each = cluster.brokers.values()
    ports = [broker.port for broker in each] + [broker.web_port for broker in each if broker.web_port]
    told = ", ".join(sorted({broker.advertised or broker.reached for broker in each}))
    err.print(
        "warning: there is no password and no TLS: anyone who reaches the ports "
        f"{', '.join(map(str, ports))} of this machine may read, write and delete everything. "
        f"Clients are sent to {told}: it must be reachable from where they are (--advertise chooses another "
        "name or address).",
        markup=False,
        soft_wrap=True,
    )


def down(dir: Directory = DEFAULT_DIRECTORY, as_json: AsJson = False) -> None:
    """Stop the cluster that `up` started, by controlled shutdown. Its data is kept."""
    with clear_errors():
        with err.status("stopping"):
            stopped = take_down(dir)
        sentence = f"{stopped} processes stopped; the data is still in {dir}"
        tell(sentence, {"stopped": stopped, "directory": str(dir)}, as_json)


def _runs(directory: Path) -> bool:
    """Whether any process of a cluster there is alive: ZooKeeper alone counts, for its data is in use."""
    try:
        return any(state is not State.STOPPED for state in find(directory).processes.values())
    except EnvironmentProblem:
        return False
