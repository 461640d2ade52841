"""What no page asks: bytes that are no text, numbers without bound, names of nothing, too much at once. Each
is answered with what is wrong, and none is a failure of the broker's.
"""

import asyncio
import json
import threading
from pathlib import Path
from typing import Any, cast

import pytest

from strandline.broker.web import api, api_records
from strandline.broker.web.api_records import encoded
from strandline.broker.web.view import View
from strandline.client.admin.admin import Admin
from strandline.client.admin.descriptions import NewTopic
from strandline.client.producer.producer import Producer
from tests.broker.test_node import address, chroot, config, running
from tests.broker.test_web_api import asked
from tests.broker.test_web_server import ended
from tests.patience import HANG_S

__all__ = ["chroot"]

NINES = b"9" * 6_000
RAW = [
    # what stands in the request line, the status
    (b"/api/groups/\xff", 400),
    (b"/api/groups?search=\xff", 400),
    (b"/api/groups?search=%FF", 200),
    (b"/api/groups/%FF", 404),
    (b"/api/groups/%00%0a%22", 404),
    (b"/api/cluster?search=\xc3\x28", 400),
    (b"/api/cluster?search=%ff%fe", 200),
    (b"/api/cluster?at=" + NINES, 400),
    (b"/api/cluster?limit=%C2%B2", 400),
    (b"/api/cluster?limit=1&limit=2", 200),
    (b"/api/timeline?at=-1", 400),
    (b"/api/decisions?limit=1e3", 400),
    (b"/api/topics/t/%C2%B2/records", 400),
    (b"/api/topics/t/0/records?offset=" + NINES, 400),
    (b"/api/topics/t/0/records?time=9223372036854775807", 200),
    (b"/api/topics/\xfft/0/records", 400),
    (b"/why/leader/\xff-0", 400),
    (b"/why/leader/%FF-0?format=text", 400),
    (b"/why/leader/none-0?format=text", 404),
    (b"/why/not-visible/t-0@" + NINES, 400),
    (b"/why/not-visible/t-0@9999999999999999999", 200),
    (b"/why/left-isr/t-0?broker=" + NINES, 400),
    (b"/why/leader/t-" + NINES, 400),
    (b"/why/leader/t-%D9%A3", 400),
    (b"/page/..%2Fserver.py", 404),
    (b"/metrics?%ff=%ff", 200),
    (b"/%ff/%fe", 404),
    (b"/ready?in_sync=%FF", 200),
]


async def status_of(port: int, target: bytes) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n" % target)
    try:
        answer = await asyncio.wait_for(reader.read(), HANG_S)
    finally:
        await ended(writer)
    return int(answer.split(b" ")[1])


async def test_every_odd_request_has_its_answer(chroot: str, tmp_path: Path) -> None:
    settings = config(chroot, tmp_path, web={"listener": "127.0.0.1:0"})
    async with running(settings) as one, Admin(address(one)) as admin:
        await admin.create_topics([NewTopic("t", 1, 1)])
        assert one.web_port is not None
        found = {target[:60]: await status_of(one.web_port, target) for target, _ in RAW}
        assert found == {target[:60]: status for target, status in RAW}


BODIES = [
    (b"[" * 60_000, "expected JSON"),
    (b'{"name":"a","configs":' + b'{"a":' * 10_000, "expected JSON"),
    (b'{"name":"a","partitions":%s}' % NINES, "expected JSON"),
    (b'{"name":"a","partitions":1e400}', "partitions: expected a number from 1 to"),
    (b'{"name":"a","partitions":NaN}', "partitions: expected a number from 1 to"),
    (b'{"name":"a","configs":{"retention.ms":"\\ud800"}}', "configs: expected an object of strings"),
    (b'{"name":"a","configs":{"\\udfff":"1"}}', "configs: expected an object of strings"),
    (b'{"name":"\\ud800"}', "name"),
    (b"\xff\xfe", "expected JSON"),
    (b'{"\\ud800":1}', "unknown field"),
]


async def test_every_odd_topic_is_refused_with_the_reason(chroot: str, tmp_path: Path) -> None:
    settings = config(chroot, tmp_path, web={"listener": "127.0.0.1:0", "create_topics": True})
    async with running(settings) as one:
        for body, why in BODIES:
            assert one.web_port is not None
            reader, writer = await asyncio.open_connection("127.0.0.1", one.web_port)
            head = f"POST /api/topics HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
            writer.write(f"{head}Connection: close\r\n\r\n".encode() + body)
            answer = await asyncio.wait_for(reader.read(), HANG_S)
            await ended(writer)
            assert answer.startswith(b"HTTP/1.1 400 "), (body[:60], answer)
            assert why.encode() in answer, (body[:60], answer)


async def test_few_reads_of_records_are_answered_at_once(
    chroot: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each may take a thread, and many MiB of memory."""
    begun, go = 0, asyncio.Event()

    async def read_records(*_: Any) -> bytes:
        nonlocal begun
        begun += 1
        await go.wait()
        return b"{}"

    monkeypatch.setattr(api, "read_records", read_records)
    settings = config(chroot, tmp_path, web={"listener": "127.0.0.1:0"})
    async with running(settings) as one, Admin(address(one)) as admin:
        await admin.create_topics([NewTopic("t", 1, 1)])
        path = "/api/topics/t/0/records"
        reads = [asyncio.ensure_future(asked(one.web_port, path)) for _ in range(api.READS_MAX + 3)]
        async with asyncio.timeout(HANG_S):
            while sum(each.done() for each in reads) < 3:
                await asyncio.sleep(0.01)
        assert begun == api.READS_MAX
        go.set()
        answers = [status for status, _ in await asyncio.gather(*reads)]
        assert sorted(answers) == [200] * api.READS_MAX + [503] * 3
        assert (await asked(one.web_port, path))[0] == 200, "and then there is room again"
        assert cast(View, one._web.view).reads == 0


async def test_names_of_headers_are_bounded_and_large_answers_are_written_in_a_thread(
    chroot: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a batch that is small while it is compressed would become an answer of hundreds of MiB."""
    threads = []

    def written(document: Any) -> bytes:
        threads.append(threading.current_thread())
        return encoded(document)

    monkeypatch.setattr(api_records, "encoded", written)
    settings = config(chroot, tmp_path, web={"listener": "127.0.0.1:0"})
    async with running(settings) as one, Admin(address(one)) as admin:
        await admin.create_topics([NewTopic("t", 1, 1)])
        async with Producer(address(one), compression_type="zstd") as producer:
            headers = [("\x00" * 300, b"h")] * 60
            await asyncio.gather(
                *(producer.send("t", b"v", headers=headers, partition=0) for _ in range(200))
            )
        status, found = await asked(one.web_port, "/api/topics/t/0/records?offset=0&limit=500")
        assert status == 200 and 0 < len(found["records"]) < 200 and not found["at_end"]
        first = found["records"][0]
        assert first["headers"][0] == ["\x00" * 256, {"text": "h", "bytes": 1}]
        assert (len(first["headers"]), first["more_headers"]) == (50, 10)
        assert threads == [each for each in threads if each is not threading.main_thread()] != []


def test_an_answer_that_is_written_record_by_record_is_json() -> None:
    for records in ([], [{"a": "é\n"}], [{"a": 1}, {"b": [None]}]):
        document = {"topic": "t", "records": records, "next": 3}
        assert json.loads(encoded(document)) == document
