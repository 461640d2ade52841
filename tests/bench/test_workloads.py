"""A workload ends, whatever a system under test does."""

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from bench import workloads
from bench.drivers import batch_of
from strandline.local.ports import free_ports


class Ended:
    """A broker that ends while it starts, as Kafka does when its last session still stands in ZooKeeper."""

    starts = 0

    def start(self) -> None:
        self.starts += 1

    def wait(self, wait_s: float) -> bool:
        return True


class Broken:
    """A system of one such broker."""

    name = "broken"

    def __init__(self) -> None:
        self.processes = {1: Ended()}
        self.ports = {1: free_ports(1)}
        self.bootstrap = ""

    def start_broker(self, id: int) -> None:
        self.processes[id].start()

    def signal(self, id: int, sign: Any) -> None:
        pass

    def wait_ended(self, id: int) -> None:
        pass


def test_a_broker_that_ends_while_it_starts_is_started_again_but_not_for_ever(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = Broken()
    monkeypatch.setattr(workloads, "running", lambda kind, brokers: nullcontext(broken))
    monkeypatch.setattr(workloads, "create_topic", lambda *_: None)
    with pytest.raises(TimeoutError, match="broken ended by itself"):
        workloads.w13(SimpleNamespace(name="broken"), runs=2)  # type: ignore[arg-type]
    assert broken.processes[1].starts == 2 + workloads.FAILED_STARTS_MAX
    assert "this start is not counted" in capsys.readouterr().err


def test_a_broker_that_never_accepts_a_record_ends_the_workload(monkeypatch: pytest.MonkeyPatch) -> None:
    broken: Any = Broken()
    monkeypatch.setattr(broken.processes[1], "wait", lambda wait_s: False)
    monkeypatch.setattr(workloads, "START_MAX_S", 0.01)
    with pytest.raises(TimeoutError, match="did not accept a record"):
        workloads._start_s(broken, batch_of(1, 100))
