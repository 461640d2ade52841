"""How long a producer waits for its first acknowledgement, step by step, when everything has just begun.

    python -m bench.first_ack [--runs 5] [--brokers 3 1] [--topic there wanted made] [--clients librdkafka …]

Topics have a replica on each broker, and acknowledgements are acks=all.
`there`: the topic is from an earlier life of the brokers, which SIGTERM has ended. They are started all at
once, and at the same moment the producer is made (its process is loaded already). `wanted`: the same with
brokers that are new, and a topic that is made because it is asked for. The clock starts with the processes;
steps are told by the brokers' logs: all are registered, all are open, a controller is elected, all roles are
taken.
`made`: brokers run, an admin client makes the topic, and the producer is made when that is answered, which
starts the clock.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from strandline.client.sync import Admin
from strandline.local.cluster import LocalCluster
from strandline.local.owned import temporary_prefix

from .gap_clients import CLIENTS, Client

TOPIC = "first"
TOPICS = ("there", "wanted", "made")
WITHIN_S = 30.0
STEPS: dict[str, tuple[str, Callable[..., float]]] = {
    "registered": ("broker_registered", max),
    "open": ("broker_started", max),
    "elected": ("controller_elected", min),
    "roles": ("role_changed", max),
}


def run(topic: str, client: Client, cluster: LocalCluster) -> dict[str, float]:
    """One beginning."""
    replicas = len(cluster.brokers)
    assert cluster.own_zookeeper is not None
    if topic in ("there", "made"):
        cluster.start()
        with Admin(cluster.bootstrap) as admin:
            admin.create_topic(TOPIC, 1, replicas)
        if topic == "made":
            return _first(client, {}, time.time())
        for broker in cluster.brokers.values():
            broker.stop()
    else:
        cluster.own_zookeeper.start()
    marks = {
        id: broker.log.stat().st_size if broker.log.exists() else 0 for id, broker in cluster.brokers.items()
    }
    began_s = time.time()
    for broker in cluster.brokers.values():
        broker.start()
    return _first(client, {cluster.brokers[id].log: mark for id, mark in marks.items()}, began_s)


def _first(client: Client, logs: dict[Path, int], began_s: float) -> dict[str, float]:
    began = time.monotonic() - (time.time() - began_s)
    client.begin()
    deadline = began + WITHIN_S
    while not client.acks:
        assert time.monotonic() < deadline, f"no acknowledgement in {WITHIN_S:g} s; {client.failures[:1]}"
        time.sleep(0.002)
    return {**_steps(logs, began_s), client.name: client.acks[0] - began}


def _steps(logs: dict[Path, int], began_s: float) -> dict[str, float]:
    found: dict[str, list[float]] = {}
    for log, mark in logs.items():
        for line in log.read_bytes()[mark:].decode().splitlines():
            told = json.loads(line) if line.startswith("{") else {}
            at = datetime.fromisoformat(told["timestamp"]).timestamp() - began_s if told else 0.0
            found.setdefault(str(told.get("event")), []).append(at)
    return {step: choose(found[event]) for step, (event, choose) in STEPS.items() if event in found}


def main() -> None:
    """Run and tell."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--brokers", type=int, nargs="+", default=[3, 1])
    parser.add_argument("--topic", nargs="+", choices=TOPICS, default=list(TOPICS))
    parser.add_argument("--clients", nargs="+", choices=sorted(CLIENTS), default=list(CLIENTS))
    given = parser.parse_args()
    for brokers in given.brokers:
        for topic in given.topic:
            for name in given.clients:
                tell(
                    f"{brokers} brokers, topic {topic}",
                    [one(topic, name, brokers) for _ in range(given.runs)],
                )


def one(topic: str, name: str, brokers: int) -> dict[str, float]:
    """One beginning of a cluster of its own."""
    settings = {
        "default.replication.factor": str(brokers),
        "offsets.topic.replication.factor": str(brokers),
        "min.insync.replicas": str(min(brokers, 2)),
    }
    with tempfile.TemporaryDirectory(prefix=temporary_prefix()) as scratch:
        cluster = LocalCluster(Path(scratch), brokers, settings=settings, owned=True)
        client = Client(name, cluster.bootstrap, TOPIC)
        try:
            return run(topic, client, cluster)
        finally:
            client.stop()
            cluster.kill()


def tell(title: str, rows: list[dict[str, float]]) -> None:
    """Median and range of each step."""
    parts = []
    for step in dict.fromkeys(step for row in rows for step in row):
        values = [row[step] for row in rows if step in row]
        parts.append(f"{step} {statistics.median(values):.2f} [{min(values):.2f} … {max(values):.2f}]")
    print(f"{title}: {'  '.join(parts)}", flush=True)


if __name__ == "__main__":
    main()
