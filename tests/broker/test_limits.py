"""Whatever clients and logs take, descriptors are left for brokers, ZooKeeper and checkpoints."""

import resource
from pathlib import Path

import pytest

from strandline.base.clock import SystemClock
from strandline.broker.config.broker import BrokerConfig
from strandline.broker.open_file_limits import within_limits
from strandline.storage.config import StorageConfig
from strandline.storage.directories.log_manager import Logs
from strandline.storage.disk import RealDisk

LIMIT = 1000


@pytest.mark.parametrize(("asked", "taken"), [(1 << 30, 400), (50, 50)])
def test_a_tenth_is_nobodys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: int, taken: int) -> None:
    raised: list[object] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (LIMIT, LIMIT) if raised else (256, LIMIT))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: raised.append(limits))
    config = BrokerConfig.model_validate(
        {
            "broker_id": 1, "log_dirs": str(tmp_path), "listeners": "PLAINTEXT://127.0.0.1:0",
            "zookeeper": {"connect": "127.0.0.1:1"}, "max_connections": asked,
        }
    )  # fmt: skip
    assert within_limits(config).max_connections == taken
    assert raised == [(LIMIT, LIMIT)]
    logs = Logs.open(
        [str(tmp_path)], RealDisk(), StorageConfig(), SystemClock(), clean=False, before_loss=lambda *_: None
    )
    assert logs._open_segments.files_max + taken <= 0.9 * LIMIT
