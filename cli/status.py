"""`strandline status` and `health`: the state of a cluster, and whether it can be used."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ..base.types import TopicPartition
from ..client.admin.descriptions import ClusterDescription, NewTopic, PartitionDescription
from ..client.sync import Admin
from ..local.members import seen_from, title
from ..local.processes import State, joined
from ..protocol.errors import ApiError, ErrorCode
from ..protocol.messages.offsets import LATEST
from .console import (
    BRIEFLY_MS,
    DEFAULT_BOOTSTRAP,
    AsJson,
    Bootstrap,
    Failure,
    clear_errors,
    out,
    print_json,
    tell,
)
from .reach import connect
from .reassign.ongoing import Moves, moving
from .up_down import DEFAULT_DIRECTORY, Directory, remedy_for
from .why.command import ask_all

ANY_ADDRESS = ("0.0.0.0", "::")
HEALTH_TOPIC = "strandline-health-check"
LOOK_EVERY_S, WATCH_S = 0.5, 1.0
NAMED_MAX = 10  # partitions out of sync that are named


def status(
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    watch: Annotated[bool, typer.Option("--watch", help="refresh once a second")] = False,
    internal: Annotated[bool, typer.Option("--internal", help="include internal topics")] = False,
    dir: Directory = DEFAULT_DIRECTORY,
    as_json: AsJson = False,
) -> None:
    """Show brokers, leaders, ISRs, high watermarks, log directories, and what is wrong.

    Of a cluster that `up` started here, also which of its processes are stopped or paused.
    """
    with clear_errors(), connect(bootstrap, None if dir == DEFAULT_DIRECTORY else dir) as admin:

        def seen() -> dict[str, Any]:
            found = picture(admin, internal)
            return {**found, "processes": processes(dir, found["brokers"])}

        if as_json:
            print_json({**seen(), "metrics": _metrics(admin)})
        elif not watch:
            out.print(drawn(seen()))
        else:
            watched(lambda: drawn(seen()), threading.Event().wait)


def watched(look: Callable[[], RenderableType], is_enough: Callable[[float], bool]) -> None:
    """Show it again each second until `is_enough`: in its place on a terminal, else one below the other."""
    if not out.is_terminal:
        out.print(look())
        while not is_enough(WATCH_S):
            out.print("", look())
        return
    with Live(look(), console=out, screen=True) as live:
        while not is_enough(WATCH_S):
            live.update(look())


def processes(directory: Path, brokers: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The processes of the cluster that `up` started in `directory`, and what brings those back that do not
    run; none if `brokers` are not of it."""
    cluster = seen_from(directory, [joined(one["host"], one["port"]) for one in brokers])
    if cluster is None:
        return []
    places = {str(id): broker.address for id, broker in cluster.brokers.items()}
    return [
        {
            "name": name,
            "state": state.value,
            "address": places.get(name, cluster.zookeeper),
            "remedy": remedy_for(name, state, directory),
        }
        for name, state in cluster.processes.items()
    ]


def health(
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    in_sync: Annotated[
        bool, typer.Option("--in-sync", help="every partition must have a leader and its whole ISR, too")
    ] = False,
    wait: Annotated[float, typer.Option(min=0, help="seconds to wait for it")] = 0.0,
    as_json: AsJson = False,
) -> None:
    """Exit with 0 if a controller accepts new topics, else 1 with the reason."""
    with clear_errors():
        deadline = time.monotonic() + wait
        while True:
            try:
                cluster = _healthy(bootstrap, in_sync)
                break
            except (Failure, ApiError, OSError):
                if time.monotonic() >= deadline:
                    raise
            time.sleep(min(LOOK_EVERY_S, max(deadline - time.monotonic(), 0.0)))
        count = len(cluster.brokers)
        told = {"brokers": count, "controller": cluster.controller_id}
        tell(f"healthy: {count} brokers, controller {cluster.controller_id}", told, as_json)


def _healthy(bootstrap: str, in_sync: bool) -> ClusterDescription:
    """The cluster, if nothing is wrong with it. Raises Failure."""
    with connect(bootstrap, request_timeout_ms=5000, default_api_timeout_ms=5000) as admin:
        cluster = admin.describe_cluster()
        if cluster.controller_id < 0:
            raise Failure("no controller: topics cannot be created and no leader can be elected")
        admin.create_topics([NewTopic(HEALTH_TOPIC, 1, 1)], validate_only=True)
        moves = moving(admin) if in_sync else {}
        lacking = [
            f"{topic.name}-{one.partition} {what}"
            for topic in (admin.describe_topics() if in_sync else ())
            for one in topic.partitions
            if (what := _lacks(one, _added(moves, TopicPartition(topic.name, one.partition))))
        ]
        if lacking:
            more = f" and {len(lacking) - NAMED_MAX} more" if len(lacking) > NAMED_MAX else ""
            raise Failure(f"not in sync: {'; '.join(lacking[:NAMED_MAX])}{more}")
        return cluster


def _lacks(one: PartitionDescription, added: int) -> str:
    """What a partition lacks to be in sync; empty if nothing."""
    if one.leader < 0:
        return "has no leader"
    out_of_sync = ", ".join(map(str, one.osr))
    return f"lacks {out_of_sync}" if len(one.isr) < len(one.replicas) - added else ""


def _added(moves: Moves, partition: TopicPartition) -> int:
    """How many replicas a reassignment is adding: they are not missed in the ISR yet."""
    one = moves.get(partition)
    return 0 if one is None else len(one.adding)


def picture(admin: Admin, internal: bool = False) -> dict[str, Any]:
    """The cluster as plain values: brokers, partitions, and which of them are in trouble.

    A high watermark is None if its leader does not tell, or there is none. A replica that a reassignment is
    adding does not make its partition under-replicated, as in Kafka's own count.
    """
    cluster = admin.describe_cluster()
    topics = [topic for topic in admin.describe_topics() if internal or not topic.is_internal]
    minimum = {topic.name: _min_isr(admin, topic.name) for topic in topics}
    led = [TopicPartition(t.name, p.partition) for t in topics for p in t.partitions if p.leader >= 0]
    marks = admin.list_known_offsets(dict.fromkeys(led, LATEST), timeout_ms=BRIEFLY_MS) if led else {}
    lacking = any(len(one.isr) < len(one.replicas) for topic in topics for one in topic.partitions)
    moves = moving(admin) if lacking else {}
    pages, strangers = _pages(admin, {broker.node_id: broker.host for broker in cluster.brokers})
    dirs = _log_dirs(admin, [broker.node_id for broker in cluster.brokers])
    kafkas = strangers & {one["broker"] for one in dirs}
    partitions = []
    for topic in topics:
        for one in topic.partitions:
            place = TopicPartition(topic.name, one.partition)
            mark = marks.get(place)
            partitions.append(
                {
                    "topic": topic.name,
                    "partition": one.partition,
                    "leader": one.leader,
                    "leader_epoch": one.leader_epoch,
                    "replicas": list(one.replicas),
                    "isr": list(one.isr),
                    "osr": list(one.osr),
                    "high_watermark": mark.offset if mark else None,
                    "under_replicated": len(one.isr) < len(one.replicas) - _added(moves, place),
                    "under_min_isr": len(one.isr) < min(minimum[topic.name], len(one.replicas)),
                    "offline": one.leader < 0,
                    "offline_replicas": list(one.offline),
                }
            )
    return {
        "cluster_id": cluster.cluster_id,
        "controller": cluster.controller_id,
        "brokers": [
            {**one._asdict(), "web": pages.get(one.node_id), "kafka": one.node_id in kafkas}
            for one in cluster.brokers
        ],
        "under_replicated": sum(p["under_replicated"] for p in partitions),
        "under_min_isr": sum(p["under_min_isr"] for p in partitions),
        "offline": sum(p["offline"] for p in partitions),
        "partitions": partitions,
        "log_dirs": dirs,
    }


def _metrics(admin: Admin) -> dict[str, Any]:
    """Metrics of each broker that answers."""
    brokers = sorted(broker.node_id for broker in admin.describe_cluster().brokers)
    told, _ = ask_all(admin, brokers, "metrics", timeout_ms=BRIEFLY_MS)
    return {str(broker): {**each, "broker": broker} for broker, each in told.items()}


def _pages(admin: Admin, hosts: dict[int, str]) -> tuple[dict[int, str], set[int]]:
    """The URLs of the HTTP servers of brokers that answer and have one; and the brokers that hang up at this,
    as those of Apache Kafka do.
    """
    told, silent = ask_all(admin, sorted(hosts), "web", timeout_ms=BRIEFLY_MS)
    found = {}
    for broker, document in told.items():
        if document["web"] is not None:
            host, port = document["web"]
            reached = hosts[broker] if host in ANY_ADDRESS else host
            found[broker] = f"http://{f'[{reached}]' if ':' in reached else reached}:{port}/"
    return found, {broker for broker, why in silent.items() if ErrorCode.NETWORK_EXCEPTION.name in why}


def _log_dirs(admin: Admin, brokers: list[int]) -> list[dict[str, Any]]:
    """The log directories of each broker that answers."""
    found: list[dict[str, Any]] = []
    for broker, described in admin.describe_known_log_dirs(brokers, timeout_ms=BRIEFLY_MS).items():
        for one in described:
            found.append(
                {
                    "broker": broker,
                    "path": one.path,
                    "state": "offline" if one.is_offline else "full" if one.is_full else "ok",
                    "replicas": len(one.replicas),
                    "bytes": sum(replica.size_bytes for replica in one.replicas),
                    "total_bytes": one.total_bytes,
                    "usable_bytes": one.usable_bytes,
                }
            )
    return found


def _min_isr(admin: Admin, topic: str) -> int:
    try:
        entries = admin.describe_configs(topic=topic)
    except ApiError:
        return 1  # it was deleted in the meantime
    return next((int(e.value) for e in entries if e.name == "min.insync.replicas" and e.value), 1)


def drawn(seen: dict[str, Any]) -> RenderableType:
    """The result of `picture` as tables for people."""
    brokers = Table(box=None, header_style="bold", pad_edge=False)
    has_pages = any(broker["web"] for broker in seen["brokers"])
    for name in ("broker", "address", "leads", "follows", *(("web",) if has_pages else ())):
        brokers.add_column(name)
    for broker in seen["brokers"]:
        id = broker["node_id"]
        leads = sum(p["leader"] == id for p in seen["partitions"])
        follows = sum(id in p["replicas"] for p in seen["partitions"]) - leads
        mark = f"{' (Kafka)' if broker['kafka'] else ''}{' (controller)' if id == seen['controller'] else ''}"
        page = (broker["web"] or "-",) if has_pages else ()
        brokers.add_row(f"{id}{mark}", f"{broker['host']}:{broker['port']}", str(leads), str(follows), *page)
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in ("topic", "partition", "leader", "epoch", "replicas", "isr", "high watermark", ""):
        table.add_column(name, justify="right" if name in ("partition", "leader", "epoch") else "left")
    for one in seen["partitions"]:
        replicas, isr = (",".join(map(str, one[name])) for name in ("replicas", "isr"))
        watermark = "-" if one["high_watermark"] is None else f"{one['high_watermark']:,}"
        row = (one["topic"], one["partition"], one["leader"], one["leader_epoch"], replicas, isr, watermark)
        table.add_row(*map(str, row), _trouble(one))
    counts = ("under_replicated", "under_min_isr", "offline")
    line = ", ".join(f"{name.replace('_', ' ')} {seen[name]}" for name in counts)
    idle = [one for one in seen.get("processes", ()) if one["state"] != State.RUNNING]
    return Group(
        brokers,
        *_of_kafka(seen),
        *map(_idle, idle),
        "",
        table,
        "",
        line,
        *map(_disk_trouble, seen["log_dirs"]),
    )


def _of_kafka(seen: dict[str, Any]) -> list[RenderableType]:
    """What is otherwise with brokers of Apache Kafka."""
    ids = [str(broker["node_id"]) for broker in seen["brokers"] if broker["kafka"]]
    if not ids or len(ids) == len(seen["brokers"]):
        return []
    told = f"of Apache Kafka: {', '.join(ids)}; that one has died only its ZooKeeper session tells"
    return [Text(told, style="dim")]


def _idle(one: dict[str, Any]) -> RenderableType:
    """A line about a process that is stopped or paused, with the command that brings it back."""
    return Text(f"{title(one['name'])} ({one['address']}) is {one['state']}: {one['remedy']}", style="yellow")


def _disk_trouble(one: dict[str, Any]) -> RenderableType:
    """A line about a log directory that is offline or full; nothing about one that is well."""
    where = f"broker {one['broker']}: log directory {one['path']}"
    if one["state"] == "offline":
        return Text(f"{where} is offline: its replicas are not available", style="bold red")
    if one["state"] == "full":
        free = f"{one['usable_bytes']:,} bytes free"
        return Text(f"{where} is full ({free}): its replicas are read-only", style="red")
    return Group()


def _trouble(partition: dict[str, Any]) -> str:
    if partition["offline"]:
        return "[bold red]offline[/]"
    if partition["under_min_isr"]:
        return "[red]under min ISR[/]"
    if partition["high_watermark"] is None:
        return "[red]its leader does not tell[/]"
    return "[yellow]under-replicated[/]" if partition["under_replicated"] else ""
