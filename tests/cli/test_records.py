"""`strandline produce` and `consume`: lines in, lines out: in three formats, by offset, for ever."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import msgpack
import pytest


def test_lines_in_lines_out(strandline, topic: str) -> None:
    sent = strandline("produce", topic, given="one\ntwo\r\n\nfour")
    assert sent.err == "4 records acknowledged\n" and sent.out == ""
    read = strandline("consume", topic, "--from-beginning")
    assert read.lines == ["one", "two", "", "four"] and read.err == "4 records\n"
    assert strandline("consume", topic, "--partition", 0, "--offset", 2).lines == ["", "four"]
    assert strandline("consume", topic, "-n", 1).err == "1 record\n"


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
        ("consume {topic} --partition 0 --offset -1", 2, "--offset"),
        ("consume t -b 127.0.0.1:x", 2, "'127.0.0.1:x' is not host:port"),
    ],
)
def test_refusals_of_records(strandline, topic: str, words: str, status: int, why: str) -> None:
    strandline("produce", topic, given="only one\n")
    assert why in strandline(*words.format(topic=topic).split(), expect=status).err
