"""`strandline topics`, `groups` and `zookeeper`: in our spelling and in Kafka's, as tables and JSON."""

import json
import subprocess
import sys
import uuid
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import confluent_kafka
import pytest

from strandline.cli import topics as topics_commands
from strandline.cli.console import WrongUsage
from strandline.cli.kafka_spelling import of_a_class, translate, translated
from strandline.cli.why.command import parse_partition, partition_and_broker
from tests.cli.conftest import until


def test_life_of_a_topic(strandline) -> None:
    made = strandline("topics", "create", "life", "--partitions", 2, "--config", "min.insync.replicas=2")
    assert made.out == "Created topic life.\n"
    assert "life" in strandline("topics", "list").lines
    assert "life" in strandline("topics", "list", "--json").json
    strandline("topics", "alter", "life", "--partitions", 3)
    rows = strandline("topics", "describe", "life", "--json").json
    assert [row["partition"] for row in rows] == [0, 1, 2]
    assert all(row["leader"] in row["isr"] and row["replicas"] for row in rows)
    assert all(sorted(row["isr"] + row["osr"]) == sorted(row["replicas"]) for row in rows)
    table = strandline("topics", "describe", "life").out
    assert "leader epoch" in table and table.count("life") == 4
    assert "settings: min.insync.replicas=2" in table
    (id,) = {row["topic_id"] for row in rows}
    assert f"life  id {id}" in table and len(id) == 22, "Kafka's form of a UUID"
    assert rows[0]["settings"] == {"min.insync.replicas": "2"}
    assert strandline("topics", "delete", "life").out == "Deleted topic life.\n"
    assert "life" not in strandline("topics", "list").lines


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("kafka-run-class.sh kafka.tools.DumpLogSegments -files a.log", "dump -files a.log"),
        ("kafka.tools.DumpLogSegments --files a.log", "dump --files a.log"),
        ("org.apache.kafka.tools.DumpLogSegments a", "dump a"),
        ("kafka-run-class kafka.admin.TopicCommand --list", "topics --list"),
        ("kafka-run-class kafka.tools.Unknown", "kafka-run-class kafka.tools.Unknown"),
        ("topics list", "topics list"),
    ],
)
def test_a_class_of_kafkas_names_our_command(typed: str, meant: str) -> None:
    assert of_a_class(typed.split()) == meant.split()


def test_kafkas_spelling_with_zookeeper(strandline) -> None:
    words = "--create --zookeeper {} --replication-factor 2 --partitions 3 --topic secondTopic"
    strandline("topics", *words.format(strandline.zookeeper).split())
    assert "secondTopic" in strandline("topics", "--list", "--zookeeper", strandline.zookeeper).lines
    by_zookeeper = ("--describe", "--topic", "secondTopic", "--zookeeper", strandline.zookeeper)
    rows = strandline("topics", *by_zookeeper, "--json").json
    assert [len(row["replicas"]) for row in rows] == [2, 2, 2]
    by_broker = ("--bootstrap-server", strandline.bootstrap.split(",")[0])
    strandline("topics", "--alter", *by_broker, "--topic=secondTopic", "--partitions", 4)
    assert len(strandline("topics", "--describe", "--topic", "secondTopic", *by_broker, "--json").json) == 4
    strandline("topics", *by_broker, "--delete", "--topic", "secondTopic")
    strandline("topics", *by_broker, "--delete", "--topic", "secondTopic", "--if-exists")


@pytest.mark.parametrize(
    "kafkas, ours",
    [
        ("--create --topic t --partitions 3", "create t --partitions 3"),
        ("--partitions 3 --topic=t --create", "create t --partitions 3"),
        ("--list --zookeeper h:2181", "list --zookeeper h:2181"),
        ("create t --partitions 3", "create t --partitions 3"),
        ("--create --delete --topic t", "--create --delete --topic t"),
    ],
)
def test_kafkas_spelling_is_put_into_ours(kafkas: str, ours: str) -> None:
    assert translate(kafkas.split()) == ours.split()


@pytest.mark.parametrize(
    "words, status, why",
    [
        ("create t --replication-factor 9", 1, "exceeds the 3 available brokers"),
        ("create bad/name", 1, "'bad/name'"),
        ("create t --config nonsense=1", 1, "nonsense"),
        ("create t --config retention.ms=soon", 1, "retention.ms"),
        ("create t --config nothing", 2, "expected name=value"),
        ("create", 2, "Missing argument"),
        ("create t --partitions many", 2, "--partitions"),
        ("describe nope", 1, "nope"),
        ("delete nope", 1, "nope"),
        ("alter nope --partitions 3", 1, "nope"),
        ("--delete", 2, "Missing argument"),
        ("delete-records nope --before end", 1, "nope"),
        ("delete-records t", 2, "--before"),
        ("delete-records t --before now", 2, "expected an offset or `end`"),
        ("delete-records t --before 9223372036854775808", 2, "expected an offset or `end`"),
        ("list --bootstrap-server nowhere", 2, "'nowhere' is not host:port"),
        ("list --zookeeper 127.0.0.1:1", 1, "no ZooKeeper answers at 127.0.0.1:1"),
    ],
)
def test_refusals_of_topics(strandline, words: str, status: int, why: str) -> None:
    assert why in strandline("topics", *words.split(), expect=status).err


def test_several_topics_are_deleted_at_once(strandline) -> None:
    for name in ("one", "two", "three"):
        strandline("topics", "create", name)
    wrong = strandline("topics", "delete", "one", "nope", "two", expect=1)
    assert wrong.out == "Deleted topic one.\nDeleted topic two.\n"
    assert "topic nope was not deleted" in wrong.err
    told = strandline("topics", "delete", "three", "nope", "--if-exists", "--json").json
    assert told == [{"topic": "three", "deleted": True}, {"topic": "nope", "deleted": False}]


def test_internal_topics_are_deleted_on_purpose_only(
    strandline, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    strandline("groups", "reset-offsets", f"of-{topic}", topic, "--to-latest", "--execute")
    strandline("topics", "create", f"with-{topic}")
    said = strandline("topics", "delete", f"with-{topic}", "__consumer_offsets", expect=1)
    assert said.out == f"Deleted topic with-{topic}.\n"
    assert "topic __consumer_offsets was not deleted: it is internal" in said.err
    assert f"of-{topic}" in strandline("groups", "list").out
    deleted: list[str] = []
    double = SimpleNamespace(delete_topics=deleted.extend)
    monkeypatch.setattr(topics_commands, "_admin", lambda *_: nullcontext(double))
    topics_commands.delete(["__consumer_offsets"], internal=True)
    assert deleted == ["__consumer_offsets"]


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("orders-0", ("orders-0", None)),
        ("orders 0", ("orders-0", None)),
        ("orders-0 3", ("orders-0", 3)),
        ("orders 0 3", ("orders-0", 3)),
    ],
)
def test_a_partition_is_one_word_or_two(words: str, meant: tuple[str, int | None]) -> None:
    assert partition_and_broker(words.split()) == meant


@pytest.mark.parametrize("words", ["orders", "orders x", "orders 0 1 2", "orders-0 x"])
def test_what_is_no_partition(words: str) -> None:
    with pytest.raises(WrongUsage):
        parse_partition(partition_and_broker(words.split())[0])


def test_why_takes_topic_and_partition_as_two_words(strandline, topic: str) -> None:
    assert f"leads {topic}-0" in strandline("why", "leader", topic, 0).out
    assert "expected one partition" in strandline("why", "leader", topic, 0, 1, expect=2).err


def test_what_is_there_already(strandline, topic: str) -> None:
    assert "exists" in strandline("topics", "create", topic, expect=1).err
    kept = strandline("topics", "create", topic, "--if-not-exists", "--json").json
    assert kept == {"topic": topic, "created": False}


def test_records_are_deleted_for_good(strandline) -> None:
    strandline("topics", "create", "short", "--partitions", 2)
    strandline("produce", "short", given="".join(f"line {n}\n" for n in range(30)))
    held = [len(strandline("consume", "short", "--from-beginning", "--partition", n).lines) for n in (0, 1)]
    some = next(n for n in (0, 1) if held[n])
    words = ("topics", "delete-records", "short", "--before")
    (row,) = strandline(*words, 1, "--partition", some, "--json").json
    assert row == {"topic": "short", "partition": some, "begins_at": 1}
    table = strandline(*words, "end").lines
    assert [int(line.split()[-1]) for line in table[1:]] == held
    assert strandline("consume", "short", "--from-beginning").lines == []
    assert "has no partition 7" in strandline(*words, 1, "--partition", 7, expect=1).err


def test_life_of_a_group(strandline, topic: str) -> None:
    group = f"group-{uuid.uuid4().hex[:8]}"
    strandline("produce", topic, given="".join(f"{i}\n" for i in range(10)))
    strandline("consume", topic, "--group", group, "-n", 4)
    assert {"group": group, "protocol_type": "consumer", "state": "Empty"} in strandline(
        "groups", "list", "--json"
    ).json
    (row,) = strandline("groups", "describe", group, "--json").json
    assert (row["committed"], row["end"], row["lag"], row["member"]) == (4, 10, 6, None)
    assert f"{group}  Empty" in strandline("groups", "describe", group).out
    assert strandline("consume", topic, "--group", group).lines == [str(i) for i in range(4, 10)]
    for goal, offset in (("earliest", 0), ("7", 7), ("@0", 0), ("latest", 10), ("@9999999999999", 10)):
        reset = ("groups", "reset-offsets", group, topic, "--to", goal, "--json")
        before = strandline("groups", "describe", group, "--json").json[0]["committed"]
        (row,) = (told := strandline(*reset)).json
        assert (row["committed"], row["offset"], row["executed"]) == (before, offset, False)
        assert "Nothing was changed: add --execute" in told.err
        assert strandline("groups", "describe", group, "--json").json[0]["committed"] == before
        (row,) = strandline(*reset, "--execute").json
        assert row["executed"] and row["offset"] == offset
        assert strandline("groups", "describe", group, "--json").json[0]["committed"] == offset
    beyond = strandline("groups", "reset-offsets", group, topic, "--to", "11").out
    assert "adjusted: 11 is outside of 0 to 10" in beyond
    strandline("groups", "reset-offsets", group, topic, "--to", "earliest", "--partition", 1, expect=1)
    strandline("groups", "reset-offsets", group, topic, "--to", "then", expect=2)
    words = ("groups", "remove-member", group)
    assert "s1" in strandline(*words, "--instance-id", "s1", expect=1).err
    assert "nobody" in strandline(*words, "--member-id", "nobody", expect=1).err
    strandline(*words, "--all")
    for wrong in ((), ("--all", "--member-id", "m"), ("--member-id", "m", "--instance-id", "s1")):
        strandline(*words, *wrong, expect=2)
    words = ("groups", "delete-offsets", group, topic)
    assert f"{topic}-1" in strandline(*words, "--partition", 1, expect=1).err
    (row,) = strandline(*words, "--json").json
    assert row == {"topic": topic, "partition": 0, "was": 10}
    assert "has committed nothing" in strandline(*words, expect=1).err
    assert group in strandline("groups", "remove-member", group, "--all", expect=1).err
    strandline("groups", "reset-offsets", group, topic, "--to", "latest", "--execute")
    strandline("groups", "delete", group)
    assert group in strandline("groups", "delete", group, expect=1).err
    assert group in strandline("groups", "describe", group, expect=1).err


def test_offsets_of_several_topics(strandline, topic: str, tmp_path: Path) -> None:
    other, group = f"{topic}-too", f"group-{uuid.uuid4().hex[:8]}"
    strandline("topics", "create", other, "--partitions", 2)
    strandline("produce", topic, given="".join(f"{i}\n" for i in range(10)))
    strandline("produce", other, "--partition", 1, given="a\nb\n")
    reset = ("groups", "reset-offsets", group)

    def new(*words: object) -> list[tuple[str, int, int]]:
        rows = strandline(*reset, *words, "--json").json
        return [(row["topic"], row["partition"], row["offset"]) for row in rows]

    assert new(topic, other, "--to-latest", "--execute") == [(topic, 0, 10), (other, 0, 0), (other, 1, 2)]
    assert new("--all-topics", "--to-earliest") == [(topic, 0, 0), (other, 0, 0), (other, 1, 0)]
    assert new("--topic", f"{other}:1", "--topic", topic, "--shift-by", -1) == [(topic, 0, 9), (other, 1, 1)]
    assert new(topic, "--by-duration", "PT1H") == new(topic, "--to", "-1h") == [(topic, 0, 0)]
    assert new(topic, "--to-datetime", "2099-01-01T00:00:00.000") == [(topic, 0, 10)]
    kafkas = ("--reset-offsets", "--group", group, "--all-topics", "--to-current", "--export", "--dry-run")
    kept = strandline("groups", *kafkas)
    assert kept.lines == [f"{topic},0,10", f"{other},0,0", f"{other},1,2"]
    (tmp_path / "kept").write_text(kept.out.replace(",10", ",4"))
    assert new("--from-file", tmp_path / "kept", "--execute")[0] == (topic, 0, 4)
    (row, *_) = strandline("groups", "--describe", "--group", group, "--json").json
    assert (row["topic"], row["committed"], row["lag"]) == (topic, 4, 6)
    for wrong in (
        (topic,),
        (topic, "--to-latest", "--to-earliest"),
        ("--to-latest",),
        (topic, "--by-duration", "h"),
    ):
        strandline(*reset, *wrong, expect=2)
    strandline(*reset, topic, "--to-latest", "--execute", "--dry-run", expect=2)
    strandline(*reset, topic, "--from-file", tmp_path / "kept", expect=2)
    assert "no/such" in strandline(*reset, "--from-file", "no/such", expect=1).err
    assert "has no partition 7" in strandline(*reset, "--topic", f"{topic}:7", "--to-latest", expect=1).err
    nobody = strandline("groups", "reset-offsets", "nobody", "--all-topics", "--to-latest", expect=1)
    assert "has committed nothing" in nobody.err


def test_an_active_group_is_left_alone(strandline, topic: str) -> None:
    group = f"group-{uuid.uuid4().hex[:8]}"
    strandline("produce", topic, given="one\n")
    line = [sys.executable, "-m", "strandline.cli.main", "consume", topic, "--group", group, "--follow"]
    with subprocess.Popen(
        line, env=strandline.environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as one:
        try:
            assert one.stdout is not None and one.stdout.readline() == b"one\n"
            (member,) = strandline("groups", "members", group, "--json").json
            assert member["partitions"] == [f"{topic}-0"] and member["client"] == "strandline"
            reset = ("groups", "reset-offsets", group, topic, "--to-earliest")
            planned = strandline(*reset)
            assert f"warning: group {group} is active (Stable)" in planned.err and topic in planned.out
            refused = strandline(*reset, "--execute", expect=1).err
            assert (
                "stop them first (strandline at" in refused
                and f"strandline groups members {group}" in refused
            )
        finally:
            one.kill()
    assert group in strandline("groups", "members", f"{group}-nobody", expect=1).err


def test_members_of_the_consumer_protocol(strandline, topic: str) -> None:
    """They were told to be in no group, for only DescribeGroups was asked, which does not know them."""
    group = f"group-{uuid.uuid4().hex[:8]}"
    strandline("produce", topic, given="one\n")
    settings = {
        "bootstrap.servers": strandline.bootstrap,
        "group.id": group,
        "group.protocol": "consumer",
        "auto.offset.reset": "earliest",
        "client.id": "shop",
    }
    consumer = confluent_kafka.Consumer(settings)
    consumer.subscribe([topic])
    try:
        until(lambda: (consumer.poll(0.5) or None) is not None, "a record has come")
        (member,) = strandline("groups", "members", group, "--json").json
        assert member["partitions"] == member["target"] == [f"{topic}-0"]
        assert (member["client"], member["protocol"]) == ("shop", "consumer") and member["epoch"] > 0
        told = strandline("groups", "members", group).out
        assert f"{group}  Stable  uniform  epoch {member['epoch']}, assigned for {member['epoch']}" in told
        (row,) = strandline("groups", "describe", group, "--json").json
        assert (row["end"], row["member"]) == (1, member["member"]) and row["client"].startswith("shop ")
    finally:
        consumer.close()
    until(lambda: strandline("groups", "members", group, "--json").json == [], "it has left")
    assert f"{group}  Empty" in strandline("groups", "members", group).out


@pytest.mark.parametrize(
    "command, kafkas, ours",
    [
        ("groups", "--describe --group g", "describe g"),
        ("groups", "--list", "list"),
        ("groups", "--delete --group=g", "delete g"),
        ("groups", "--delete-offsets --group g --topic t", "delete-offsets g t"),
        (
            "groups",
            "--group g --reset-offsets --topic t:0 --to-earliest",
            "reset-offsets g --topic t:0 --to-earliest",
        ),
        ("groups", "remove-member g --all", "remove-member g --all"),
        ("consume", "--topic t --from-beginning", "t --from-beginning"),
        ("consume", "--topic=t --property print.key=true", "t --show key"),
        ("consume", "t --property print.key=false", "t"),
        ("produce", "--topic t --property parse.key=true", r"t --key-separator \t"),
        ("produce", "t --property parse.key=true --property key.separator=:", "t --key-separator :"),
        ("status", "--topic t", "--topic t"),
    ],
)
def test_kafkas_other_tools(command: str, kafkas: str, ours: str) -> None:
    assert translated(command, kafkas.split()) == ours.split()


def test_a_property_that_we_have_no_option_for_is_refused_by_its_name(strandline) -> None:
    assert "--property what" in strandline("produce", "t", "--property", "what=ever", expect=2).err


def test_a_look_into_zookeeper(strandline, topic: str) -> None:
    at = ("--zookeeper", strandline.zookeeper)
    assert strandline("zookeeper", "ls", "/brokers/ids", *at).lines == ["1", "2", "3"]
    assert "brokers" in strandline("zookeeper", "ls", *at, "--json").json
    path = f"/brokers/topics/{topic}/partitions/0/state"
    seen = strandline("zookeeper", "get", path, *at)
    *laid_out, last = seen.lines
    assert sorted(json.loads("".join(laid_out))["isr"]) == [1, 2, 3]
    assert last.startswith("version ") and last.endswith("(persistent)")
    told = strandline("zookeeper", "get", "/controller", *at, "--json").json
    assert told["data"]["brokerid"] in (1, 2, 3) and told["owner"].startswith("0x")
    assert "does not exist" in strandline("zookeeper", "get", "/nope", *at, expect=1).err
    strandline("zookeeper", "get", "nope", *at, expect=2)
