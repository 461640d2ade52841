"""`strandline produce` and `consume`: lines in, lines out: in three formats, by offset, for ever."""

import json
import select
import signal
import subprocess
import sys
from pathlib import Path

import msgpack
import pytest

from strandline.cli import app
from strandline.cli.main import main
from strandline.client.sync import Consumer
from tests.patience import HANG_S


def test_lines_in_lines_out(strandline, topic: str) -> None:
    sent = strandline("produce", topic, given="one\ntwo\r\n\nfour")
    assert sent.err == "4 records acknowledged\n" and sent.out == ""
    read = strandline("consume", topic, "--from-beginning")
    assert read.lines == ["one", "two", "", "four"] and read.err == "4 records\n"
    assert strandline("consume", topic, "--partition", 0, "--offset", 2).lines == ["", "four"]
    assert strandline("consume", topic, "-n", 1).err == "1 record\n"


def test_of_lines_that_are_not_all_stored_it_is_told_how_many_are(strandline, topic: str) -> None:
    """Else whoever sends the rest again does not know where to begin."""
    large = "x" * (1 << 21)
    failed = strandline("produce", topic, given=f"one\ntwo\n{large}\nfour\n", expect=1).err
    assert failed.startswith("2 records acknowledged\nstrandline: MESSAGE_TOO_LARGE")
    assert strandline("consume", topic).lines == ["one", "two"]
    never = strandline("produce", topic, "--partition", 7, "--timeout", 1, given="one\n", expect=1).err
    assert never.startswith("0 records acknowledged\nstrandline: INVALID_PARTITIONS")


def test_an_end_by_control_c_while_it_loads_has_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted() -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(app, "run", interrupted)
    monkeypatch.setattr(sys, "argv", ["strandline", "status"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 130


def test_files_keys_and_json(strandline, topic: str, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text(f"{name}1=x\nno key\n")
    words = ("produce", topic, tmp_path / "a", tmp_path / "b", "--key-separator", "=", "--json")
    assert strandline(*words).json == {"topic": topic, "acknowledged": 4}
    strandline("produce", topic, "--key", "fixed", "--acks", 1, given="y\n")
    rows = [json.loads(line) for line in strandline("consume", topic, "--json").lines]
    assert [(row["key"], row["value"]) for row in rows] == [
        ("a1", "x"),
        (None, "no key"),
        ("b1", "x"),
        (None, "no key"),
        ("fixed", "y"),
    ]
    assert [row["offset"] for row in rows] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("form", ["json", "msgpack"])
def test_formats(strandline, topic: str, form: str) -> None:
    strandline("produce", topic, "--format", form, given='{"id": 7}\n[1, null]\n"text"\n')
    read = strandline("consume", topic, "--format", form)
    assert [json.loads(line) for line in read.lines] == [{"id": 7}, [1, None], "text"]
    rows = strandline("consume", topic, "--format", form, "--json").lines
    assert json.loads(rows[0])["value"] == {"id": 7}
    wrong = strandline("produce", topic, "--format", form, given="{}\nno\n", expect=2)
    assert "line 2 is not JSON" in wrong.err


def test_bytes_that_are_no_text(strandline, topic: str) -> None:
    packed = msgpack.packb({"id": 200})
    strandline("produce", topic, given=packed + b"\n")
    assert strandline("consume", topic).out.startswith("base64:")
    assert "offset 0 is not json" in strandline("consume", topic, "--format", "json", expect=1).err


def test_bytes_pass_unchanged(strandline, topic: str, tmp_path: Path) -> None:
    every = bytes(range(256)) * 5 + b"\r\n\n"
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(name.encode() + every)
    assert (
        strandline("produce", topic, "--whole", tmp_path / "a", tmp_path / "b", "--json").json["acknowledged"]
        == 2
    )
    strandline("produce", topic, "--delimiter", r"\0", "--format", "bytes", given=b"x\r\n\0y\xff")
    plain = ("consume", topic, "--format", "bytes", "--delimiter", "")
    assert strandline.raw(*plain) == b"a" + every + b"b" + every + b"x\r\ny\xff"
    assert strandline.raw(*plain, "--offset", "-1") == b"y\xff"
    assert strandline.raw("consume", topic, "--template", "%S|%s", "--offset", 1, "-p", 0, "-n", 1) == (
        b"%d|b" % (len(every) + 1) + every
    )


def test_keys_headers_tombstones_and_timestamps(strandline, topic: str) -> None:
    strandline(
        *("produce", topic, "--key-separator", ":", "--null", "NULL", "--compression", "zstd"),
        *("-H", "from=test", "--header", "empty=", "--timestamp", "2026-01-01T00:00:00Z"),
        given="k1:v1\nk2:NULL\nno key\n",
    )
    strandline("produce", topic, "--key", "k1", "--tombstone", "--partition", 0)
    shown = ("--show", "key", "--show", "headers", "--show", "timestamp", "--key-separator", "|")
    at = "CreateTime:1767225600000|from:test,empty:"
    first = [f"{at}|k1|v1", f"{at}|k2|null", f"{at}|null|no key"]
    assert strandline("consume", topic, *shown).lines[:3] == first
    assert strandline("consume", topic, "--template", r"%k=%s\n", "--null", "-").lines == [
        *("k1=v1", "k2=-", "-=no key", "k1=-"),
    ]
    kafkas = (
        "--property",
        "print.key=true",
        "--property",
        "key.separator=|",
        "--property",
        "print.offset=false",
    )
    assert strandline("consume", "--topic", topic, "--from-beginning", *kafkas).lines[0] == "k1|v1"
    strandline(*("produce", "--topic", topic, "--property", "parse.key=true"), given="k\tv\n")
    assert strandline("consume", topic, "--offset", "-1", "--show", "key").lines == ["k\tv"]


def test_a_topic_is_copied_by_way_of_json(strandline) -> None:
    for name in ("original", "copied"):
        strandline("topics", "create", name, "--partitions", 3)
    given = b"a=\xff\0\nb=base64:x\nc=NULL\n"
    strandline("produce", "original", "--key-separator", "=", "--null", "NULL", "-H", "h=1", given=given)
    strandline("produce", "original", "--partition", 2, given="to the third\n")
    read = strandline("consume", "original", "--json").out
    strandline("produce", "copied", "--records", "--same-partitions", given=read)
    assert sorted(strandline("consume", "copied", "--json").lines) == sorted(read.splitlines())


def test_where_reading_begins(strandline, topic: str) -> None:
    for number in range(6):
        strandline("produce", topic, "--timestamp", 1_000 * (number + 1), given=f"{number}\n")

    def read(*words: object) -> list[str]:
        return strandline("consume", topic, *words).lines

    assert read() == read("--from-beginning") == read("--offset", "earliest") == list("012345")
    assert read("--offset", "-2") == ["4", "5"]
    assert read("--offset", "-99") == list("012345")
    assert read("--offset", "@3000") == list("2345")
    assert read("--offset", "@1970-01-01T00:00:05.500") == ["5"]
    assert read("--offset", "-1h") == read("--offset", "latest") == []
    assert read("--offset", 4, "--partition", 0) == ["4", "5"]
    assert read("--follow", "-n", 6) == list("012345"), "--follow begins where it does without"
    assert read("--follow", "-n", 1, "--offset", "-1") == ["5"]
    assert read("--read-committed", "-n", 2) == ["0", "1"]
    assert read("--group", f"late-{topic}", "--offset", "latest") == []
    assert read("--group", f"early-{topic}") == list("012345")


def test_follow_shows_what_comes_and_stdin_is_sent_as_it_comes(strandline, topic: str) -> None:
    line = [sys.executable, "-m", "strandline.cli.main"]
    pipes = {"stdout": subprocess.PIPE, "stdin": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    reading = subprocess.Popen(
        [*line, "consume", topic, "--follow", "--from-beginning"],
        env=strandline.environment,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a background job ignores it
        **pipes,
    )
    writing = subprocess.Popen([*line, "produce", topic], env=strandline.environment, **pipes)
    try:
        for word in (b"first\n", b"second\n"):
            writing.stdin.write(word)
            writing.stdin.flush()
            assert reading.stdout.readline() == word  # though more may come on stdin
        writing.stdin.close()
        assert writing.wait(30) == 0
        reading.send_signal(2)
        assert reading.wait(30) == 130
    finally:
        for process in (reading, writing):
            process.kill()
            process.wait()
            process.stdout.close()
            process.stdin.close()


def test_a_member_that_is_given_nothing_says_what_it_waits_for(strandline, topic: str) -> None:
    group = f"crowded-{topic}"
    line = [sys.executable, "-m", "strandline.cli.main", "consume", topic, "--group", group]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    strandline("produce", topic, given="one\n")
    # "range" gives the only partition to the first by member id, which begins with the client's
    first = Consumer(
        strandline.bootstrap, topics=[topic], group=group, client_id="a", auto_offset_reset="earliest"
    )
    second = None
    try:
        assert [one.value for one in first.poll(HANG_S * 1000)] == [b"one"]
        second = subprocess.Popen(line, env=strandline.environment, **pipes)
        assert select.select([second.stderr], [], [], HANG_S)[0], "it says something"
        told = second.stderr.readline()
        assert told.startswith(f"group {group}: its other members have all partitions of {topic};".encode())
        first.close()
        assert second.communicate(timeout=HANG_S) == (b"", b"0 records\n")
        assert second.returncode == 0
    finally:
        first.close()
        if second is not None:
            second.kill()
            second.communicate()


def test_a_reader_that_goes_away(strandline, topic: str) -> None:
    strandline("produce", topic, given="".join(f"{i:05}\n" for i in range(20_000)))
    reading = subprocess.Popen(
        [sys.executable, "-m", "strandline.cli.main", "consume", topic],
        env=strandline.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert reading.stdout.readline() == b"00000\n"
    reading.stdout.close()
    told = reading.stderr.read()
    reading.stderr.close()
    assert reading.wait(30) == 0
    assert told == b""


@pytest.mark.parametrize(
    "words, status, why",
    [
        ("produce t /no/such/file", 2, "cannot read /no/such/file"),
        ("produce t --acks 7", 2, "expected all, 1 or 0"),
        ("produce t --format xml", 2, "xml"),
        ("consume nope", 1, "nope"),
        ("consume {topic} --offset 3", 2, "--offset needs --partition"),
        ("consume {topic} --partition 0 --group g", 2, "--group"),
        ("consume {topic} --partition 5", 1, "has no partition 5: expected 0 to 0"),
        ("consume {topic} --partition 0 --offset 99", 1, "OFFSET_OUT_OF_RANGE"),
        ("consume {topic} --offset soon", 2, "--offset soon: expected an offset; -10 for"),
        ("consume {topic} --offset -1 --group g", 2, "groups reset-offsets"),
        ("consume {topic} --offset -1 --from-beginning", 2, "--from-beginning and --offset"),
        ("consume {topic} --template %s --json", 2, "exclude each other"),
        ("consume {topic} --template %q", 2, "%q is unknown: expected one of %k key"),
        ("consume {topic} --property print.sorrow=true", 2, "print.sorrow"),
        ("produce {topic} --header x", 2, "--header x: expected name=value"),
        ("produce {topic} --timestamp soon", 2, "--timestamp soon: expected a time"),
        ("produce {topic} --whole --delimiter x", 2, "--whole"),
        ("produce {topic} --delimiter=", 2, "--delimiter is empty"),
        ("produce {topic} --records --delimiter x", 2, "--records"),
        ("produce {topic} --same-partitions", 2, "--same-partitions needs --records"),
        ("produce {topic} --tombstone", 2, "--tombstone needs --key"),
        ("produce {topic} --compression brotli", 2, "brotli"),
        ("consume t -b 127.0.0.1:x", 2, "'127.0.0.1:x' is not host:port"),
    ],
)
def test_refusals_of_records(strandline, topic: str, words: str, status: int, why: str) -> None:
    strandline("produce", topic, given="only one\n")
    assert why in strandline(*words.format(topic=topic).split(), expect=status).err
