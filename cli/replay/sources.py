"""Where recorders are read: from brokers that run, or from the log directories of those that do not.

A broker gives all its rings, in pieces (Inspect, about `recorder`). A log directory has them in a file, which
outlives kill -9 but for the last 20 ms.
Left to others: what is made of them (moments.py, film.py).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...client.sync import Admin
from ...local.roster import log_dirs_in
from ...protocol.errors import ApiError
from ...storage.decision_log import (
    BROKER,
    CONTROLLER,
    FLIGHT_RECORDER,
    DecisionLog,
    controllers_ring,
    read_rings,
)
from ...storage.disk import RealDisk
from ..console import Failure
from ..reach import connect
from ..why.command import PATIENCE, ask_all
from .moments import Rings


@dataclass(frozen=True, slots=True)
class Recorded:
    """The rings of each broker, and why those of others are missing."""

    rings: Mapping[int, Rings]
    silent: Mapping[int, str] = field(default_factory=dict)


def asked_of(bootstrap: str, partition: str | None) -> Recorded:
    """What the recorders of a running cluster hold, of one partition if it is given. Raises Failure."""
    with connect(bootstrap, **PATIENCE) as admin:
        brokers = sorted(broker.node_id for broker in admin.describe_cluster().brokers)
        found, silent = ask_all(admin, brokers, "recorder")
        rings: dict[int, dict[str, Any]] = {}
        for broker, document in found.items():
            try:
                rings[broker] = dict(_all_of(admin, broker, document))
            except (ApiError, OSError) as error:
                silent[broker] = str(error)
    if not rings:
        raise Failure("; ".join(silent.values()) or "the cluster has no brokers")
    return Recorded({broker: _wanted(each, partition) for broker, each in rings.items()}, silent)


def _all_of(admin: Admin, broker: int, document: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The rings of a broker, from its first answer on."""
    while True:
        yield from document["rings"].items()
        if not document["next"]:
            return
        document = admin.inspect(broker, "recorder", name=document["next"])


def found_in(directories: list[Path], partition: str | None) -> Recorded:
    """What log directories hold; that of `strandline up` stands for its brokers'. Raises Failure."""
    rings: dict[int, Rings] = {}
    places = [place for directory in directories for place in log_dirs_in(directory)]
    for number, place in enumerate(places):
        log = read_rings(RealDisk(), str(place))
        if log is not None:
            starts = [each.values["broker"] for each in log.of(BROKER) if each.what == "started"]
            broker = starts[-1] if starts else -1 - number
            if broker in rings:
                raise Failure(f"{place}: broker {broker} has another recorder among these directories")
            rings[broker] = _wanted(_told(log), partition)
    if not rings:
        raise Failure(
            f"no file {FLIGHT_RECORDER} in {', '.join(map(str, places))}: expected the first log directory "
            "of a broker, or the directory of `strandline up`"
        )
    return Recorded(rings)


def _told(log: DecisionLog) -> Rings:
    return {name: [each.as_dict() for each in log.of(name)] for name in log.names()}


def _wanted(rings: Rings, partition: str | None) -> Rings:
    """The rings about brokers, and those about the partition, or about all of them."""
    if partition is None:
        return rings
    names = (BROKER, CONTROLLER, partition, controllers_ring(partition))
    return {name: rings[name] for name in names if name in rings}
