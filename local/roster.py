"""Who belongs to a cluster that `strandline up` left running: one more broker joins it, one is taken out.

A broker that joins is made like the others: their settings as far as all have the same, ports in the same
row, a directory of its own. It holds nothing before something is moved to it. One that still holds replicas
is not taken out unless that is asked for; its directory is kept under another name, so that no later broker
of its id finds it.
Left to others: moving replicas (`cli/reassign`), all processes at once (`cluster.py`), a single one that
stays (`members.py`), what is printed (`cli/roster.py`).
"""

import re
import shutil
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from ..base.types import TopicPartition
from ..client.sync import Admin
from .cluster import PORT_STEPS, LocalCluster, changing, check_free, find, read_state
from .embedded_zookeeper import EnvironmentProblem
from .members import Action, NoSuchMember, check_zookeeper, chosen, why_not
from .ports import free_ports
from .processes import BrokerProcess, State

IDS_MAX = 99  # beyond it the ports for clients run into those for HTTP
SHOWN = 3  # partitions that a refusal names


class StillHolds(EnvironmentProblem):
    """The broker has replicas that no other one would have in its place."""

    def __init__(self, id: int, held: list[TopicPartition]) -> None:
        more = ", …" if len(held) > SHOWN else ""
        named = ", ".join(map(str, held[:SHOWN]))
        super().__init__(f"broker {id} still holds {len(held)} replica{'s'[: len(held) > 1]} ({named}{more})")


def with_data(directory: Path) -> list[int]:
    """The ids of the brokers that have, or had, data in the directory of a cluster, in order."""
    found = (re.fullmatch(r"broker-(\d+)", each.parent.name) for each in directory.glob("broker-*/data"))
    return sorted(int(one[1]) for one in found if one is not None)


def log_dirs_in(directory: Path) -> list[Path]:
    """The log directories of the brokers of an `up`, which may be down; else the directory itself."""
    return [directory / f"broker-{broker}" / "data" for broker in with_data(directory)] or [directory]


def add(
    directory: Path,
    id: int | None = None,
    *,
    port: int | None = None,
    settings: Mapping[str, str] | None = None,
    options: str = "",
) -> BrokerProcess:
    """Start one more broker and wait until it belongs to the cluster. `settings` go before the others' own.

    Without `id` it is the one after the highest that was ever there, without `port` the place in the row of
    the others'. Raises EnvironmentProblem, and then nothing has changed. `options` is appended to commands
    that are proposed.
    """
    read_state(directory)
    with changing(directory), ExitStack() as undo:
        cluster = find(directory)
        check_zookeeper(cluster, options)
        broker = _newcomer(cluster, id, port)
        if _leftover(broker):
            raise EnvironmentProblem(
                f"{broker.directory} has the data of an earlier broker: move it away, or choose another id"
            )
        broker.settings = _shared_settings(cluster, broker) | dict(settings or {})
        undo.callback(_forget, cluster, broker)
        cluster.brokers[broker.id] = broker
        broker.start()
        cluster.save()
        cluster.wait_member(broker.id)
        undo.pop_all()
    return broker


def _leftover(broker: BrokerProcess) -> bool:
    return broker.id in with_data(broker.directory.parent)


def _newcomer(cluster: LocalCluster, id: int | None, port: int | None) -> BrokerProcess:
    others = cluster.brokers
    wanted = id if id is not None else max([*others, *with_data(cluster.directory)]) + 1
    if wanted in others:
        raise EnvironmentProblem(f"broker {wanted} already belongs to the cluster in {cluster.directory}")
    if wanted > IDS_MAX:
        raise EnvironmentProblem(f"broker {wanted}: the highest id is {IDS_MAX}; say a free one")
    like = others[min(others)]
    ports = _ports(cluster, wanted, port, 2 if like.web_port is None else 3)
    check_free(ports, like.bind)
    return BrokerProcess(
        wanted,
        cluster.directory / f"broker-{wanted}",
        ports[0],
        ports[1],
        like.zookeeper,
        host=like.host,
        web_port=ports[2] if len(ports) > 2 else None,
        bind=like.bind,
        advertised=like.advertised,
    )


def _ports(cluster: LocalCluster, id: int, port: int | None, kinds: int) -> list[int]:
    """For clients, for brokers, and for HTTP: from `port`, else in the row of the others, if there is one."""
    if port is not None:
        return [port + step for step in PORT_STEPS[:kinds]]
    rows = {
        (b.port - b.id, b.internal_port - b.id, (b.web_port or 0) - b.id if kinds > 2 else 0)
        for b in cluster.brokers.values()
    }
    return [first + id for first in rows.pop()[:kinds]] if len(rows) == 1 else free_ports(kinds)


def _shared_settings(cluster: LocalCluster, broker: BrokerProcess) -> dict[str, str]:
    """What stands in the configuration of every other broker, but for what says who and where it is."""
    files = [
        dict(line.split("=", 1) for line in one.config.read_text().splitlines() if "=" in line)
        for one in cluster.brokers.values()
        if one.id != broker.id
    ]
    common = set.intersection(*(set(file.items()) for file in files))
    own = broker.places.keys() | {"advertised.listeners"}
    return {name: value for name, value in sorted(common) if name not in own and not name.startswith("#")}


def _forget(cluster: LocalCluster, broker: BrokerProcess) -> None:
    """It did not join: nothing of it stays but the last lines of its log, which the error tells."""
    broker.kill()
    cluster.brokers.pop(broker.id, None)
    cluster.save()
    shutil.rmtree(broker.directory, ignore_errors=True)


def remove(directory: Path, name: str, *, force: bool = False, options: str = "") -> Path:
    """Stop a broker by a controlled shutdown and forget it. Returns where its directory lies now.

    Raises StillHolds if it holds replicas, unless `force`; NoSuchMember; EnvironmentProblem if it is paused,
    or the last one; OSError or ApiError if nobody can tell what it holds. Then nothing has changed.
    """
    read_state(directory)
    with changing(directory):
        cluster = find(directory)
        (known,) = chosen(cluster, [name])
        if not known.isdigit():
            raise NoSuchMember(f"{name} is no broker: only brokers can be taken out")
        broker = cluster.brokers[int(known)]
        if broker.state is State.PAUSED:
            raise EnvironmentProblem(str(why_not(Action.STOP, known, State.PAUSED, options)))
        if len(cluster.brokers) == 1:
            raise EnvironmentProblem(
                f"broker {known} is the last one: `strandline down{options}` stops the cluster"
            )
        if not force and (held := _held(cluster, broker.id)):
            raise StillHolds(broker.id, held)
        ran = broker.alive
        broker.stop()
        del cluster.brokers[broker.id]
        if not force and (held := _held(cluster, broker.id)):  # something was created on it meanwhile
            if ran:
                broker.launch()
            cluster.brokers[broker.id] = broker
            cluster.save()
            raise StillHolds(broker.id, held)
        kept = _free_name(broker.directory)
        broker.directory.rename(kept)
        cluster.save()
    return kept


def _held(cluster: LocalCluster, id: int) -> list[TopicPartition]:
    """The partitions with a replica on broker `id`, also one that is being moved there or away."""
    with Admin(cluster.bootstrap) as admin:
        names = admin.list_topics(internal=True)
        topics = admin.describe_topics(sorted(names)) if names else []
    return [
        TopicPartition(topic.name, one.partition)
        for topic in topics
        for one in topic.partitions
        if id in one.replicas
    ]


def _free_name(directory: Path) -> Path:
    """The name beside it under which a removed broker's directory is kept."""
    kept, number = directory.with_name(f"{directory.name}.removed"), 1
    while kept.exists():
        number += 1
        kept = directory.with_name(f"{directory.name}.removed-{number}")
    return kept
