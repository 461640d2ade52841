"""A topic that is being deleted has some replicas or none: whose fault that is, its controller decides."""

from importlib import import_module
from types import SimpleNamespace, TracebackType
from typing import Any

import pytest

from strandline.testing.verify import load
from strandline.testing.verify.outcome import Record
from strandline.testing.verify.places.base import KAFKAS, OURS
from strandline.testing.verify.run import Run

running = import_module("strandline.testing.verify.run")  # the package has a function of this name
SOFTWARE = {1: OURS, 2: KAFKAS}


class Seen:
    """ZooKeeper, where these topics stand to be deleted, look by look, under this controller."""

    def __init__(self, controller: int, *looks: list[str]) -> None:
        self.controller = lambda: controller
        self._looks = list(looks)

    def deleted(self) -> list[str]:
        return self._looks.pop(0) if len(self._looks) > 1 else self._looks[0]

    def __enter__(self) -> "Seen":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def waited(monkeypatch: pytest.MonkeyPatch, seen: Seen) -> tuple[list[str], Record]:
    """The topics that are left out, and what was told of them."""
    monkeypatch.setattr(running, "Znodes", lambda address: seen)
    run = Run.__new__(Run)
    run.prefix, run.record = "mine-", Record(load("smoke"), "kafka", "", "mine-")
    place: Any = SimpleNamespace(ids=[*SOFTWARE], software=SOFTWARE.get, zookeeper="there")
    run.place = place
    return run._wait_deleted(), run.record


def test_it_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    left, record = waited(monkeypatch, Seen(1, ["mine-t", "theirs"], ["theirs"]))
    assert (left, record.violations, record.notes) == ([], [], []), "the topic of others is no matter of ours"


@pytest.mark.parametrize("controller", [1, 2], ids=["our controller", "Kafka's controller"])
def test_what_stays_is_left_out_and_told(monkeypatch: pytest.MonkeyPatch, controller: int) -> None:
    monkeypatch.setattr(running, "MOVED_S", 0.0)
    left, record = waited(monkeypatch, Seen(controller, ["mine-t"]))
    assert left == ["mine-t"]
    (told,) = record.violations if SOFTWARE[controller] == OURS else record.notes
    assert told.startswith("mine-t: half deleted, and ") and f"(broker {controller})" in told
    assert not (record.notes if SOFTWARE[controller] == OURS else record.violations)
