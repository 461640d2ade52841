"""How long each client's producer is without an acknowledgement when a leader dies, step by step.

    python -m bench.gaps [--kills 20] [--clients librdkafka aiokafka …] [--keep DIR]

Three brokers, one topic of one partition with three replicas, min.insync.replicas 2. All clients produce to
it side by side, at their default settings with acks=all, a hundred small records a second each. Again and
again its leader gets SIGKILL, and is started again; the next accident comes when the ISR is whole, and no
client's back-off towards the broker that had died (librdkafka's grows to 10 s) is left.
A client's gap is the longest time between two of its acknowledgements round the accident. The steps come
from the brokers' logs: noticed (a broker is suspected, or the controller is succeeded), decided (the state is
being written to ZooKeeper), led (the new leader has its role).
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from datetime import datetime
from itertools import pairwise
from pathlib import Path

from strandline.client.sync import Admin
from strandline.local.cluster import LocalCluster
from strandline.local.owned import temporary_prefix

from .gap_clients import CLIENTS, PROBES, Client, client

TOPIC = "gaps"
WITHIN_S = 30.0
BACKED_OFF_S = 10.0
SETTLED_S = 1.0  # of acknowledgements before and after an accident
NOTICED = ("broker_suspected", "controller_taken_over")
STEPS = ("noticed", "decided", "led")


def has_settled_since(one: Client, moment: float) -> bool:
    """Whether acknowledgements have come all the time for a while, after this moment."""
    recent = [ack for ack in one.acks[-500:] if ack > moment]
    return len(recent) > 20 and recent[-1] - recent[0] >= SETTLED_S / 2


def gap_s(one: Client, killed_at: float) -> float:
    """The longest time between two acknowledgements, round an accident."""
    near = sorted(ack for ack in one.acks if ack > killed_at - SETTLED_S)
    return max(after - before for before, after in pairwise(near))


def accident(cluster: LocalCluster, clients: list[Client]) -> dict[str, float]:
    """Kill the leader, wait until every client goes on: the gap of each, and the steps between."""
    victim = cluster.leader(TOPIC, 0)
    was_controller = cluster.controller() == victim
    marks = {id: broker.log.stat().st_size for id, broker in cluster.brokers.items()}
    wall_s, killed_at = time.time(), time.monotonic()
    cluster.brokers[victim].kill()
    _until(lambda: all(has_settled_since(each, killed_at + 0.1) for each in clients), "all clients go on")
    found = {"controller": float(was_controller)}
    found.update(_steps({id: mark for id, mark in marks.items() if id != victim}, cluster, wall_s))
    found.update({each.name: gap_s(each, killed_at) for each in clients})
    return found


def heal(cluster: LocalCluster, clients: list[Client]) -> None:
    """Start whoever is dead; wait until the ISR is whole and everybody is served."""
    for broker in cluster.brokers.values():
        if not broker.alive:
            broker.start()
    cluster.wait_ready()
    with Admin(cluster.bootstrap) as admin:
        _until(lambda: len(admin.describe_topics([TOPIC])[0].partitions[0].isr) == 3, "the ISR is whole")
    time.sleep(BACKED_OFF_S)
    now = time.monotonic()
    _until(lambda: all(has_settled_since(each, now) for each in clients), "all clients are served")


def _steps(marks: dict[int, int], cluster: LocalCluster, wall_s: float) -> dict[str, float]:
    steps: dict[str, float] = {}
    for id, mark in marks.items():
        text = cluster.brokers[id].log.read_bytes()[mark:].decode()
        for line in text.splitlines():
            told = json.loads(line) if line.startswith("{") else {}
            step = _step_of(told)
            if step is not None:
                at = datetime.fromisoformat(told["timestamp"]).timestamp() - wall_s
                steps[step] = min(at, steps.get(step, at))
    return {step: steps[step] for step in STEPS if step in steps}


def _step_of(told: dict[str, object]) -> str | None:
    if told.get("event") in NOTICED:
        return "noticed"
    if told.get("event") == "partition_states_changed":
        return "decided"
    if (
        told.get("event") == "role_changed"
        and told["partition"] == f"{TOPIC}-0"
        and told["role"] == "leading"
    ):
        return "led"
    return None


def _until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not condition():
        assert time.monotonic() < deadline, f"not within {WITHIN_S:g} s: {what}"
        time.sleep(0.02)


def run(names: list[str], kills: int, directory: Path) -> list[dict[str, float]]:
    """One cluster, all clients, so many accidents."""
    settings = {"min.insync.replicas": "2", "offsets.topic.replication.factor": "3"}
    with LocalCluster(directory, 3, settings=settings, owned=True) as cluster:
        with Admin(cluster.bootstrap) as admin:
            admin.create_topic(TOPIC, 1, 3)
        clients = [client(name, cluster.bootstrap, TOPIC) for name in names]
        for one in clients:
            one.begin()
        try:
            found = []
            for number in range(kills):
                heal(cluster, clients)
                found.append(accident(cluster, clients))
                print(number + 1, {name: round(value, 3) for name, value in found[-1].items()}, flush=True)
            for one in clients:
                print(f"{one.name}: {len(one.acks)} acknowledged, {len(one.failures)} failed")
            return found
        finally:
            for one in clients:
                one.stop()


def tell(found: list[dict[str, float]]) -> None:
    """Median, range and worst of each column, all accidents, then by whether the controller died too."""
    for title, rows in (
        ("all", found),
        ("leader only", [row for row in found if not row["controller"]]),
        ("leader and controller", [row for row in found if row["controller"]]),
    ):
        print(f"{title}: {len(rows)} accidents")
        for name in dict.fromkeys(name for row in rows for name in row if name != "controller"):
            values = [row[name] for row in rows if name in row]
            low, middle, high = min(values), statistics.median(values), max(values)
            print(f"  {name:14} median {middle:.3f}  [{low:.3f} … {high:.3f}]")


def main() -> None:
    """Run and tell."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--clients", nargs="+", choices=[*CLIENTS, *PROBES], default=[*CLIENTS, *PROBES])
    parser.add_argument("--keep", type=Path, help="directory for data and logs, kept afterwards")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix=temporary_prefix()) as scratch:
        tell(run(given.clients, given.kills, given.keep or Path(scratch)))


if __name__ == "__main__":
    main()
