"""compression.type with every client: what the leader has made of a batch is read by all, and kept by all."""

import re
import uuid
from pathlib import Path
from typing import Any

import pytest
from driving import Row, until

from strandline.cli.dump.command import main as dump
from strandline.client.sync import Admin
from strandline.local.cluster import LocalCluster

ROWS = [
    *(Row(f"key-{n % 7}".encode(), f"value {n} {'z' * 60}".encode()) for n in range(300)),
    Row(b"k", None),
]


def dumped_codecs(segment: Path, capsys: pytest.CaptureFixture[str]) -> set[str]:
    """What `strandline dump` says of every batch."""
    capsys.readouterr()
    assert dump(["--files", str(segment)]) == 0
    return set(re.findall(r"compresscodec: (\w+)", capsys.readouterr().out))


@pytest.mark.parametrize(("came", "kind"), [("lz4", "zstd"), ("none", "gzip"), ("snappy", "uncompressed")])
def test_each_client_reads_what_was_made_of_its_records(
    running: LocalCluster, driver: Any, ours: Any, capsys: pytest.CaptureFixture[str], came: str, kind: str
) -> None:
    topic = f"recoded-{uuid.uuid4().hex[:12]}"
    with Admin(running.bootstrap) as admin:
        admin.create_topic(topic, 1, 3, configs={"compression.type": kind})
    driver.produce(topic, ROWS, came, idempotent=driver.name != "kcat")
    for reader in (driver, ours):
        found = reader.read(topic, [0], len(ROWS))
        assert [one.row for one in sorted(found, key=lambda one: one.offset)] == ROWS
    files = [running.directory / f"broker-{id}" for id in (1, 2, 3)]
    segments = [next(root.rglob(f"{topic}-0/{0:020d}.log")) for root in files]
    until(lambda: len({segment.read_bytes() for segment in segments}) == 1, "replicas hold the same bytes")
    assert dumped_codecs(segments[0], capsys) == {"none" if kind == "uncompressed" else kind}
