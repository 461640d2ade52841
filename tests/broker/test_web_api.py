"""The JSON API of the web page, on one broker: cluster, records, groups, creation of topics; the page."""

import json
from pathlib import Path
from typing import Any

import pytest

from strandline.base.types import TopicPartition
from strandline.broker.overview import groups as overview
from strandline.broker.web.answer import Asked
from strandline.broker.web.api_records import as_shown
from strandline.broker.web.api_topics import BadTopic, topic_in
from strandline.broker.web.page import FILES, wants_page
from strandline.client.admin.admin import Admin
from strandline.client.admin.descriptions import NewTopic
from strandline.client.consumer.consumer import Consumer
from strandline.client.producer.producer import Producer
from tests.broker.test_node import address, chroot, config, node, running
from tests.broker.test_web_server import sent

__all__ = ["chroot", "node"]


PADDING = b" " * 500  # so that it is worth compressing


async def asked(
    port: int | None, path: str, method: str = "GET", body: object = None, further: str = ""
) -> Any:
    """Status and document."""
    assert port is not None
    data = b"" if body is None else json.dumps(body).encode()
    lines = f"\nContent-Length: {len(data)}" if method == "POST" else ""
    status, _, answer = await sent(port, f"{method} {path}{lines}{further}", body=data)
    return status, json.loads(answer)


async def test_the_cluster_is_one_document(chroot: str, tmp_path: Path) -> None:
    settings = config(chroot, tmp_path, web={"listener": "127.0.0.1:0"})
    async with running(settings) as one, Admin(address(one)) as admin:
        await admin.create_topics([NewTopic("b", 2, 1), NewTopic("a", 1, 1)])
        async with Producer(address(one)) as producer:
            await producer.send("a", b"x", partition=0)
        status, found = await asked(one.web_port, "/api/cluster")
        assert status == 200
        (broker,) = found["brokers"]
        assert (broker["id"], broker["state"], broker["controller"]) == (1, "alive", True)
        assert (broker["leads"], broker["replicas"], broker["incarnation"]) == (3, 3, 1)
        assert broker["web"] == f"http://127.0.0.1:{one.web_port}/"
        assert found["counts"] == {"topics": 2, "partitions": 3, "offline": 0, "under_replicated": 0}
        rows = found["partitions"]["rows"]
        assert [(row["topic"], row["partition"]) for row in rows] == [("a", 0), ("b", 0), ("b", 1)]
        assert (rows[0]["leader"], rows[0]["isr"], rows[0]["end"], rows[0]["watermark"]) == (1, [1], 1, 1)
        assert rows[0]["state"] == "ok"
        _, found = await asked(one.web_port, "/api/cluster?search=b-&at=1&limit=1")
        assert found["partitions"]["matching"] == 2
        assert [(row["topic"], row["partition"]) for row in found["partitions"]["rows"]] == [("b", 1)]
        status, refusal = await asked(one.web_port, "/api/cluster?limit=0")
        assert (status, refusal["error"]) == (400, "limit: expected a whole number from 1 to 200, not '0'")


async def test_what_has_not_changed_is_not_sent_again(chroot: str, tmp_path: Path) -> None:
    settings = config(chroot, tmp_path, web={"listener": "127.0.0.1:0"})
    async with running(settings) as one, Admin(address(one)) as admin:
        await admin.create_topics([NewTopic("t", 1, 1)])
        assert one.web_port is not None
        for path in ("/api/cluster", "/api/timeline", "/api/decisions", "/page/main.js"):
            _, headers, _ = await sent(one.web_port, f"GET {path}")
            again = f"GET {path}\nIf-None-Match: {headers['etag']}"
            status, _, body = await sent(one.web_port, again)
            assert (status, body) == (304, b""), path
        await admin.create_topics([NewTopic("u", 1, 1)])
        assert (await sent(one.web_port, "GET /api/cluster\nIf-None-Match: " + headers["etag"]))[0] == 200


async def test_records_are_read_from_an_offset_a_time_or_the_end(chroot: str, tmp_path: Path) -> None:
    settings = config(chroot, tmp_path, web={"listener": "127.0.0.1:0"})
    async with running(settings) as one, Admin(address(one)) as admin:
        await admin.create_topics([NewTopic("t", 1, 1)])
        async with Producer(address(one), compression_type="zstd") as producer:
            for number in range(10):
                await producer.send(
                    "t", f"v{number}".encode() + PADDING, key=b"k", headers=[("h", b"\x00\xff")],
                    timestamp_ms=1_000 * number, partition=0,
                )  # fmt: skip
        path = "/api/topics/t/0/records"
        _, found = await asked(one.web_port, f"{path}?limit=3")
        assert [each["offset"] for each in found["records"]] == [7, 8, 9]
        first = found["records"][0]
        assert first["value"] == {"text": "v7" + " " * 500, "bytes": 502} and first["key"] == {
            "text": "k",
            "bytes": 1,
        }
        assert first["headers"] == [["h", {"hex": "00ff", "bytes": 2}]] and first["codec"] == "zstd"
        assert (found["at_end"], found["next"], found["watermark"]) == (True, 10, 10)
        _, found = await asked(one.web_port, f"{path}?offset=2&limit=2")
        assert [each["offset"] for each in found["records"]] == [2, 3] and found["next"] == 4
        assert not found["at_end"]
        _, found = await asked(one.web_port, f"{path}?time=4500&limit=1")
        assert [each["offset"] for each in found["records"]] == [5]
        status, refusal = await asked(one.web_port, f"{path}?offset=99")
        assert status == 502 and refusal["error"].startswith("OFFSET_OUT_OF_RANGE")
        assert (await asked(one.web_port, "/api/topics/none/0/records"))[0] == 404
        status, refusal = await asked(one.web_port, f"{path}?isolation=maybe")
        assert status == 400 and "read_uncommitted" in refusal["error"]


async def test_aborted_transactions_are_left_out_or_marked(chroot: str, tmp_path: Path) -> None:
    settings = config(
        chroot, tmp_path, web={"listener": "127.0.0.1:0"},
        transactions={"log_partitions": 1, "log_replication_factor": 1, "log_min_isr": 1},
    )  # fmt: skip
    async with running(settings) as one, Admin(address(one)) as admin:
        await admin.create_topics([NewTopic("t", 1, 1)])
        async with Producer(address(one), transactional_id="x") as producer:
            await producer.init_transactions()
            for value, keeps in (("no", False), ("yes", True)):
                producer.begin()
                await producer.send("t", value.encode(), partition=0)
                await (producer.commit() if keeps else producer.abort())
            producer.begin()
            await producer.send("t", b"perhaps", partition=0)
            path = "/api/topics/t/0/records?offset=0"
            _, found = await asked(one.web_port, path)
            assert [(each["offset"], each["value"]["text"]) for each in found["records"]] == [(2, "yes")]
            assert found["left_out"] == {"control": 2, "aborted": 1}
            assert (found["stable"], found["watermark"], found["at_end"]) == (4, 5, True)
            _, found = await asked(one.web_port, f"{path}&isolation=read_uncommitted")
            seen = [(each["offset"], each.get("control") or each["transaction"]) for each in found["records"]]
            assert seen == [(0, "aborted"), (1, "abort"), (2, "committed"), (3, "commit"), (4, "open")]
            await producer.abort()


async def test_groups_have_members_and_lag(chroot: str, tmp_path: Path) -> None:
    settings = config(chroot, tmp_path, web={"listener": "127.0.0.1:0"})
    async with running(settings) as one, Admin(address(one)) as admin:
        await admin.create_topics([NewTopic("t", 1, 1)])
        async with Producer(address(one)) as producer:
            for _ in range(5):
                await producer.send("t", b"x", partition=0)
        consumer = Consumer(address(one), topics=["t"], group="g/1", auto_offset_reset="earliest")
        async with consumer:
            await anext(aiter(consumer))
            await anext(aiter(consumer))
            await consumer.commit()
            _, found = await asked(one.web_port, "/api/groups")
            (row,) = found["rows"]
            assert (row["name"], row["state"], row["member_count"]) == ("g/1", "Stable", 1)
            committed = 5 - row["lag"]
            assert committed in (1, 2)
            _, group = await asked(one.web_port, "/api/groups/g%2F1")
            (member,), (offset,) = group["members"], group["offsets"]
            assert member["assignment"] == [["t", 0]] and offset["member"] == member["id"]
            assert (offset["committed"], offset["watermark"], offset["lag"]) == (committed, 5, 5 - committed)
        assert (await asked(one.web_port, "/api/groups/none"))[0] == 404


async def test_the_lag_of_a_group_is_not_told_of_a_part_of_its_offsets(
    chroot: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Offsets in one answer are bounded. The group whose turn comes too late lags by 4, not by 0."""
    monkeypatch.setattr(overview, "OFFSETS_MAX", 3)
    settings = config(chroot, tmp_path, web={"listener": "127.0.0.1:0"})
    async with running(settings) as one, Admin(address(one)) as admin:
        await admin.create_topics([NewTopic("t", 2, 1)])
        async with Producer(address(one)) as producer:
            for number in range(4):
                await producer.send("t", b"x", partition=number % 2)
        for group in ("a", "b"):
            async with Consumer(address(one), group=group, enable_auto_commit=False) as consumer:
                consumer.assign([TopicPartition("t", 0), TopicPartition("t", 1)])
                await consumer.commit({TopicPartition("t", 0): 1, TopicPartition("t", 1): 1})
        _, found = await asked(one.web_port, "/api/groups")
        told = [(row["name"], row["partitions"], row["lag"]) for row in found["rows"]]
        assert told == [("a", 2, 2), ("b", 2, None)]
        assert all("offset_count" not in row for row in found["rows"])
        monkeypatch.setattr(overview, "OFFSETS_MAX", 1)
        _, group = await asked(one.web_port, "/api/groups/a")
        assert (len(group["offsets"]), group["offset_count"], group["lag"]) == (1, 2, None)


async def test_topics_are_created_only_where_that_is_allowed(chroot: str, tmp_path: Path) -> None:
    topic = {"name": "made", "partitions": 2, "replication_factor": 1, "configs": {"retention.ms": "60000"}}
    async with running(config(chroot, tmp_path, web={"listener": "127.0.0.1:0"})) as one:
        status, refusal = await asked(one.web_port, "/api/topics", "POST", topic)
        assert (status, "strandline.web.create.topics=true" in refusal["error"]) == (403, True)
    allowed = {"listener": "127.0.0.1:0", "create_topics": True}
    async with running(config(chroot, tmp_path, web=allowed)) as one, Admin(address(one)) as admin:
        foreign = "\nOrigin: http://evil.example"
        assert (await asked(one.web_port, "/api/topics", "POST", topic, foreign))[0] == 403
        assert (await asked(one.web_port, "/api/topics", "POST", topic))[0] == 201
        assert (await asked(one.web_port, "/api/topics", "POST", topic))[0] == 409
        (made,) = await admin.describe_topics(["made"])
        assert len(made.partitions) == 2
        status, refusal = await asked(one.web_port, "/api/topics", "POST", {**topic, "name": "a/b"})
        assert status == 400 and "a/b" in refusal["error"]


async def test_a_browser_gets_the_page_and_others_the_list(chroot: str, tmp_path: Path) -> None:
    settings = config(chroot, tmp_path, web={"listener": "127.0.0.1:0"})
    async with running(settings) as one:
        assert one.web_port is not None
        _, headers, body = await sent(one.web_port, "GET /\nAccept: text/html,*/*")
        assert headers["content-type"].startswith("text/html") and b"Strandline" in body
        assert "script-src 'self'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert "GET /api/cluster" in (await asked(one.web_port, "/"))[1]["routes"]
        assert (await sent(one.web_port, "GET /page/..%2Froutes.py"))[0] == 404


def test_the_page_is_whole_and_asks_nobody_else() -> None:
    text = {name: each.body.decode() for name, each in FILES.items()}
    for name, source in text.items():
        outside = source.replace("http://www.w3.org/2000/svg", "")
        assert "http://" not in outside and "https://" not in outside, f"{name} names another place"
        assert "innerHTML" not in source and "eval(" not in source, name
        assert 'style="' not in source, f"{name}: the policy forbids styles in attributes"
    assert wants_page(Asked(accept="text/html")) and not wants_page(Asked(accept="*/*"))


@pytest.mark.parametrize(
    "data, shown",
    [
        (None, None),
        (b"", {"text": "", "bytes": 0}),
        ("é\n".encode(), {"text": "é\n", "bytes": 3}),
        (b"\xff\xfe", {"hex": "fffe", "bytes": 2}),
        (b"a\x00", {"hex": "6100", "bytes": 2}),
        (("é" * 5000).encode(), {"text": "é" * 4096, "bytes": 10_000}),
        (b"x" + ("é" * 5000).encode(), {"text": "x" + "é" * 4095, "bytes": 10_001}),
    ],
)
def test_bytes_are_shown_as_text_or_hex(data: bytes | None, shown: object) -> None:
    assert as_shown(data) == shown


@pytest.mark.parametrize(
    "body, why",
    [
        (b"{", "expected JSON"),
        (b"[]", "expected an object"),
        (b'{"name": 5}', "must not be empty"),
        (b'{"name": "a", "partition": 5}', "unknown field 'partition'"),
        (b'{"name": "a", "partitions": 0}', "from 1 to"),
        (b'{"name": "a", "partitions": true}', "from 1 to"),
        (b'{"name": "a", "configs": {"x": 5}}', "expected an object of strings"),
    ],
)
def test_a_topic_that_is_not_understood_is_refused_with_the_reason(body: bytes, why: str) -> None:
    with pytest.raises(BadTopic, match=why):
        topic_in(body)
