"""One process of a cluster that `strandline up` left running: killed, stopped, paused, and brought back.

`act` takes names (`1`, `2`, `zookeeper`) and checks all of them before it touches one. What is started keeps
its configuration, its ports and its place in `cluster.json`. What `why_not` decides is pure.
Left to others: all of them at once (`cluster.py`), who belongs to it (`roster.py`), what is printed
(`cli/brokers.py`).
"""

import signal
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path

from .cluster import ZOOKEEPER, LocalCluster, changing, find, read_state
from .embedded_zookeeper import EnvironmentProblem, Zookeeper
from .ports import is_free
from .processes import BrokerProcess, State


class NoSuchMember(Exception):
    """The cluster has no process of this name."""


class Action(StrEnum):
    """What can be done to a process."""

    START = "start"
    STOP = "stop"
    KILL = "kill"
    PAUSE = "pause"
    RESUME = "resume"


REFUSALS = {
    (Action.START, State.RUNNING): "is already running",
    (Action.START, State.PAUSED): "is paused: let it go on with `strandline resume {name}{dir}`",
    (Action.STOP, State.PAUSED): (
        "is paused and cannot stop in order: first `strandline resume {name}{dir}`, or end it with "
        "`strandline kill {name}{dir}`"
    ),
    (Action.STOP, State.STOPPED): "is not running",
    (Action.KILL, State.STOPPED): "is not running",
    (Action.PAUSE, State.PAUSED): "is already paused",
    (Action.PAUSE, State.STOPPED): "is not running: start it with `strandline start {name}{dir}`",
    (Action.RESUME, State.RUNNING): "is not paused",
    (Action.RESUME, State.STOPPED): "is not running: start it with `strandline start {name}{dir}`",
}


def why_not(action: Action, name: str, state: State, options: str = "") -> str | None:
    """Why this cannot be done to a process in this state, and what can; None if it can. Pure.

    `options` is appended to the commands that are proposed.
    """
    refusal = REFUSALS.get((action, state))
    return None if refusal is None else f"{title(name)} {refusal.format(name=name, dir=options)}"


def title(name: str) -> str:
    """How messages call the process."""
    return "ZooKeeper" if name == ZOOKEEPER else f"broker {name}"


def chosen(cluster: LocalCluster, names: Iterable[str]) -> list[str]:
    """The names as the cluster has them, each once. Raises NoSuchMember."""
    known = cluster.processes
    found = dict.fromkeys(name.lower().removeprefix("broker-") for name in names)
    for name in found:
        if name not in known:
            raise NoSuchMember(f"{name}: the cluster in {cluster.directory} has {', '.join(known)}")
    return list(found)


def seen_from(directory: Path, addresses: Iterable[str]) -> LocalCluster | None:
    """The cluster that `up` started in `directory`, if one of `addresses` is a broker's of it."""
    try:
        cluster = find(directory)
    except EnvironmentProblem:
        return None
    own = {each for one in cluster.brokers.values() for each in (one.address, one.advertised_address)}
    return cluster if own & set(addresses) else None


def act(directory: Path, action: Action, names: Iterable[str], options: str = "") -> list[str]:
    """Do it to each, and wait until it is done. Returns their names.

    Raises NoSuchMember, or EnvironmentProblem if one of them is in a state that does not allow it (then none
    is touched), or does not end or start in time.
    """
    read_state(directory)
    with changing(directory):
        cluster = find(directory)
        names = chosen(cluster, names)
        states = cluster.processes
        refusals = [why_not(action, name, states[name], options) for name in names]
        if told := [refusal for refusal in refusals if refusal is not None]:
            raise EnvironmentProblem("; ".join(told))
        if action is Action.START:
            _launch(cluster, names, options)
    if action is Action.START:
        for name in names:
            if name != ZOOKEEPER:
                cluster.wait_member(int(name))
    else:
        _signal(cluster, action, names)
    return names


def _launch(cluster: LocalCluster, names: list[str], options: str) -> None:
    """Start the processes, ZooKeeper first, and write down their pids."""
    zookeeper = cluster.own_zookeeper
    if ZOOKEEPER in names and zookeeper is not None:
        if not is_free(zookeeper.port):
            raise EnvironmentProblem(f"port {zookeeper.port} of ZooKeeper is in use by another process")
        zookeeper.start()
        cluster.save()
    brokers = [cluster.brokers[int(name)] for name in names if name != ZOOKEEPER]
    if brokers:
        check_zookeeper(cluster, options)
    for broker in brokers:
        _check(broker)
        broker.launch()
        cluster.save()


def check_zookeeper(cluster: LocalCluster, options: str = "") -> None:
    """Raises EnvironmentProblem if the cluster's own ZooKeeper does not run: no broker starts without it."""
    zookeeper = cluster.own_zookeeper
    if zookeeper is None or zookeeper.state is State.RUNNING:
        return
    verb = Action.RESUME if zookeeper.state is State.PAUSED else Action.START
    raise EnvironmentProblem(
        f"ZooKeeper is {zookeeper.state}, and no broker starts without it: "
        f"first `strandline {verb} {ZOOKEEPER}{options}`"
    )


def _check(broker: BrokerProcess) -> None:
    if not broker.config.exists():
        raise EnvironmentProblem(f"{broker.config} is gone: `strandline down`, then `strandline up`")
    for host, port in ((broker.bind or broker.host, broker.port), (broker.host, broker.internal_port)):
        if not is_free(port, host):
            raise EnvironmentProblem(f"port {port} of broker {broker.id} is in use by another process")


def _signal(cluster: LocalCluster, action: Action, names: list[str]) -> None:
    """Send the signals, all at once; for those that end a process, wait until it has ended."""
    sign = {
        Action.STOP: signal.SIGTERM,
        Action.KILL: signal.SIGKILL,
        Action.PAUSE: signal.SIGSTOP,
        Action.RESUME: signal.SIGCONT,
    }[action]
    members: list[BrokerProcess | Zookeeper] = []
    for name in names:
        own = cluster.own_zookeeper
        members.append(own if name == ZOOKEEPER and own is not None else cluster.brokers[int(name)])
    for member in members:
        (member.send_signal if isinstance(member, Zookeeper) else member.signal)(sign)
    for member in members:
        if action is Action.STOP:
            member.stop()
        elif action is Action.KILL:
            member.kill()
