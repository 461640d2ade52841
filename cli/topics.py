"""`strandline topics`: create, list, describe, grow and delete topics.

Kafka's spelling works too (`kafka_spelling.py`): `topics --create --zookeeper h:2181 --topic t …` asks
the brokers that are registered in that ZooKeeper.
"""

import asyncio
from typing import Annotated

import typer

from ..client.descriptions import NewTopic, TopicDescription
from ..client.sync import Admin
from ..controller.documents import Registration, parse
from ..controller.registry import NoNode, RegistryUnreachable
from ..controller.zookeeper import KazooRegistry
from ..protocol.errors import TopicAlreadyExists, UnknownTopicOrPartition
from .console import (
    DEFAULT_BOOTSTRAP,
    PATIENCE,
    AsJson,
    Bootstrap,
    Failure,
    clear_errors,
    out,
    pair,
    print_json,
    show,
    tell,
)
from .zookeeper import EnvironmentProblem

app = typer.Typer(no_args_is_help=True, help="Create, list, describe, alter and delete topics.")

Zookeeper = Annotated[
    str | None, typer.Option("--zookeeper", help="find the brokers in this ZooKeeper (Kafka's old spelling)")
]
Replication = Annotated[
    int, typer.Option("--replication-factor", help="replicas of each partition; -1: the brokers' default")
]


@app.command()
def create(
    topic: str,
    partitions: Annotated[int, typer.Option(help="how many partitions; -1: the brokers' default")] = -1,
    replication_factor: Replication = -1,
    config: Annotated[
        list[str] | None, typer.Option("--config", help="name=value, as in min.insync.replicas=2")
    ] = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="it may be there already: that is no failure")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    zookeeper: Zookeeper = None,
    as_json: AsJson = False,
) -> None:
    """Create a topic."""
    with clear_errors():
        configs = dict(pair(text, "--config", "min.insync.replicas=2") for text in config or [])
        created = True
        with _admin(bootstrap, zookeeper) as admin:
            try:
                admin.create_topics([NewTopic(topic, partitions, replication_factor, configs)])
            except TopicAlreadyExists:
                if not if_not_exists:
                    raise
                created = False
        sentence = f"Created topic {topic}." if created else f"Topic {topic} is there already."
        tell(sentence, {"topic": topic, "created": created}, as_json)


@app.command("list")
def list_(
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, zookeeper: Zookeeper = None, as_json: AsJson = False
) -> None:
    """List the topics."""
    with clear_errors(), _admin(bootstrap, zookeeper) as admin:
        names = admin.list_topics(internal=True)
        if as_json:
            print_json(names)
        elif names:
            out.print("\n".join(names), markup=False, soft_wrap=True)


@app.command()
def describe(
    topic: Annotated[str | None, typer.Argument(help="all topics, if none")] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    zookeeper: Zookeeper = None,
    as_json: AsJson = False,
) -> None:
    """Show leaders, replicas and in-sync replicas of each partition."""
    with clear_errors(), _admin(bootstrap, zookeeper) as admin:
        found = admin.describe_topics([topic] if topic else None)
        if as_json:
            print_json([row for described in found for row in _rows(described)])
            return
        for described in found:
            show(_rows(described), False, f"{described.name}  id {described.topic_id}")


@app.command()
def alter(
    topic: str,
    partitions: Annotated[int, typer.Option(min=1, help="how many partitions in all")],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    zookeeper: Zookeeper = None,
    as_json: AsJson = False,
) -> None:
    """Add partitions to a topic. Keys that were sent before may then go elsewhere."""
    with clear_errors(), _admin(bootstrap, zookeeper) as admin:
        admin.create_partitions({topic: partitions})
        tell(f"{topic} has {partitions} partitions.", {"topic": topic, "partitions": partitions}, as_json)


@app.command()
def delete(
    topic: str,
    if_exists: Annotated[
        bool, typer.Option("--if-exists", help="it may be gone already: that is no failure")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    zookeeper: Zookeeper = None,
    as_json: AsJson = False,
) -> None:
    """Delete a topic and its records."""
    with clear_errors(), _admin(bootstrap, zookeeper) as admin:
        deleted = True
        try:
            admin.delete_topics([topic])
        except UnknownTopicOrPartition:
            if not if_exists:
                raise
            deleted = False
        sentence = f"Deleted topic {topic}." if deleted else f"There is no topic {topic}."
        tell(sentence, {"topic": topic, "deleted": deleted}, as_json)


def _rows(topic: TopicDescription) -> list[dict[str, object]]:
    return [
        {
            "topic": topic.name,
            "partition": one.partition,
            "leader": one.leader,
            "leader_epoch": one.leader_epoch,
            "replicas": list(one.replicas),
            "isr": list(one.isr),
            "offline": list(one.offline),
        }
        for one in topic.partitions
    ]


def _admin(bootstrap: str, zookeeper: str | None) -> Admin:
    """Who asks the brokers that were named, or those registered in the ZooKeeper named."""
    brokers = bootstrap if zookeeper is None else asyncio.run(_registered(zookeeper))
    return Admin(brokers, **PATIENCE)


async def _registered(address: str) -> str:
    registry = KazooRegistry(address, 6000, connect_timeout_s=5)
    try:
        await registry.start()
    except RegistryUnreachable:
        raise EnvironmentProblem(
            f"no ZooKeeper answers at {address}: is it up, is the address right?"
        ) from None
    try:
        ids = await registry.children("/brokers/ids")
        found = [await registry.get(f"/brokers/ids/{id}") for id in ids]
    except NoNode:
        found = []
    finally:
        await registry.close()
    if not found:
        raise Failure(f"no broker is registered in the ZooKeeper at {address}")
    listed = [parse(Registration, data) for data, _ in found]
    return ",".join(f"{one.host}:{one.port}" for one in listed)
