"""Nobody listens: every command says so at once, with what it tried, why that failed and what to do."""

import json
import os
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from strandline.cli import reach
from strandline.cli.app import GROUPS, ORDER
from strandline.cli.reach import QUESTION, REFUSED, SILENT, own_cluster, told, why_unreachable
from strandline.client.network.cluster import reasons
from strandline.local.cluster import LocalCluster
from strandline.local.ports import free_ports
from strandline.protocol.apis import Api
from strandline.protocol.connection import parse_head
from strandline.protocol.errors import NetworkException
from tests.cli.conftest import Shell
from tests.patience import HANG_S

ASKING = [
    "status",
    "health",
    "elect-leaders --preferred --all",
    "reassign --list",
    "topics create t",
    "topics list",
    "topics describe",
    "topics alter t --partitions 2",
    "topics delete t",
    "topics delete-records t --before end",
    "topics move-replicas t --broker 1 --to /data",
    "produce t",
    "consume t",
    "groups list",
    "groups describe g",
    "groups members g",
    "groups reset-offsets g --topic t --to-earliest",
    "groups remove-member g --all",
    "groups delete-offsets g t",
    "groups delete g",
    "transactions list",
    "configs describe --topic t",
    "why leader t 0",
    "lost",
    "replay",
    "verify",
]
ELSEWHERE = {"up", "down", "start", "stop", "kill", "pause", "resume", "add", "remove"} | {
    *("dump", "zookeeper", "broker", "demo", "simulate", "docs", "completion"),
    *("verify", "doctor"),
}
"""Commands that ask no running broker for their first answer, or look at each address by themselves."""


@pytest.fixture
def refused() -> str:
    """Two addresses where nobody listens."""
    return ",".join(f"127.0.0.1:{port}" for port in free_ports(2))


@pytest.mark.parametrize("words", ASKING)
def test_nobody_listens(alone: Shell, refused: str, words: str) -> None:
    """The words are those of the look before a client is made: a client tries for much longer."""
    said = alone(*words.split(), "-b", refused, expect=1).err
    assert said.count(REFUSED) == 2 and "no broker answers. Tried:" in said
    assert all(f"  {address}  " in said for address in refused.split(","))
    assert "strandline up" in said and "--bootstrap-server" in said


def test_each_command_that_asks_brokers_is_among_these() -> None:
    """A new command is to be added here, or to those that ask none."""
    asked = {words.split()[0] for words in ASKING}
    assert set(ORDER) - asked - ELSEWHERE <= NOT_YET, "does it say at once that nobody listens?"
    assert asked & GROUPS.keys() >= {"topics", "groups", "transactions", "configs", "why"}


NOT_YET: set[str] = set()


def test_one_that_listens_is_enough() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        port = server.getsockname()[1]
        assert why_unreachable([("127.0.0.1", free_ports(1)[0]), ("127.0.0.1", port)]) == {}


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "answers in HTTP"),
        (b"\x15\x03\x03\x00\x02\x02\x46", "answers with TLS"),
        (b"\x00\x00\x01\x00", None),
        (b"", None),
    ],
)
def test_what_is_certainly_no_broker_is_told_apart(answer: bytes, why: str | None) -> None:
    """It is known from its first answer: a client would try again and again until its time is up."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server, ThreadPoolExecutor(1) as pool:

        def answered() -> bytes:
            with closing(server.accept()[0]) as connection:
                asked = connection.recv(100)
                connection.sendall(answer)
            return asked

        asked = pool.submit(answered)
        port = server.getsockname()[1]
        found = why_unreachable([("127.0.0.1", port)], question=QUESTION)
        assert asked.result(HANG_S) == QUESTION
    assert [each.startswith(str(why)) for each in found.values()] == ([] if why is None else [True])


def test_the_question_is_one_that_brokers_answer() -> None:
    head = parse_head(memoryview(QUESTION[4:]))
    assert (head.api_key, head.version) == (Api.API_VERSIONS, 0)
    assert int.from_bytes(QUESTION[:4], "big") == len(QUESTION) - 4


def test_a_web_page_is_no_broker_and_an_empty_list_names_none(strandline: Shell) -> None:
    page = strandline("status", "--json").json["brokers"][0]["web"].removeprefix("http://").rstrip("/")
    said = strandline("topics", "list", "-b", page, expect=1).err
    assert f"  {page}  answers in HTTP" in said and "malformed" not in said
    assert "names no broker" in strandline("topics", "list", "-b", "", expect=2).err


@pytest.fixture
def full() -> Iterator[int]:
    """A port whose queue of connections is full: the kernel drops whatever else comes, as a firewall does."""
    with closing(socket.socket()) as server:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        address = server.getsockname()
        waiting = [socket.socket() for _ in range(4)]
        for each in waiting:
            each.setblocking(False)
            each.connect_ex(address)
        yield address[1]
        for each in waiting:
            each.close()


def test_silence_and_unknown_names_are_told_apart(full: int) -> None:
    port = free_ports(1)[0]
    found = why_unreachable([("127.0.0.1", full), ("127.0.0.1", port), ("no.such.host.invalid", 1)], wait_s=1)
    assert found[f"127.0.0.1:{full}"] == SILENT
    assert found[f"127.0.0.1:{port}"] == REFUSED
    assert "cannot be looked up" in found["no.such.host.invalid:1"]


def test_the_cluster_of_up_is_named_with_what_brings_it_back(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path, 2, first_port=None)
    said = told({"localhost:9092": REFUSED}, cluster)
    assert f"Of the cluster in {tmp_path}, ZooKeeper is stopped, broker 1 is stopped" in said
    assert said.endswith(f"strandline start zookeeper 1 2 --dir {tmp_path}")


def test_who_listens_and_does_not_answer_is_told_before_time_is_up(
    full: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(reach, "SILENCE_S", 0.05)
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        silent = f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(NetworkException) as raised:
            reach.connect(silent, default_api_timeout_ms=1_500, request_timeout_ms=1_000)
    assert f"something listens at {silent} and has not answered yet" in capsys.readouterr().err
    assert f"no broker answered: {silent}: no answer within 1 s" in str(raised.value)


def test_a_file_that_is_no_clusters_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert own_cluster() is None
    (tmp_path / ".strandline").mkdir()
    for text in ("{}", "[]", "{", json.dumps({"zookeeper": {}, "brokers": []})):
        (tmp_path / ".strandline" / "cluster.json").write_text(text)
        assert own_cluster() is None, text


def test_commands_find_the_cluster_of_up_by_themselves(
    strandline: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its ports and its ZooKeeper may be any."""
    os.symlink(strandline.directory / "cluster", tmp_path / ".strandline")
    lost = Shell(tmp_path, strandline.commands)
    assert len(lost("status", "--json").json["brokers"]) == 3
    assert lost("zookeeper", "ls", "/brokers/ids").lines == ["1", "2", "3"]
    at = ("--dir", strandline.directory / "cluster")
    assert lost("zookeeper", "ls", "/brokers/ids", *at).lines == ["1", "2", "3"]
    lost("zookeeper", "ls", *at, "--zookeeper", strandline.zookeeper, expect=2)
    nobody = f"127.0.0.1:{free_ports(1)[0]}"
    assert REFUSED in lost("zookeeper", "ls", "--zookeeper", nobody, expect=1).err
    assert REFUSED in lost("topics", "--list", "--zookeeper", nobody, expect=1).err


def test_a_client_that_gives_up_names_each_address() -> None:
    troubles = {
        ("a", 1): ConnectionRefusedError(111, "x"),
        ("b", 2): TimeoutError(),
        ("c", 3): OSError("odd"),
    }
    assert reasons(troubles) == "a:1: connection refused; b:2: no answer within 1 s; c:3: odd"
    assert reasons({}) == "all timed out"
    assert reasons({("h", n): OSError(str(n)) for n in range(9)}).count(";") == 4, "the latest five"
