"""`strandline topics`: create, list, describe, grow and delete topics, or delete their oldest records.

Left to others: replicas that move between log directories (replica_moves.py).

Kafka's spelling works too (`kafka_spelling.py`): `topics --create --zookeeper h:2181 --topic t …` asks the
brokers that are registered in that ZooKeeper.
"""

import asyncio
from typing import Annotated

import typer

from ..base.types import TopicPartition
from ..client.admin.configs import ConfigSource
from ..client.admin.descriptions import NewTopic, TopicDescription
from ..client.admin.reassignments import PartitionReassignment
from ..client.admin.record_deletion import ALL_COMMITTED
from ..client.sync import Admin
from ..local.embedded_zookeeper import EnvironmentProblem
from ..protocol.errors import ApiError, TopicAlreadyExists, UnknownTopicOrPartition
from ..storage.log.checkpoints import kafka_uuid
from ..zookeeper.client import NoNode, ZkUnreachable
from ..zookeeper.documents import RegistrationDocument, parse
from ..zookeeper.kazoo_client import KazooZkClient
from .completion import topic_names
from .configs import changes_from
from .console import (
    DEFAULT_BOOTSTRAP,
    AsJson,
    Bootstrap,
    Failure,
    WrongUsage,
    clear_errors,
    counted,
    out,
    pair,
    print_json,
    show,
    tell,
)
from .reach import connect, zookeeper_reached
from .reassign.ongoing import Moves, moving
from .replica_moves import move_replicas

OFFSET_DIGITS, OFFSET_MAX = 19, (1 << 63) - 1

app = typer.Typer(no_args_is_help=True, help="Create, list, describe, alter and delete topics.")

Zookeeper = Annotated[
    str | None,
    typer.Option(
        "--zookeeper", help="ZooKeeper to find the brokers in (Kafka's old option; prefer --bootstrap-server)"
    ),
]
Topic = Annotated[str, typer.Argument(autocompletion=topic_names)]
Replication = Annotated[
    int, typer.Option("--replication-factor", help="replicas per partition; -1: the brokers' default")
]


@app.command()
def create(
    topic: str,
    partitions: Annotated[int, typer.Option(help="number of partitions; -1: the brokers' default")] = -1,
    replication_factor: Replication = -1,
    config: Annotated[
        list[str] | None,
        typer.Option("--config", help="name=value, e.g. min.insync.replicas=2; may be repeated"),
    ] = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="succeed if the topic exists already")
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
        sentence = f"Created topic {topic}." if created else f"Topic {topic} exists already."
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
    topic: Annotated[
        str | None,
        typer.Argument(help="topic to describe (default: all)", autocompletion=topic_names),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    zookeeper: Zookeeper = None,
    as_json: AsJson = False,
) -> None:
    """Show a topic's id and settings, and each partition's leader, replicas, isr and the others (osr)."""
    with clear_errors(), _admin(bootstrap, zookeeper) as admin:
        found = admin.describe_topics([topic] if topic else None)
        moves = moving(admin)
        if as_json:
            rows = [
                {**row, "topic_id": kafka_uuid(described.topic_id), "settings": settings}
                for described in found
                for settings in (_settings(admin, described.name),)
                for row in _rows(described, moves)
            ]
            print_json(rows)
            return
        for described in found:
            show(_rows(described, moves), False, f"{described.name}  id {kafka_uuid(described.topic_id)}")
            own = ", ".join(f"{name}={value}" for name, value in _settings(admin, described.name).items())
            out.print(f"settings: {own or '(none of its own)'}", markup=False, soft_wrap=True)


@app.command()
def alter(
    topic: Topic,
    partitions: Annotated[
        int | None, typer.Option(min=1, help="new number of partitions; can only grow")
    ] = None,
    config: Annotated[
        list[str] | None,
        typer.Option("--config", help="name=value, e.g. retention.ms=3600000; may be repeated"),
    ] = None,
    delete_config: Annotated[
        list[str] | None,
        typer.Option("--delete-config", help="name of a setting to reset to its default; may be repeated"),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    zookeeper: Zookeeper = None,
    as_json: AsJson = False,
) -> None:
    """Change settings of a topic, or add partitions (existing keys may then map to another partition)."""
    with clear_errors():
        changes = changes_from(config, delete_config, "--config", "--delete-config")
        if not changes and partitions is None:
            raise WrongUsage("nothing to change: give --partitions, --config or --delete-config")
        done: list[str] = []
        with _admin(bootstrap, zookeeper) as admin:
            if changes:
                admin.incremental_alter_configs(changes, topic=topic)
                done.append(f"{topic}: {counted(len(changes), 'setting')} changed.")
            if partitions is not None:
                admin.create_partitions({topic: partitions})
                done.append(f"{topic} now has {partitions} partitions.")
        value: dict[str, object] = (
            {"topic": topic, "partitions": partitions} if partitions else {"topic": topic}
        )
        if changes:
            value["set"] = {one.name: one.value for one in changes if one.value is not None}
            value["deleted"] = [one.name for one in changes if one.value is None]
        tell("\n".join(done), value, as_json)


@app.command()
def delete(
    topics: Annotated[
        list[str], typer.Argument(metavar="TOPIC…", help="one or several topics", autocompletion=topic_names)
    ],
    if_exists: Annotated[
        bool, typer.Option("--if-exists", help="succeed if the topic does not exist")
    ] = False,
    internal: Annotated[
        bool,
        typer.Option("--internal", help="internal topics, too: what groups have committed goes with theirs"),
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    zookeeper: Zookeeper = None,
    as_json: AsJson = False,
) -> None:
    """Delete topics and their records. If one cannot be deleted, the others are all the same."""
    with clear_errors(), _admin(bootstrap, zookeeper) as admin:
        refused: dict[str, str] = {}
        rows: list[dict[str, object]] = []
        kept = set() if internal else internal_topics(admin, topics)
        for topic in dict.fromkeys(topics):
            if topic in kept:
                refused[topic] = "it is internal, and groups or transactions lose all: --internal means it"
                rows.append({"topic": topic, "deleted": False})
                continue
            try:
                admin.delete_topics([topic])
            except UnknownTopicOrPartition as error:
                if not if_exists:
                    refused[topic] = str(error)
                rows.append({"topic": topic, "deleted": False})
            except ApiError as error:
                refused[topic] = str(error)
                rows.append({"topic": topic, "deleted": False})
            else:
                rows.append({"topic": topic, "deleted": True})
        sentences = [
            f"Deleted topic {row['topic']}." if row["deleted"] else f"Topic {row['topic']} does not exist."
            for row in rows
            if row["topic"] not in refused
        ]
        if sentences or as_json:
            tell("\n".join(sentences), rows[0] if len(topics) == 1 and not refused else rows, as_json)
        if refused:
            raise Failure("; ".join(f"topic {name} was not deleted: {why}" for name, why in refused.items()))


def internal_topics(admin: Admin, topics: list[str]) -> set[str]:
    """Those of the topics in which coordinators keep their state."""
    if not any(topic.startswith("__") for topic in topics):
        return set()
    return set(topics) & (set(admin.list_topics(internal=True)) - set(admin.list_topics()))


@app.command("delete-records")
def delete_records(
    topic: Topic,
    before: Annotated[
        str, typer.Option(help="delete records below this offset; `end` deletes all that are committed now")
    ],
    partition: Annotated[
        list[int] | None, typer.Option(min=0, help="only this partition; may be repeated")
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    zookeeper: Zookeeper = None,
    as_json: AsJson = False,
) -> None:
    """Delete the oldest records of a topic on all replicas, permanently."""
    with clear_errors():
        offset = _offset(before)
        with _admin(bootstrap, zookeeper) as admin:
            (described,) = admin.describe_topics([topic])
            there = [one.partition for one in described.partitions]
            chosen = partition or there
            if missing := sorted(set(chosen) - set(there)):
                raise Failure(f"{topic} has no partition {', '.join(map(str, missing))}")
            low = admin.delete_records({TopicPartition(topic, one): offset for one in chosen})
        rows = [
            {"topic": one.topic, "partition": one.partition, "begins_at": begins_at}
            for one, begins_at in sorted(low.items())
        ]
        show(rows, as_json)


app.command("move-replicas")(move_replicas)


def _settings(admin: Admin, topic: str) -> dict[str, str | None]:
    """The settings that the topic has of its own."""
    entries = admin.describe_configs(topic=topic)
    own = [one for one in entries if one.source is ConfigSource.DYNAMIC_TOPIC_CONFIG]
    return {one.name: one.value for one in sorted(own)}


def _offset(text: str) -> int:
    if text == "end":
        return ALL_COMMITTED
    if text.isascii() and text.isdigit() and len(text) <= OFFSET_DIGITS and int(text) <= OFFSET_MAX:
        return int(text)
    raise WrongUsage(f"--before {text}: expected an offset or `end`")


def _rows(topic: TopicDescription, moves: Moves) -> list[dict[str, object]]:
    """One row per partition; adding and removing replicas are shown if any partition of the topic moves."""
    is_moving = any(q.topic == topic.name for q in moves)
    return [
        {
            "topic": topic.name,
            "partition": one.partition,
            "leader": one.leader,
            "leader_epoch": one.leader_epoch,
            "replicas": list(one.replicas),
            "isr": list(one.isr),
            "osr": list(one.osr),
            "offline": list(one.offline),
            **(_gains(moves.get(TopicPartition(topic.name, one.partition))) if is_moving else {}),
        }
        for one in topic.partitions
    ]


def _gains(one: PartitionReassignment | None) -> dict[str, object]:
    return {"adding": list(one.adding) if one else [], "removing": list(one.removing) if one else []}


def _admin(bootstrap: str, zookeeper: str | None) -> Admin:
    """An Admin client of the given brokers, or of those registered in the given ZooKeeper."""
    brokers = bootstrap if zookeeper is None else asyncio.run(_registered(zookeeper))
    return connect(brokers)


async def _registered(address: str) -> str:
    zookeeper_reached(address)
    zk = KazooZkClient(address, 6000, connect_timeout_s=5)
    try:
        await zk.start()
    except ZkUnreachable:
        raise EnvironmentProblem(
            f"no ZooKeeper answers at {address}, though something listens there: is the address right?"
        ) from None
    try:
        ids = await zk.children("/brokers/ids")
        found = [await zk.get(f"/brokers/ids/{id}") for id in ids]
    except NoNode:
        found = []
    finally:
        await zk.close()
    if not found:
        raise Failure(f"no broker is registered in the ZooKeeper at {address}")
    listed = [parse(RegistrationDocument, data) for data, _ in found]
    return ",".join(f"{one.host}:{one.port}" for one in listed)
